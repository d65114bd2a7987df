//! Producers that commit and roll back, one event and many, to hot and quiet sessions, and write down
//! what they were told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Error, NoTls};
use uuid::Uuid;

use crate::ledger::{Fate, Ledger};
use crate::support::Dice;

pub const STREAM: &str = "runs";
const TYPES: [&str; 3] = ["a", "b", "c"];
/// Sessions beside the hot one.
const QUIET: u64 = 24;
/// Events in a burst.
const BURST: u64 = 80;
/// How long a producer waits for an answer before it gives its connection up.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How often a transaction is tried again whose outcome is not known, before it is left at that.
const TRIES: usize = 3;

/// What kind of transaction.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// One call that commits by itself.
    Single,
    /// Some calls between BEGIN and COMMIT, now and then long apart.
    Several,
    /// One call for many events of many sessions.
    Bulk,
    /// The same, so large that every worker has something to do.
    Burst,
    RolledBack,
    /// The first part is rolled back, the second commits.
    Savepoint,
}

struct Planned {
    id: Uuid,
    session: String,
    event_type: &'static str,
}

/// All producers of a run.
pub struct Producers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    bursts: Bursts,
}

/// How many bursts are asked for: each is one call for many events of all sessions.
#[derive(Clone, Default)]
pub struct Bursts(Arc<AtomicUsize>);

impl Bursts {
    pub fn ask(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        let one_less = |bursts: usize| bursts.checked_sub(1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.0.fetch_update(set, fetch, one_less).is_ok()
    }
}

impl Producers {
    /// `url` leads through a proxy.
    pub fn start(url: &str, dice: &Dice, ledger: &Ledger, pause_ms: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let bursts = Bursts::default();
        bursts.ask();
        let tasks = (0..3)
            .map(|_| {
                let producer = Producer {
                    url: url.to_owned(),
                    dice: dice.split(),
                    ledger: ledger.clone(),
                    stop: Arc::clone(&stop),
                    bursts: bursts.clone(),
                    pause_ms,
                };
                tokio::spawn(producer.run())
            })
            .collect();
        Self {
            stop,
            tasks,
            bursts,
        }
    }

    pub fn bursts(&self) -> &Bursts {
        &self.bursts
    }

    pub async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

struct Producer {
    url: String,
    dice: Dice,
    ledger: Ledger,
    stop: Arc<AtomicBool>,
    bursts: Bursts,
    pause_ms: u64,
}

impl Producer {
    async fn run(self) {
        let mut client = None;
        while !self.stop.load(Ordering::Relaxed) {
            let shape = match self.dice.roll(20) {
                _ if self.bursts.take() => Shape::Burst,
                0..9 => Shape::Single,
                9..13 => Shape::Several,
                13..16 => Shape::Bulk,
                16..18 => Shape::RolledBack,
                _ => Shape::Savepoint,
            };
            self.transaction(&mut client, shape).await;
            self.dice.pause(self.pause_ms).await;
        }
    }

    fn plan(&self, shape: Shape) -> Vec<Planned> {
        let count = match shape {
            Shape::Single => 1,
            Shape::Bulk => 2 + self.dice.roll(20),
            Shape::Burst => BURST,
            _ => 1 + self.dice.roll(4),
        };
        let mut planned: Vec<Planned> = (0..count)
            .map(|_| Planned {
                id: Uuid::now_v7(),
                session: match self.dice.roll(6) {
                    0 => "hot".to_owned(),
                    _ => format!("quiet{}", self.dice.roll(QUIET)),
                },
                event_type: TYPES[usize::try_from(self.dice.roll(3)).unwrap()],
            })
            .collect();
        // Two transactions that write to sessions in opposite order would deadlock.
        planned.sort_by(|one, other| one.session.cmp(&other.session));
        for event in &planned {
            self.ledger
                .intend(event.id, &event.session, event.event_type);
        }
        planned
    }

    /// Until its outcome is known, or it is left at that: then it is either committed or not.
    async fn transaction(&self, client: &mut Option<Client>, shape: Shape) {
        let planned = self.plan(shape);
        // What was tried again is known to the server by its ids.
        let tries = if self.dice.roll(2) == 0 { TRIES } else { 1 };
        let mut sent = false;
        for _ in 0..tries {
            let outcome = match self.connected(client).await {
                None => Outcome::Nothing,
                Some(client) => {
                    let sending = self.send(client, shape, &planned);
                    let answered = timeout(ANSWER_WITHIN, sending).await;
                    answered.unwrap_or(Outcome::Unknown)
                }
            };
            match outcome {
                Outcome::Known => return,
                // Of this try; one before it may have come through.
                Outcome::Nothing if sent => {}
                Outcome::Nothing => {
                    for event in &planned {
                        self.ledger.is(event.id, Fate::RolledBack);
                    }
                    return;
                }
                Outcome::Unknown => {
                    sent = true;
                    *client = None;
                }
            }
        }
    }

    async fn connected<'a>(&self, client: &'a mut Option<Client>) -> Option<&'a mut Client> {
        if client.as_ref().is_none_or(Client::is_closed) {
            let connecting = tokio_postgres::connect(&self.url, NoTls);
            let Ok(Ok((connected, connection))) = timeout(ANSWER_WITHIN, connecting).await else {
                sleep(Duration::from_millis(20)).await;
                *client = None;
                return None;
            };
            tokio::spawn(connection);
            *client = Some(connected);
        }
        client.as_mut()
    }

    async fn send(&self, client: &mut Client, shape: Shape, planned: &[Planned]) -> Outcome {
        match shape {
            Shape::Single => match append(client, &planned[0]).await {
                Ok(seq) => self.confirm(planned, &[seq]),
                Err(error) => Outcome::of_commit(&error),
            },
            Shape::Bulk | Shape::Burst => match append_many(client, planned).await {
                Ok(seqs) => self.confirm(planned, &seqs),
                Err(error) => Outcome::of_commit(&error),
            },
            Shape::Several | Shape::RolledBack | Shape::Savepoint => {
                self.send_transaction(client, shape, planned).await
            }
        }
    }

    async fn send_transaction(
        &self,
        client: &mut Client,
        shape: Shape,
        planned: &[Planned],
    ) -> Outcome {
        let Ok(mut transaction) = client.transaction().await else {
            return Outcome::Nothing;
        };
        let mut seqs = Vec::new();
        let undone = match shape {
            Shape::Savepoint => planned.len() / 2,
            _ => 0,
        };
        if undone > 0 {
            let Ok(savepoint) = transaction.savepoint("part").await else {
                return Outcome::Nothing;
            };
            for event in &planned[..undone] {
                if append(savepoint.client(), event).await.is_err() {
                    return Outcome::Nothing;
                }
            }
            if savepoint.rollback().await.is_err() {
                return Outcome::Nothing;
            }
        }
        for event in &planned[undone..] {
            match append(transaction.client(), event).await {
                Ok(seq) => seqs.push(seq),
                Err(_) => return Outcome::Nothing,
            }
            if self.dice.roll(12) == 0 {
                // Others commit before it, whatever they began after it.
                self.dice.pause(200).await;
            }
        }
        if matches!(shape, Shape::RolledBack) {
            // A rollback that is not answered is one all the same.
            let _ = transaction.rollback().await;
            return Outcome::Nothing;
        }
        let committed = transaction.commit().await;
        planned[..undone]
            .iter()
            .for_each(|event| self.ledger.is(event.id, Fate::RolledBack));
        match committed {
            Ok(()) => self.confirm(&planned[undone..], &seqs),
            Err(_) => Outcome::Unknown,
        }
    }

    fn confirm(&self, planned: &[Planned], seqs: &[i64]) -> Outcome {
        assert_eq!(planned.len(), seqs.len(), "a result for each event");
        for (event, seq) in planned.iter().zip(seqs) {
            self.ledger.is(event.id, Fate::Committed { seq: *seq });
        }
        Outcome::Known
    }
}

enum Outcome {
    /// In the ledger.
    Known,
    /// Certainly not committed.
    Nothing,
    Unknown,
}

impl Outcome {
    /// Of a statement that commits by itself.
    fn of_commit(error: &Error) -> Self {
        match error.code() {
            // The server says so: nothing was committed. When it ends a session, who knows.
            Some(code) if !code.code().starts_with("57P") => Self::Nothing,
            _ => Self::Unknown,
        }
    }
}

async fn append(client: &Client, event: &Planned) -> Result<i64, Error> {
    let call = "SELECT seq FROM lanekeeper.enqueue($1, $2, $3, '{}', $4)";
    let row = client
        .query_one(
            call,
            &[&STREAM, &event.session, &event.event_type, &event.id],
        )
        .await?;
    Ok(row.get(0))
}

async fn append_many(client: &Client, events: &[Planned]) -> Result<Vec<i64>, Error> {
    let events: Vec<_> = events
        .iter()
        .map(|event| {
            json!({"session": event.session, "event_type": event.event_type, "payload": {},
                   "message_id": event.id})
        })
        .collect();
    let call = "SELECT seq FROM lanekeeper.enqueue_many($1, $2)";
    let events = serde_json::Value::from(events);
    let rows = client.query(call, &[&STREAM, &events]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
