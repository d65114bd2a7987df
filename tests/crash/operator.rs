//! An operator who has dead letters delivered again, some at their places and some at the end, while faults
//! strike; and writes down what was asked for and answered.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Error, NoTls};

use crate::monitor::Deaths;
use crate::oracle::{LaneName, Place, Round};
use crate::support::{Dice, connect};
use crate::timeline::now_ms;

/// Dead letters of one call, at the most.
const AT_ONCE: u64 = 12;
/// Between two calls, at the most.
const PAUSE_MS: u64 = 250;
const CALLS_IN_PEACE: usize = 4;
/// Longer than a call waits for the lock of each lane.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

const WAITING: &str = "SELECT dead_id, subscription, session, seq FROM lanekeeper.dead_letter
    WHERE resolution IS NULL AND requeued_at IS NULL ORDER BY dead_id";
const NEWEST: &str = "SELECT s.name, max(e.seq) FROM lanekeeper.event AS e
    JOIN lanekeeper.session AS s USING (session_id) GROUP BY s.name";
const REQUEUE: &str = "SELECT dead_id, result FROM lanekeeper.requeue_dead_letters($1, $2)";

pub struct Operator {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Round>>,
}

impl Operator {
    /// Past all proxies; where the server is, `deaths` knows.
    pub fn start(deaths: Deaths, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let operating = operate(deaths, Dice::new(seed), Arc::clone(&stop));
        Self {
            stop,
            task: tokio::spawn(operating),
        }
    }

    /// What it asked for.
    pub async fn stop(self) -> Vec<Round> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// A few calls with nothing in their way.
pub async fn ask_in_peace(url: &str, seed: u64, rounds: &mut Vec<Round>) {
    let (client, dice) = (connect(url).await, Dice::new(seed));
    for _ in 0..CALLS_IN_PEACE {
        requeue(&client, &dice, rounds).await.unwrap();
    }
}

async fn operate(deaths: Deaths, dice: Dice, stop: Arc<AtomicBool>) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut client = None;
    while !stop.load(Ordering::Relaxed) {
        if connected(&mut client, &deaths.url()).await {
            let connection = client.take().expect("it is connected");
            // What is not answered in time may be done later: its connection is not used again.
            let requeueing = requeue(&connection, &dice, &mut rounds);
            match timeout(ANSWER_WITHIN, requeueing).await {
                Ok(Ok(())) => client = Some(connection),
                ended => eprintln!("operator: {ended:?}"),
            }
        }
        dice.pause(PAUSE_MS).await;
    }
    rounds
}

pub async fn connected(client: &mut Option<Client>, url: &str) -> bool {
    if client.as_ref().is_none_or(Client::is_closed) {
        *client = None;
        // With the server away there is nothing to operate.
        if let Ok((connected, connection)) = tokio_postgres::connect(url, NoTls).await {
            tokio::spawn(connection);
            *client = Some(connected);
        }
    }
    client.is_some()
}

/// Dead letters by their ids: the lane and the seq of each.
type Letters = BTreeMap<i64, (LaneName, i64)>;

/// Some of what waits for an operator. Neighbours are often of one lane.
async fn choose(client: &Client, dice: &Dice) -> Result<Letters, Error> {
    let waiting = client.query(WAITING, &[]).await?;
    let count = waiting.len();
    if count == 0 {
        return Ok(Letters::new());
    }
    let first = dice.roll(count as u64);
    let letters = (0..=dice.roll(AT_ONCE)).map(|_| {
        let at = (first + dice.roll(2 * AT_ONCE)) % count as u64;
        let row = &waiting[usize::try_from(at).unwrap()];
        (row.get(0), ((row.get(1), row.get(2)), row.get(3)))
    });
    Ok(letters.collect())
}

/// One call. What is asked for is written down first: it stands whether or not the answer arrives.
async fn requeue(client: &Client, dice: &Dice, rounds: &mut Vec<Round>) -> Result<(), Error> {
    let letters = choose(client, dice).await?;
    let at_end = dice.roll(3) == 0;
    let before = newest(client).await?;
    let asked_ms = now_ms();
    let round = |(lane, seq): &(LaneName, i64)| Round {
        lane: lane.clone(),
        seq: *seq,
        asked_ms,
        answered_ms: None,
        to: match at_end {
            true => Place::End {
                least: before.get(&lane.1).copied().unwrap_or(0),
                most: i64::MAX,
            },
            false => Place::Own,
        },
    };
    let begun = rounds.len();
    rounds.extend(letters.values().map(round));
    let ids: Vec<i64> = letters.keys().copied().collect();
    let answered = match client.query(REQUEUE, &[&ids, &at_end]).await {
        Ok(rows) => rows,
        // The server says so: nothing was changed. When it ends a session, who knows.
        Err(error) if error.code().is_some_and(|it| !it.code().starts_with("57P")) => {
            eprintln!("operator: {error:?}");
            rounds.truncate(begun);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let answered_ms = now_ms();
    // Others had been dealt with by then.
    let requeued = answered
        .iter()
        .filter(|row| row.get::<_, &str>(1) == "requeued");
    rounds.truncate(begun);
    rounds.extend(requeued.map(|row| Round {
        answered_ms: Some(answered_ms),
        ..round(&letters[&row.get(0)])
    }));
    if at_end {
        let after = newest(client).await?;
        for round in &mut rounds[begun..] {
            if let Place::End { most, .. } = &mut round.to {
                *most = after.get(&round.lane.1).copied().unwrap_or(0);
            }
        }
    }
    Ok(())
}

/// The newest committed event of each session.
async fn newest(client: &Client) -> Result<HashMap<String, i64>, Error> {
    let rows = client.query(NEWEST, &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
