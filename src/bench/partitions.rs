//! A log of many daily partitions against one that holds the same events in a single day (I9).
//!
//! Each session of the past lived for one day. Those that come back are the hard case: their lanes and their
//! newest events are as old as that day.

use std::time::{Duration, Instant};

use tokio_postgres::types::Json;

use super::beside::TARGET;
use super::drain::{self, Running};
use super::measure::{Pairs, per_second};
use super::report::{Comparison, Line};
use super::{Backlog, BenchError, Options, Scratch, backlog, prepare, progress};

/// What is drained.
const USUAL: Backlog = Backlog {
    sessions: 5_000,
    events: 20,
};
const ONE: &str = "one_partition";
const MANY: &str = "many_partitions";
/// Sessions of the past.
const PAST: &str = "past";
const TIME: Duration = Duration::from_secs(2);
/// Sessions with events of today that single enqueues go to.
const TODAY: usize = 125;
/// Enqueues before the measured ones: plans and caches are warm then.
const WARM_UP: usize = 4 * TODAY;
const CREATE: &str =
    "SELECT lanekeeper.create_event_partition((now() AT TIME ZONE 'UTC')::date - $1::int)";
/// How many days ago a session lived, of $1.
const MOVE_EVENTS: &str =
    "UPDATE lanekeeper.event SET day = day - (1 + session_id % $1::bigint)::int";
const MOVE_SESSIONS: &str = "
    UPDATE lanekeeper.session SET newest_day = newest_day - (1 + session_id % $1::bigint)::int";
const MOVE_CURSORS: &str = "
    UPDATE lanekeeper.progress AS p SET cursor_day = p.cursor_day - (1 + l.session_id % $1::bigint)::int
    FROM lanekeeper.lane AS l WHERE l.lane_id = p.lane_id";
const ENQUEUE: &str = "SELECT seq FROM lanekeeper.enqueue($1, $2, 'message', $3)";

/// What is measured on both logs in turn.
const CASES: [&str; 4] = [
    "drain of new sessions",
    "drain of sessions of the past",
    "single enqueue, 1 client, sessions of today",
    "first enqueue of a day, 1 client, sessions of the past",
];

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Vec<Line>, BenchError> {
    let mut options = options.clone();
    // Nothing of this past is to be dropped.
    options.worker.retention_days = options.days as i32 + 30;
    let past = past(&options);
    progress(&format!(
        "partitions, loading {past} and spreading it over {} days",
        options.days
    ));
    load(scratch, &options, past).await?;

    let mut pairs = CASES.map(|_| Pairs::default());
    for run in 1..=options.runs() {
        let mut rates = Vec::new();
        for base in [MANY, ONE] {
            progress(&format!("{base}, run {run} of {}", options.runs()));
            scratch.restore(base).await?;
            rates.push(in_turn(scratch, &options, past.sessions).await?);
        }
        for (number, pairs) in pairs.iter_mut().enumerate() {
            pairs.push(rates[0][number], rates[1][number]);
        }
    }
    let line = |(name, pairs): (&&str, Pairs)| {
        let case = format!(
            "{name}, {} days of {} events",
            options.days, options.events_per_day
        );
        let against = "the same events in one partition";
        Line::Comparison(Comparison::new(
            ("partitions", case),
            against,
            pairs,
            Some(TARGET),
        ))
    };
    Ok(CASES.iter().zip(pairs).map(line).collect())
}

/// Twice as many sessions as are drained later, for what is drained and what is appended to singly, and so
/// many events of each that a day gets what it is to hold.
fn past(options: &Options) -> Backlog {
    let sessions = 2 * options.drain.unwrap_or(USUAL).sessions;
    let sessions_per_day = sessions.div_ceil(options.days).min(options.events_per_day);
    Backlog {
        sessions: sessions_per_day * options.days,
        events: options.events_per_day.div_ceil(sessions_per_day),
    }
}

/// Through the public functions and a worker, then from today's partition into those of the past.
async fn load(scratch: &Scratch, options: &Options, past: Backlog) -> Result<(), BenchError> {
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    backlog::load(scratch, PAST, past).await?;
    drain::deliver(scratch, options, past.total()).await?;
    scratch.freeze(ONE).await?;

    scratch.restore(ONE).await?;
    let client = scratch.connect().await?;
    for days in 1..=options.days as i32 {
        client
            .query_one(CREATE, &[&days])
            .await
            .map_err(BenchError::on("creating a partition"))?;
    }
    for statement in [MOVE_EVENTS, MOVE_SESSIONS, MOVE_CURSORS] {
        client
            .execute(statement, &[&(options.days as i64)])
            .await
            .map_err(BenchError::on("moving events into the past"))?;
    }
    drop(client);
    scratch.freeze(MANY).await
}

/// The rates of all cases, one after the other in one database: none is in another's way.
async fn in_turn(
    scratch: &Scratch,
    options: &Options,
    past: usize,
) -> Result<[f64; 4], BenchError> {
    let usual = options.drain.unwrap_or(USUAL);
    backlog::load(scratch, "first", usual).await?;
    let (mut worker, _) = Running::start(scratch, options, usual.total()).await?;
    let (new, _) = worker.drain(scratch, "new", usual).await?;
    let returning = Backlog {
        sessions: usual.sessions.min(past / 2),
        ..usual
    };
    let (old, _) = worker.drain(scratch, PAST, returning).await?;
    worker.stop().await?;
    let sessions = Backlog {
        sessions: TODAY,
        events: 1,
    };
    backlog::load(scratch, "today", sessions).await?;
    let today = enqueued(scratch, options, "today", 0..TODAY, None).await?;
    let rest = past / 2..past;
    let once = Some(rest.len());
    Ok([
        new,
        old,
        today,
        enqueued(scratch, options, PAST, rest, once).await?,
    ])
}

/// Single enqueues to these sessions in turn, at most so many. The first ones are not measured: plans and
/// caches are warm then.
async fn enqueued(
    scratch: &Scratch,
    options: &Options,
    prefix: &str,
    sessions: std::ops::Range<usize>,
    at_most: Option<usize>,
) -> Result<f64, BenchError> {
    let client = scratch.connect().await?;
    let statement = prepare(&client, ENQUEUE).await?;
    let payload = backlog::payload();
    let enqueue = async |event: usize| {
        let session = sessions.start + event % sessions.len();
        let session = format!("{prefix}-{session}");
        client
            .query_one(&statement, &[&backlog::STREAM, &session, &Json(&*payload)])
            .await
            .map(drop)
            .map_err(BenchError::on("enqueuing an event"))
    };
    let warm_up = at_most.map_or(WARM_UP, |most| (most / 10).min(WARM_UP));
    for event in 0..warm_up {
        enqueue(event).await?;
    }
    let time = options.seconds.map_or(TIME, Duration::from_secs_f64);
    let started_at = Instant::now();
    let mut count = 0;
    while started_at.elapsed() < time && at_most.is_none_or(|most| warm_up + count < most) {
        enqueue(warm_up + count).await?;
        count += 1;
    }
    Ok(per_second(count, started_at.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_has_sessions_for_what_is_drained_and_for_what_is_appended_to() {
        let mut options = crate::options::tests::tiny();
        options.drain = None;
        (options.days, options.events_per_day) = (365, 2_000);
        let past = past(&options);
        assert!(past.sessions >= 2 * USUAL.sessions, "{past}");
        let per_day = past.total() / options.days;
        assert!((2_000..2_100).contains(&per_day), "{per_day}");
    }
}
