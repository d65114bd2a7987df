//! A replay of past events, against the first delivery of the same events, both beside the same live traffic (D5); and
//! what the live traffic notices of it.
//!
//! One worker and one subscription for all of it, as where a destination lost its data. The past events are those of other
//! sessions than the live ones. Each of them is delivered twice, once by the plain drain and once by the replay; what came
//! out of order or not at all fails the run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lanekeeper_engine::Worker;
use lanekeeper_postgres::operate;
use lanekeeper_postgres::replay::{self, By, Pace, Range};
use tokio::time::sleep;
use tokio_postgres::Client;

use super::drain;
use super::measure::{Pairs, per_second, percentile_ms};
use super::paced::{Beside, Journal, Load};
use super::report::{Comparison, Distribution, Line, Targets};
use super::sink::Source;
use super::{Backlog, BenchError, Options, Scratch, backlog, progress};
use past::{Both, Past};

mod past;

/// Sessions' names begin so.
const PREFIX: &str = "past";
/// Events of each session, unless the sizes are given.
const DEPTH: usize = 200;
const LIVE_PER_SECOND: f64 = 1_000.0;
/// How long the live traffic is measured alone.
const TIME: Duration = Duration::from_secs(10);
/// Of live traffic, before anything is measured beside it.
const WARM_UP: Duration = Duration::from_secs(2);
/// Without a single delivery for this long, something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Of the replay's rate to the plain drain's.
const TARGET: f64 = 0.7;
/// The most that the live p99 may grow.
const SLOWER: f64 = 2.0;

/// Live events' delays, from the answer to the enqueue to the start of the delivery.
type Delays = Vec<Duration>;

struct Run {
    replayed: f64,
    drained: f64,
    /// Until the call that started the replay was answered: it counts the events.
    starting: Duration,
    alone: Delays,
    beside_drain: Delays,
    beside_replay: Delays,
}

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Vec<Line>, BenchError> {
    let past = options.drain.unwrap_or(Backlog {
        sessions: (options.replayed / DEPTH).max(1),
        events: DEPTH.min(options.replayed),
    });
    let load = Load {
        per_second: options.rate.unwrap_or(LIVE_PER_SECOND),
        hot: 0,
        sessions: options.paced_sessions,
        time: options.seconds.map_or(TIME, Duration::from_secs_f64),
    };
    let mut pairs = Pairs::default();
    let [mut alone, mut beside_drain, mut beside_replay, mut starting] =
        [(); 4].map(|()| Delays::new());
    for number in 1..=options.runs() {
        progress(&format!(
            "replay, {past}, run {number} of {}",
            options.runs()
        ));
        let run = run(scratch, options, past, load).await?;
        pairs.push(run.replayed, run.drained);
        alone.extend(run.alone);
        beside_drain.extend(run.beside_drain);
        beside_replay.extend(run.beside_replay);
        starting.push(run.starting);
    }
    let case = format!(
        "{past}, {} sessions at once, beside {:.0} live events/s",
        options.replay_concurrency, load.per_second
    );
    // As it is printed.
    let bound = (SLOWER * percentile_ms(&mut alone, 0.99) * 100.0).round() / 100.0;
    let targets = Targets {
        p50_ms: None,
        p99_ms: Some(bound),
    };
    let line = |case: &str, samples, targets| {
        Line::Distribution(Distribution::new("replay", case, samples, targets))
    };
    Ok(vec![
        Line::Comparison(Comparison::new(
            ("replay", case),
            "the plain drain of the same events beside the same traffic",
            pairs,
            Some(TARGET),
        )),
        line(
            "live, commit answered to delivery start, nothing beside it",
            alone,
            Targets::default(),
        ),
        line(
            "the same beside the plain drain",
            beside_drain,
            Targets::default(),
        ),
        line("the same beside the replay", beside_replay, targets),
        line(
            "the call that starts the replay",
            starting,
            Targets::default(),
        ),
    ])
}

/// A worker with live sessions and past ones.
struct Stage<'a> {
    scratch: &'a Scratch,
    load: Load,
    worker: Worker,
    journal: Arc<Journal>,
    past: Arc<Past>,
    client: Client,
}

async fn run(
    scratch: &Scratch,
    options: &Options,
    past: Backlog,
    load: Load,
) -> Result<Run, BenchError> {
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    let journal = Beside::load(scratch, load).await?;
    let counted = Arc::new(Past::new(past));
    let both = Both::new(Arc::clone(&journal), Arc::clone(&counted));
    let source = Arc::new(Source::new(Arc::new(both)));
    let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
    journal.delivered(load.sessions as u64, PATIENCE).await?;
    let stage = Stage {
        scratch,
        load,
        worker,
        journal,
        past: counted,
        client: scratch.connect().await?,
    };
    let alone = stage.alone().await?;
    let (drained, beside_drain) = stage.drain(past).await?;
    let (replayed, starting, beside_replay) = stage.replay(options.replay_concurrency).await?;
    stage.worker.stop().await;
    stage.journal.judge(&stage.client).await?;
    Ok(Run {
        replayed,
        drained,
        starting,
        alone,
        beside_drain,
        beside_replay,
    })
}

impl Stage<'_> {
    async fn alone(&self) -> Result<Delays, BenchError> {
        let beside = Beside::start(self.scratch, &self.journal, self.load).await?;
        sleep(WARM_UP.min(self.load.time)).await;
        self.journal.begin_anew();
        sleep(self.load.time).await;
        let delays = self.journal.all().from_answer;
        beside.stop().await?;
        Ok(delays)
    }

    /// As the workload `drain`: the subscription is paused while the events are loaded. The clock starts when the worker
    /// knows that it may claim, and stops with the last delivery.
    async fn drain(&self, past: Backlog) -> Result<(f64, Delays), BenchError> {
        operate::pause_subscription(&self.client, backlog::SUBSCRIPTION, "loading").await?;
        self.walks(0).await?;
        backlog::load(self.scratch, PREFIX, past).await?;
        backlog::vacuum(&self.client, backlog::TABLES).await?;
        let beside = Beside::start(self.scratch, &self.journal, self.load).await?;
        operate::resume_subscription(&self.client, backlog::SUBSCRIPTION).await?;
        let started_at = self.walks(1).await?;
        self.journal.begin_anew();
        let ended_at = self.past.ended(PATIENCE).await?;
        let delays = self.journal.all().from_answer;
        beside.stop().await?;
        Ok((per_second(past.total(), ended_at - started_at), delays))
    }

    /// The clock starts when the call that starts the replay is answered, and stops with the last delivery.
    async fn replay(&self, concurrency: i32) -> Result<(f64, Duration, Delays), BenchError> {
        backlog::vacuum(&self.client, backlog::TABLES).await?;
        let beside = Beside::start(self.scratch, &self.journal, self.load).await?;
        sleep(WARM_UP.min(self.load.time)).await;
        let range = Range {
            subscription: backlog::SUBSCRIPTION.to_owned(),
            sessions: Some(format!("{PREFIX}-*")),
            ..Range::default()
        };
        let pace = Pace {
            rate: None,
            concurrency,
        };
        self.past.begin_anew();
        self.journal.begin_anew();
        let called_at = Instant::now();
        let id = replay::start(&self.client, &range, &pace, By::default()).await?;
        let answered_at = Instant::now();
        let ended_at = self.past.ended(PATIENCE).await?;
        let delays = self.journal.all().from_answer;
        beside.stop().await?;
        self.is_done(id).await?;
        let rate = per_second(
            self.past.total(),
            ended_at.saturating_duration_since(answered_at),
        );
        Ok((rate, answered_at - called_at, delays))
    }

    /// Waits until the replay says that it has ended, with all of its events delivered.
    async fn is_done(&self, id: i64) -> Result<(), BenchError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let delivered = match replay::find(&self.client, id).await? {
                Some(replay) if replay.ended_at.is_some() => {
                    let delivered = u64::try_from(replay.progress.delivered).unwrap_or(0);
                    if delivered == self.past.total() as u64 {
                        return Ok(());
                    }
                    delivered
                }
                _ => 0,
            };
            if Instant::now() > deadline {
                return Err(BenchError::Stalled {
                    delivered,
                    expected: self.past.total() as u64,
                    silent: PATIENCE,
                });
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn walks(&self, routes: usize) -> Result<Instant, BenchError> {
        let known = drain::walks(&self.worker, routes).await;
        known.ok_or(BenchError::Stalled {
            delivered: 0,
            expected: self.past.total() as u64,
            silent: PATIENCE,
        })
    }
}
