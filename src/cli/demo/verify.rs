//! Compares the receiver's record with the database: no event is missing or there twice, and each session is in order.
//! It relies neither on the receiver's own checks nor on the engine's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::sleep;
use tokio_postgres::Client;
use uuid::Uuid;

use super::super::Failure;

/// Longer than the longest pause of the retry schedule.
const STALL_LIMIT: Duration = Duration::from_secs(90);
/// For events that calls left on disk.
const SPOOL_LIMIT: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Every event of the subscription's stream: whether it passes the subscription's filter, and whether it has an
/// outcome that says why it was not delivered.
const EVENTS: &str = "
    SELECT e.message_id, s.name AS session, e.event_type,
           coalesce(e.event_type = ANY (coalesce(sub.events, st.fan_out)), true) AS passes,
           o.kind AS outcome
    FROM lanekeeper.subscription sub
    JOIN lanekeeper.stream st USING (stream_id)
    JOIN lanekeeper.session s USING (stream_id)
    JOIN lanekeeper.event e USING (session_id)
    LEFT JOIN lanekeeper.lane l ON l.session_id = e.session_id AND l.subscription_id = sub.subscription_id
    LEFT JOIN lanekeeper.outcome o ON o.lane_id = l.lane_id AND o.seq = e.seq
    WHERE sub.name = $1
    ORDER BY s.name, e.seq";

/// A line of the receiver's record.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Arrival {
    pub(super) received_at: Timestamp,
    pub(super) created_at: Timestamp,
    /// The place of the sender's secret.
    pub(super) secret: Option<usize>,
    pub(super) id: Uuid,
    pub(super) session: String,
    pub(super) seq: i64,
    pub(super) attempt: u32,
    #[serde(default)]
    pub(super) withheld: bool,
}

/// An event that the destination must have received.
pub(super) struct Due {
    pub(super) id: Uuid,
    pub(super) session: String,
}

/// What the database says.
#[derive(Default)]
pub(super) struct Logged {
    /// Events by session.
    pub(super) events: BTreeMap<String, usize>,
    /// Events that the filter holds back, by type.
    pub(super) filtered: BTreeMap<String, usize>,
    /// Events that were settled in another way, by outcome.
    pub(super) outcomes: BTreeMap<String, usize>,
    pub(super) due: Vec<Due>,
}

impl Logged {
    async fn read(client: &Client, subscription: &str) -> Result<Self, Failure> {
        let rows = client.query(EVENTS, &[&subscription]).await;
        let mut logged = Self::default();
        for row in rows.map_err(Failure::failed)? {
            let session: String = row.get("session");
            *logged.events.entry(session.clone()).or_default() += 1;
            if !row.get::<_, bool>("passes") {
                *logged.filtered.entry(row.get("event_type")).or_default() += 1;
            } else if let Some(outcome) = row.get::<_, Option<String>>("outcome") {
                *logged.outcomes.entry(outcome).or_default() += 1;
            } else {
                logged.due.push(Due {
                    id: row.get("message_id"),
                    session,
                });
            }
        }
        Ok(logged)
    }

    /// Returns when the log has so many events, or when it does not come to that: a worker may be sending what calls
    /// had to leave on disk.
    pub(super) async fn read_all(
        client: &Client,
        subscription: &str,
        events: usize,
    ) -> Result<Self, Failure> {
        let started = Instant::now();
        loop {
            let logged = Self::read(client, subscription).await?;
            if logged.all_events() >= events || started.elapsed() > SPOOL_LIMIT {
                return Ok(logged);
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    pub(super) fn all_events(&self) -> usize {
        self.events.values().sum()
    }
}

/// Returns what has arrived when it is everything, or when nothing more comes.
pub(super) async fn wait(record: &Path, due: &[Due]) -> Result<Vec<Arrival>, Failure> {
    let mut arrivals = read(record)?;
    let mut last_change = Instant::now();
    loop {
        let arrived: HashSet<Uuid> = accepted(&arrivals).map(|arrival| arrival.id).collect();
        let is_complete = due.iter().all(|due| arrived.contains(&due.id));
        if is_complete || last_change.elapsed() > STALL_LIMIT {
            return Ok(arrivals);
        }
        sleep(LOOK_AGAIN).await;
        let newer = read(record)?;
        if newer.len() > arrivals.len() {
            last_change = Instant::now();
        }
        arrivals = newer;
    }
}

/// The first copy of each event that the receiver said yes to.
pub(super) fn first_copies(arrivals: &[Arrival]) -> Vec<&Arrival> {
    let mut seen = HashSet::new();
    accepted(arrivals)
        .filter(|arrival| seen.insert(arrival.id))
        .collect()
}

/// Those that the receiver said yes to.
pub(super) fn accepted(arrivals: &[Arrival]) -> impl Iterator<Item = &Arrival> {
    arrivals.iter().filter(|arrival| !arrival.withheld)
}

pub(super) fn read(record: &Path) -> Result<Vec<Arrival>, Failure> {
    let text = std::fs::read_to_string(record)
        .map_err(|error| Failure::failed(format!("{}: {error}", record.display())))?;
    // The last line may be half written.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(Failure::failed)
}

/// What is not as promised.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) missing: usize,
    pub(super) unexpected: usize,
    pub(super) duplicates: usize,
    pub(super) out_of_order: usize,
    /// Events that the killed worker had delivered when it died, and had not recorded as delivered. They are promised
    /// to come again: at least once.
    pub(super) repeated: usize,
}

impl Verdict {
    /// `killed`: the place of the secret of a worker that was killed.
    pub(super) fn of(due: &[Due], arrivals: &[Arrival], killed: Option<usize>) -> Self {
        let mut verdict = Self::default();
        let mut waiting: HashMap<&str, Vec<Uuid>> = HashMap::new();
        for due in due {
            waiting.entry(&due.session).or_default().push(due.id);
        }
        let expected: HashSet<Uuid> = due.iter().map(|due| due.id).collect();
        // The sender of the last copy.
        let mut seen: HashMap<Uuid, Option<usize>> = HashMap::new();
        let mut came: HashMap<&str, Vec<Uuid>> = HashMap::new();
        for arrival in accepted(arrivals) {
            match seen.insert(arrival.id, arrival.secret) {
                Some(before)
                    if killed.is_some() && before == killed && arrival.secret != killed =>
                {
                    verdict.repeated += 1;
                }
                Some(_) => verdict.duplicates += 1,
                None if expected.contains(&arrival.id) => {
                    came.entry(&arrival.session).or_default().push(arrival.id);
                }
                None => verdict.unexpected += 1,
            }
        }
        for (session, mut ids) in waiting {
            let came = came.remove(session).unwrap_or_default();
            let all = ids.len();
            ids.retain(|id| seen.contains_key(id));
            verdict.missing += all - ids.len();
            verdict.out_of_order += ids
                .iter()
                .zip(&came)
                .filter(|(due, came)| due != came)
                .count();
        }
        verdict
    }

    pub(super) fn holds(&self) -> bool {
        self.missing + self.unexpected + self.duplicates + self.out_of_order == 0
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
                secret: None,
                id: Uuid::from_u128(id),
                session: session.to_owned(),
                seq: 0,
                attempt: 1,
                withheld: false,
            })
            .collect();
        let Verdict {
            missing,
            unexpected,
            duplicates,
            out_of_order,
            repeated: _,
        } = Verdict::of(&due, &arrivals, None);
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

    #[test]
    fn an_event_may_come_again_from_another_worker_than_the_killed_one_that_delivered_it() {
        let arrival = |secret| Arrival {
            received_at: Timestamp::UNIX_EPOCH,
            created_at: Timestamp::UNIX_EPOCH,
            secret: Some(secret),
            id: Uuid::from_u128(1),
            session: "a".to_owned(),
            seq: 1,
            attempt: 1,
            withheld: false,
        };
        let due = [Due {
            id: Uuid::from_u128(1),
            session: "a".to_owned(),
        }];
        let of = |senders: &[usize]| {
            let arrivals: Vec<Arrival> = senders.iter().map(|&secret| arrival(secret)).collect();
            let verdict = Verdict::of(&due, &arrivals, Some(0));
            (verdict.repeated, verdict.duplicates, verdict.holds())
        };
        assert_eq!(of(&[0, 1]), (1, 0, true));
        for senders in [[0, 0], [1, 1], [1, 0]] {
            assert_eq!(of(&senders), (0, 1, false));
        }
        assert_eq!(of(&[0, 1, 1]), (1, 1, false));
    }
}
