//! Three replicas and one token: whatever happens to the one that asks, no message is lost or doubled.

use std::time::Duration;

use lanekeeper_fault::CrashPoint;
use rustix::process::Signal;
use tokio::time::Instant;

use super::{Chat, LIMIT};
use crate::support::{Dice, WorkerProcess, wait_until};

/// TAKEOVERS and SEED of the environment choose others.
const TAKEOVERS: u64 = 10;
const SEED: u64 = 7;
/// E7: after the holder dies or hangs.
const WITHIN: Duration = Duration::from_secs(10);

fn chosen(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |given| given.parse().unwrap())
}

/// The process that asks, and its connection.
async fn holder(chat: &Chat) -> Option<(i32, i32)> {
    let read = "SELECT w.pid, p.backend_pid FROM lanekeeper.source_poll AS p
                JOIN lanekeeper.worker AS w ON w.worker_id = p.worker_id
                JOIN pg_stat_activity AS a ON a.pid = p.backend_pid AND a.backend_start = p.backend_start";
    let row = chat.plant.client.query_opt(read, &[]).await.unwrap()?;
    Some((row.get(0), row.get(1)))
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_and_one_token_lose_and_double_nothing_however_the_holder_ends() {
    let (takeovers, seed) = (chosen("TAKEOVERS", TAKEOVERS), chosen("SEED", SEED));
    println!("TAKEOVERS={takeovers} SEED={seed}");
    let dice = Dice::new(seed);
    let chat = Chat::new().await;
    let mut workers: Vec<WorkerProcess> = Vec::new();
    for _ in 0..3 {
        workers.push(chat.worker().await);
    }
    let updates = &chat.telegram.updates;
    let mut written = 0;
    let mut write = |count: u64| {
        for _ in 0..count {
            written += 1;
            updates.text(
                if written % 2 == 0 { 77 } else { -100 },
                &written.to_string(),
            );
        }
    };
    let mut slowest = [Duration::ZERO; 3];
    for takeover in 0..takeovers {
        let mut found = None;
        wait_until(LIMIT, "somebody asks", async || {
            found = holder(&chat).await;
            found.is_some()
        })
        .await;
        let (process, backend) = found.unwrap();
        let at = workers.iter().position(|worker| worker.pid() == process);
        let at = at.expect("one of the three");
        write(1 + dice.roll(20));
        dice.pause(30).await;
        // Freezing takes the longest: once in five.
        let how = match takeover % 5 {
            4 => 2,
            _ => dice.roll(2) as usize,
        };
        let since = Instant::now();
        match how {
            0 => {
                let killed = workers.remove(at);
                killed.kill().await;
            }
            1 => {
                let end = "SELECT pg_terminate_backend($1)";
                chat.plant.client.execute(end, &[&backend]).await.unwrap();
            }
            _ => workers[at].signal(Signal::STOP),
        }
        write(1 + dice.roll(10));
        let another = async || {
            holder(&chat)
                .await
                .is_some_and(|(_, other)| other != backend)
        };
        wait_until(LIMIT, "somebody else asks", another).await;
        updates.confirmed(LIMIT).await;
        slowest[how] = slowest[how].max(since.elapsed());
        match how {
            0 => workers.push(chat.worker().await),
            1 => {}
            _ => workers[at].signal(Signal::CONT),
        }
        write(1 + dice.roll(5));
    }
    updates.confirmed(LIMIT).await;
    let [killed, ended, frozen] = slowest;
    println!(
        "{written} messages; until all were taken after a kill {killed:?}, an ended connection {ended:?}, a freeze {frozen:?}"
    );
    for (session, rest) in [("tg-77-0", 0), ("tg--100-0", 1)] {
        let expected: Vec<String> = (1..=written)
            .filter(|i| i % 2 == rest)
            .map(|i| i.to_string())
            .collect();
        assert_eq!(chat.contents(session).await, expected, "SEED={seed}");
    }
    assert!(killed < WITHIN && ended < WITHIN && frozen < WITHIN);
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[cfg(feature = "crash-points")]
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_between_the_append_and_the_commit_leaves_neither_or_both() {
    for point in CrashPoint::SOURCES {
        let chat = Chat::new().await;
        let updates = &chat.telegram.updates;
        for i in 1..=4 {
            updates.text(77, &i.to_string());
        }
        let crash = format!("{}:2", point.name());
        let mut dying = chat.worker_with(&[("CRASH_POINT", &crash)]).await;
        wait_until(LIMIT, "it dies", async || dying.has_ended()).await;
        let there = chat.contents("tg-77-0").await.len();
        let next = "SELECT next_update - 1 FROM lanekeeper.source_poll";
        assert_eq!(
            chat.plant.count(next).await,
            i64::try_from(there).unwrap(),
            "the offset is moved with the message: {point:?}"
        );
        assert_eq!(updates.kept(), 4, "nothing was confirmed");
        let worker = chat.worker().await;
        updates.confirmed(LIMIT).await;
        assert_eq!(
            chat.contents("tg-77-0").await,
            ["1", "2", "3", "4"],
            "{point:?}"
        );
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_lets_its_source_go_at_once() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    let first = chat.worker().await;
    wait_until(LIMIT, "it asks", async || updates.asked() > 0).await;
    let second = chat.worker().await;
    let since = Instant::now();
    assert!(first.stop().await.success());
    updates.text(77, "to the second");
    updates.confirmed(LIMIT).await;
    assert!(since.elapsed() < WITHIN, "{:?}", since.elapsed());
    assert!(!second.logged("gives no sign of life"));
    assert!(second.stop().await.success());
}
