//! D5: a replay survives the death of the worker that delivers it.

use std::time::Duration;

use lanekeeper_postgres::replay::{self, By, Pace, Range};

use super::plant::{LIMIT, Plant};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_goes_on_when_its_worker_is_killed_and_leaves_nothing_out() {
    const SESSIONS: i64 = 8;
    const EVENTS: i64 = 200;
    let plant = Plant::new(Duration::from_millis(2)).await;
    let victim = plant.worker(&[]).await;
    plant.enqueue("s", SESSIONS, EVENTS).await;
    plant.settled().await;
    let range = Range {
        subscription: "out".to_owned(),
        ..Range::default()
    };
    let pace = Pace {
        rate: None,
        concurrency: 8,
    };
    let id = replay::start(&plant.client, &range, &pace, By::default())
        .await
        .unwrap();
    plant
        .receiver
        .wait_until(LIMIT, "some were delivered again", |seen| {
            seen.arrivals.iter().filter(|one| one.replayed).count() > 100
        })
        .await;
    victim.kill().await;
    let before = replay::find(&plant.client, id).await.unwrap().unwrap();
    assert!(before.ended_at.is_none(), "it was killed too late");
    // Appended while nobody is there: it comes behind what is left of the replay.
    plant.enqueue("s", SESSIONS, 1).await;
    let survivor = plant.worker(&[]).await;
    wait_until(LIMIT, "the replay has ended", async || {
        let now = replay::find(&plant.client, id).await.unwrap().unwrap();
        now.ended_at.is_some()
    })
    .await;
    plant.settled().await;
    let done = replay::find(&plant.client, id).await.unwrap().unwrap();
    assert_eq!(done.state, "done");
    assert_eq!(done.progress.sessions_done, SESSIONS);
    assert_eq!(done.progress.delivered, SESSIONS * EVENTS);
    let seen = plant.receiver.seen();
    assert_eq!(seen.refused, [""; 0]);
    let mut repeats = 0;
    for session in 1..=SESSIONS {
        let name = format!("s{session}");
        let mut arrivals = seen.arrivals.iter().filter(|one| one.session == name);
        let again: Vec<i64> = arrivals
            .clone()
            .filter(|one| one.replayed)
            .map(|one| one.seq)
            .collect();
        // At least once: a stretch that was not on record comes again, and no event is passed over.
        let mut next = 1;
        for seq in &again {
            assert!(*seq <= next, "{name}: {seq} came before {next}");
            repeats += usize::from(*seq < next);
            next = seq + 1;
        }
        assert_eq!(next, EVENTS + 1, "{name}");
        let last = arrivals.next_back().unwrap();
        assert_eq!((last.seq, last.replayed), (EVENTS + 1, false), "{name}");
    }
    println!("{repeats} of {} were repeated", SESSIONS * EVENTS);
    assert!(survivor.stop().await.success());
}
