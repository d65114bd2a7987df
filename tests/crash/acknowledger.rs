//! A consumer that acknowledges what arrives at one subscription, while faults strike: most at once, some only when they were
//! sent again. It writes down what it asked for, and looks on: no cursor passes what nobody has asked to acknowledge.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::monitor::Deaths;
use crate::operator::connected;
use crate::oracle::Acks;
use crate::receiver::Reader;
use crate::scene::ACKNOWLEDGED;
use crate::support::Dice;
use crate::timeline::now_ms;

/// Between two calls, at the most.
const PAUSE_MS: u64 = 30;
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Of so many messages, one is acknowledged only when it comes again.
const LATE: u64 = 60;

const ACK: &str = "SELECT message_id, result FROM lanekeeper.ack_many($1)";
const PASSED: &str = "SELECT n.name, e.seq, e.message_id
    FROM lanekeeper.subscription AS s
    JOIN lanekeeper.lane AS l ON l.subscription_id = s.subscription_id
    JOIN lanekeeper.session AS n ON n.session_id = l.session_id
    CROSS JOIN LATERAL (SELECT p.cursor FROM lanekeeper.progress AS p
        WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1) AS p
    JOIN lanekeeper.event AS e ON e.session_id = l.session_id AND e.seq <= p.cursor AND e.event_type = ANY (s.events)
    WHERE s.name = $1
      AND NOT EXISTS (SELECT FROM lanekeeper.outcome AS o WHERE o.lane_id = l.lane_id AND o.seq = e.seq)";

pub struct Acknowledger {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Acks>,
}

impl Acknowledger {
    /// Past all proxies; where the server is, `deaths` knows.
    pub fn start(deaths: Deaths, reader: Reader, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledging = acknowledge(deaths, reader, Dice::new(seed), Arc::clone(&stop));
        Self {
            stop,
            task: tokio::spawn(acknowledging),
        }
    }

    pub async fn stop(self) -> Acks {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

async fn acknowledge(
    deaths: Deaths,
    mut reader: Reader,
    dice: Dice,
    stop: Arc<AtomicBool>,
) -> Acks {
    let mut acks = Acks::default();
    let mut came: HashMap<Uuid, bool> = HashMap::new();
    let mut waiting: HashSet<Uuid> = HashSet::new();
    let mut client = None;
    while !stop.load(Ordering::Relaxed) {
        for arrival in reader.more() {
            if arrival.subscription != ACKNOWLEDGED {
                continue;
            }
            let is_late = came
                .entry(arrival.id)
                .or_insert_with(|| dice.roll(LATE) == 0);
            if !std::mem::replace(is_late, false) {
                waiting.insert(arrival.id);
            }
        }
        if connected(&mut client, &deaths.url()).await {
            let connection = client.take().expect("it is connected");
            // What is not answered in time may be done later: its connection is not used again.
            let asking = ask(&connection, &mut waiting, &mut acks);
            match timeout(ANSWER_WITHIN, asking).await {
                Ok(Ok(())) => client = Some(connection),
                ended => eprintln!("acknowledger: {ended:?}"),
            }
        }
        dice.pause(PAUSE_MS).await;
    }
    acks
}

async fn ask(client: &Client, waiting: &mut HashSet<Uuid>, acks: &mut Acks) -> Result<(), Error> {
    // No call is under way: what a cursor has passed by now was asked for before.
    for row in client.query(PASSED, &[&ACKNOWLEDGED]).await? {
        let id: Uuid = row.get(2);
        if !acks.asked.contains(&id) {
            acks.unasked.insert((row.get(0), row.get(1)));
        }
    }
    let ids: Vec<Uuid> = waiting.iter().copied().collect();
    if ids.is_empty() {
        return Ok(());
    }
    acks.asked.extend(&ids);
    for row in client.query(ACK, &[&ids]).await? {
        let (id, result): (Uuid, &str) = (row.get(0), row.get(1));
        // Unknown: it arrived, and the worker has not entered by now that it was sent.
        if result != "unknown" {
            waiting.remove(&id);
            acks.acked_ms.entry(id).or_insert_with(now_ms);
        }
    }
    Ok(())
}
