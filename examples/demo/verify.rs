//! Compares the receiver's record with the database: nothing missing, nothing twice, each session
//! in its order. The receiver's word is not taken for it, and neither is the engine's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;
use tokio_postgres::NoTls;
use uuid::Uuid;

/// Longer than the longest pause of the retry schedule.
const STALL_LIMIT: Duration = Duration::from_secs(90);
const SHOWN_SESSIONS: usize = 12;
const SHOWN_EVENTS: usize = 6;

/// What the subscription's destination must have received: what passes its filter, less what has
/// an outcome that says why it was not delivered.
const DUE: &str = "
    SELECT e.message_id, s.name, e.seq, e.event_type
    FROM lanekeeper.subscription sub
    JOIN lanekeeper.stream st USING (stream_id)
    JOIN lanekeeper.session s USING (stream_id)
    JOIN lanekeeper.event e USING (session_id)
    WHERE sub.name = $1
      AND (coalesce(sub.events, st.fan_out) IS NULL OR e.event_type = ANY (coalesce(sub.events, st.fan_out)))
      AND NOT EXISTS (
          SELECT FROM lanekeeper.lane l JOIN lanekeeper.outcome o USING (lane_id)
          WHERE l.session_id = e.session_id AND l.subscription_id = sub.subscription_id AND o.seq = e.seq)
    ORDER BY s.name, e.seq";

#[derive(clap::Args)]
pub struct Args {
    #[arg(long, env = "DATABASE_URL")]
    database_url: String,
    #[arg(long)]
    subscription: String,
    /// What the receiver wrote
    #[arg(long)]
    record: PathBuf,
}

#[derive(Deserialize)]
struct Arrival {
    received_at: Timestamp,
    created_at: Timestamp,
    id: Uuid,
    session: String,
    seq: i64,
    #[serde(rename = "type")]
    event_type: String,
    attempt: u32,
}

struct Due {
    id: Uuid,
    session: String,
}

pub async fn run(args: Args) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (client, connection) = tokio_postgres::connect(&args.database_url, NoTls).await?;
    let connection = tokio::spawn(connection);
    let rows = client.query(DUE, &[&args.subscription]).await?;
    let stored: i64 = client
        .query_one("SELECT count(*) FROM lanekeeper.event", &[])
        .await?
        .get(0);
    drop(client);
    connection.await??;
    if rows.is_empty() {
        return Err(format!(
            "the database has nothing for subscription {}",
            args.subscription
        )
        .into());
    }
    let due: Vec<Due> = rows
        .iter()
        .map(|row| Due {
            id: row.get(0),
            session: row.get(1),
        })
        .collect();
    println!(
        "{stored} events are in the database, {} of them for this receiver",
        due.len()
    );

    let arrivals = wait(&args.record, &due).await?;
    let verdict = Verdict::of(&due, &arrivals);
    print_sessions(&arrivals);
    verdict.print(&arrivals);
    Ok(if verdict.holds() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns what has arrived when it is everything, or when nothing more comes.
async fn wait(record: &Path, due: &[Due]) -> Result<Vec<Arrival>, Box<dyn std::error::Error>> {
    let mut arrivals = read(record)?;
    let mut last_change = Instant::now();
    loop {
        let arrived: HashSet<Uuid> = arrivals.iter().map(|arrival| arrival.id).collect();
        let missing = due.iter().filter(|due| !arrived.contains(&due.id)).count();
        if missing == 0 || last_change.elapsed() > STALL_LIMIT {
            return Ok(arrivals);
        }
        eprintln!("waiting for {missing} of {}", due.len());
        tokio::time::sleep(Duration::from_millis(500)).await;
        let newer = read(record)?;
        if newer.len() > arrivals.len() {
            last_change = Instant::now();
        }
        arrivals = newer;
    }
}

fn read(record: &Path) -> Result<Vec<Arrival>, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(record)
        .map_err(|error| format!("{}: {error}", record.display()))?;
    // The last line may be half written.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    Ok(complete
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}

#[derive(Default)]
struct Verdict {
    missing: usize,
    unexpected: usize,
    duplicates: usize,
    out_of_order: usize,
}

impl Verdict {
    fn of(due: &[Due], arrivals: &[Arrival]) -> Self {
        let mut verdict = Self::default();
        let mut waiting: HashMap<&str, Vec<Uuid>> = HashMap::new();
        for due in due {
            waiting.entry(&due.session).or_default().push(due.id);
        }
        let expected: HashSet<Uuid> = due.iter().map(|due| due.id).collect();
        let mut seen = HashSet::new();
        let mut came: HashMap<&str, Vec<Uuid>> = HashMap::new();
        for arrival in arrivals {
            if !seen.insert(arrival.id) {
                verdict.duplicates += 1;
            } else if expected.contains(&arrival.id) {
                came.entry(&arrival.session).or_default().push(arrival.id);
            } else {
                verdict.unexpected += 1;
            }
        }
        for (session, mut ids) in waiting {
            let came = came.remove(session).unwrap_or_default();
            let all = ids.len();
            ids.retain(|id| seen.contains(id));
            verdict.missing += all - ids.len();
            verdict.out_of_order += ids
                .iter()
                .zip(&came)
                .filter(|(due, came)| due != came)
                .count();
        }
        verdict
    }

    fn holds(&self) -> bool {
        self.missing + self.unexpected + self.duplicates + self.out_of_order == 0
    }

    fn print(&self, arrivals: &[Arrival]) {
        let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else {
            return;
        };
        let seconds = last
            .received_at
            .duration_since(first.received_at)
            .as_secs_f64();
        let mut delays: Vec<f64> = arrivals
            .iter()
            .map(|arrival| {
                arrival
                    .received_at
                    .duration_since(arrival.created_at)
                    .as_secs_f64()
                    * 1e3
            })
            .collect();
        delays.sort_by(f64::total_cmp);
        let again = arrivals
            .iter()
            .filter(|arrival| arrival.attempt > 1)
            .count();
        println!(
            "\ndelivered {} in {seconds:.1} s ({:.0} per second), {again} of them after a refusal",
            arrivals.len(),
            arrivals.len() as f64 / seconds.max(0.001),
        );
        println!(
            "from commit to receiver: median {:.0} ms, 99 of 100 within {:.0} ms",
            delays[delays.len() / 2],
            delays[delays.len() * 99 / 100],
        );
        println!(
            "missing {}   unexpected {}   duplicates {}   out of order {}   {}",
            self.missing,
            self.unexpected,
            self.duplicates,
            self.out_of_order,
            if self.holds() {
                "— everything arrived once, in order"
            } else {
                "— NOT AS PROMISED"
            },
        );
    }
}

fn print_sessions(arrivals: &[Arrival]) {
    let mut sessions: BTreeMap<&str, Vec<&Arrival>> = BTreeMap::new();
    for arrival in arrivals {
        sessions.entry(&arrival.session).or_default().push(arrival);
    }
    println!(
        "\n{:<40} {:>6}  in the order of arrival",
        "session", "events"
    );
    for (session, events) in sessions.iter().take(SHOWN_SESSIONS) {
        let mut shown: Vec<String> = events
            .iter()
            .take(SHOWN_EVENTS)
            .map(|event| format!("{} {}", event.seq, event.event_type))
            .collect();
        if events.len() > SHOWN_EVENTS {
            shown.push("…".to_owned());
        }
        let name: String = session.chars().take(40).collect();
        println!("{name:<40} {:>6}  {}", events.len(), shown.join(", "));
    }
    if sessions.len() > SHOWN_SESSIONS {
        println!("… and {} sessions more", sessions.len() - SHOWN_SESSIONS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(due: &[(u128, &str)], came: &[(u128, &str)]) -> [usize; 4] {
        let due: Vec<Due> = due
            .iter()
            .map(|&(id, session)| Due {
                id: Uuid::from_u128(id),
                session: session.to_owned(),
            })
            .collect();
        let arrivals: Vec<Arrival> = came
            .iter()
            .map(|&(id, session)| Arrival {
                received_at: Timestamp::UNIX_EPOCH,
                created_at: Timestamp::UNIX_EPOCH,
                id: Uuid::from_u128(id),
                session: session.to_owned(),
                seq: 0,
                event_type: String::new(),
                attempt: 1,
            })
            .collect();
        let Verdict {
            missing,
            unexpected,
            duplicates,
            out_of_order,
        } = Verdict::of(&due, &arrivals);
        [missing, unexpected, duplicates, out_of_order]
    }

    #[test]
    fn sessions_may_interleave_but_not_reorder() {
        let due = [(1, "a"), (2, "a"), (3, "b"), (4, "b")];
        assert_eq!(
            verdict(&due, &[(3, "b"), (1, "a"), (4, "b"), (2, "a")]),
            [0, 0, 0, 0]
        );
        assert_eq!(
            verdict(&due, &[(2, "a"), (1, "a"), (3, "b"), (4, "b")]),
            [0, 0, 0, 2]
        );
    }

    #[test]
    fn what_is_missing_repeated_or_foreign_is_counted_as_such() {
        let due = [(1, "a"), (2, "a"), (3, "a")];
        assert_eq!(verdict(&due, &[(1, "a"), (3, "a")]), [1, 0, 0, 0]);
        assert_eq!(
            verdict(&due, &[(1, "a"), (2, "a"), (2, "a"), (3, "a")]),
            [0, 0, 1, 0]
        );
        assert_eq!(
            verdict(&due, &[(9, "z"), (1, "a"), (2, "a"), (3, "a")]),
            [0, 1, 0, 0]
        );
    }
}
