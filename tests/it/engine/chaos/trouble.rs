//! The sources of trouble: producers, an operator, cut connections; and the random generator by which they choose.

use tokio::time::Instant;
use tokio_postgres::Client;

use crate::support::{Dice, connect};

/// Few enough that everybody meets in them.
const SESSIONS: u64 = 24;

/// What a producer was promised: (session, seq) of committed transactions.
pub type Promised = Vec<(String, i64)>;

pub async fn produce(url: String, dice: Dice, end: Instant) -> Promised {
    let mut client = connect(&url).await;
    let soon = "SET deadlock_timeout = '20ms'";
    client.batch_execute(soon).await.unwrap();
    let mut promised = Vec::new();
    while Instant::now() < end {
        match transaction(&mut client, &dice).await {
            Ok(committed) => promised.extend(committed),
            Err(error) => {
                let code = error.code().map_or("", |code| code.code());
                // Two that write to sessions in opposite order, or at a snapshot that is too old.
                assert!(["40001", "40P01"].contains(&code), "{error:?}");
            }
        }
        dice.pause(12).await;
    }
    promised
}

async fn transaction(client: &mut Client, dice: &Dice) -> Result<Promised, tokio_postgres::Error> {
    use tokio_postgres::IsolationLevel::{ReadCommitted, RepeatableRead, Serializable};
    let level = [ReadCommitted, ReadCommitted, RepeatableRead, Serializable];
    let level = level[dice.roll(4) as usize];
    let transaction = client.build_transaction().isolation_level(level);
    let mut transaction = transaction.start().await?;
    let mut appended = Vec::new();
    for _ in 0..=dice.roll(3) {
        let savepoint = transaction.savepoint("part").await?;
        let part = append(savepoint.client(), dice).await?;
        if dice.roll(5) == 0 {
            savepoint.rollback().await?;
        } else {
            savepoint.commit().await?;
            appended.extend(part);
        }
    }
    if dice.roll(10) == 0 {
        dice.pause(300).await;
    }
    if dice.roll(6) == 0 {
        transaction.rollback().await?;
        return Ok(Vec::new());
    }
    transaction.commit().await?;
    Ok(appended)
}

async fn append(client: &Client, dice: &Dice) -> Result<Promised, tokio_postgres::Error> {
    let session = |dice: &Dice| format!("s{}", dice.roll(SESSIONS));
    let kind = |dice: &Dice| ["a", "b", "c"][dice.roll(3) as usize];
    if dice.roll(3) > 0 {
        let (session, kind) = (session(dice), kind(dice));
        let priority = i16::try_from(dice.roll(8)).unwrap_or(0).saturating_sub(5);
        let call = "SELECT seq FROM lanekeeper.enqueue('runs', $1, $2, '{}', priority => $3)";
        let row = client
            .query_one(call, &[&session, &kind, &priority])
            .await?;
        return Ok(vec![(session, row.get(0))]);
    }
    let count = if dice.roll(10) == 0 {
        150
    } else {
        dice.roll(20)
    };
    let events: Vec<_> = (0..count)
        .map(|_| serde_json::json!({"session": session(dice), "event_type": kind(dice), "payload": 1}))
        .collect();
    let call = "SELECT seq FROM lanekeeper.enqueue_many('runs', $1)";
    let rows = client
        .query(call, &[&serde_json::Value::from(events.clone())])
        .await?;
    let sessions = events
        .iter()
        .map(|event| event["session"].as_str().unwrap());
    Ok(sessions
        .map(str::to_owned)
        .zip(rows.iter().map(|row| row.get(0)))
        .collect())
}

/// Parks, unparks, retries and skips lanes, pauses and resumes subscriptions; at the end everything
/// may go on.
pub async fn operate(url: String, dice: Dice, end: Instant) {
    let client = connect(&url).await;
    while Instant::now() < end {
        let action = ["park", "unpark", "retry", "skip"][dice.roll(4) as usize];
        let call = "SELECT lanekeeper.change_lane(lane_id, $1) FROM lanekeeper.lane ORDER BY random() LIMIT 1";
        if let Err(error) = client.query(call, &[&action]).await {
            // Nothing to skip, or a delivery that takes long.
            let code = error.code().map_or("", |code| code.code());
            assert!(["LK006", "LK007"].contains(&code), "{error:?}");
        }
        if dice.roll(4) == 0 {
            let name = ["out", "some"][dice.roll(2) as usize];
            for reason in [Some("a while"), None] {
                let call = "SELECT lanekeeper.pause_subscription($1, $2)";
                client.query(call, &[&name, &reason]).await.unwrap();
                dice.pause(400).await;
            }
        }
        dice.pause(60).await;
    }
    let unpark = "SELECT lanekeeper.change_lane(lane_id, 'unpark') FROM lanekeeper.lane_status WHERE state = 'parked'";
    client.query(unpark, &[]).await.unwrap();
}

pub async fn cut(url: String, dice: Dice, end: Instant) {
    let client = connect(&url).await;
    while Instant::now() < end {
        dice.pause(500).await;
        let purpose = ["lanes", "lanes", "control", "listen", "doorbell"][dice.roll(5) as usize];
        let call = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name LIKE 'lanekeeper ' || $1 || '%'
                    ORDER BY random() LIMIT 1";
        client.query(call, &[&purpose]).await.unwrap();
    }
}
