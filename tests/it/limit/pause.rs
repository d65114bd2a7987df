//! G3: if a destination asks for a pause, every process keeps it.

use std::time::Duration;

use super::ground::{Ground, LIMIT, assert_never_faster};
use crate::support::{Arrival, Instead, WorkerProcess, wait_until};

/// What was decided before the pause was known, and the clocks of a loaded machine.
const UNDER_WAY: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread")]
async fn a_429_pauses_every_process_and_burns_no_attempt() {
    let ground = Ground::new("limit = { rate = \"50/s\" }").await;
    let workers = ground.workers(3).await;
    ground.enqueue(60, 5).await;
    ground.accepted(30).await;
    ground.receiver.answer_once(Instead::Pause { seconds: 3 });
    ground
        .receiver
        .wait_until(LIMIT, "one is told to wait", |seen| {
            !seen.turned_away.is_empty()
        })
        .await;
    ground.accepted(300).await;
    let seen = ground.receiver.seen();
    let told = seen.turned_away[0].at;
    let pause = Duration::from_secs(3);
    let after = |since| {
        seen.arrivals
            .iter()
            .filter(move |one| one.at > told + since)
    };
    let during: Vec<_> = after(Duration::ZERO)
        .filter(|one| one.at < told + pause)
        .collect();
    println!(
        "{} more came, the last {:?} after the 429",
        during.len(),
        during.last().map(|one| one.at - told)
    );
    assert!(
        after(UNDER_WAY).all(|one| one.at - told >= pause - Duration::from_millis(50)),
        "nothing comes in the pause"
    );
    assert_never_faster(&seen.arrivals, 50.0, 1);
    ground.assert_exact(60, 5);
    Ground::stop(workers).await;
}

/// Whoever hears it dies: the row of the lane knows, and Redis does for all others under the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_outlives_the_worker_that_heard_it() {
    for settings in ["", "limit = { rate = \"50/s\" }"] {
        let ground = Ground::new(settings).await;
        let mut workers = ground.workers(2).await;
        let seconds = 3;
        ground.receiver.answer_once(Instead::Pause { seconds });
        ground.enqueue(1, 2).await;
        let told = "SELECT count(*) FROM lanekeeper.progress WHERE retry_at IS NOT NULL";
        wait_until(LIMIT, "the pause is on record", async || {
            let row = ground.client.query_one(told, &[]).await.unwrap();
            row.get::<_, i64>(0) == 1
        })
        .await;
        let heard = ground.receiver.seen().turned_away[0].clone();
        let hearer = workers
            .iter()
            .position(|worker| worker.sender == heard.sender);
        workers.swap_remove(hearer.unwrap()).kill().await;
        // Others of the same limit wait as well.
        ground.enqueue(4, 2).await;
        ground.accepted(10).await;
        let seen = ground.receiver.seen();
        let pause = Duration::from_secs(seconds) - Duration::from_millis(50);
        let waits = |one: &&Arrival| one.session == heard.session || !settings.is_empty();
        let early = seen
            .arrivals
            .iter()
            .filter(waits)
            .find(|one| one.at - heard.at < pause);
        assert!(early.is_none(), "{settings}: {early:?} after {heard:?}");
        assert!(seen.turned_away.len() == 1 && seen.arrivals.iter().all(|one| one.attempt == 1));
        Ground::stop(workers).await;
    }
}

/// Without Redis the pause is written: the successor of whoever heard it keeps it, and so does a worker that ran already.
#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_pause_outlives_the_worker_that_heard_it() {
    for running in [false, true] {
        let ground = Ground::new("limit = { rate = \"50/s\" }").await;
        let mut workers = ground.workers_with(1 + usize::from(running), &[]).await;
        let seconds = 12;
        ground.receiver.answer_once(Instead::Pause { seconds });
        ground.enqueue(1, 2).await;
        let kept = "SELECT count(*) FROM lanekeeper.limit_pause";
        wait_until(LIMIT, "the pause is kept", async || {
            let row = ground.client.query_one(kept, &[]).await.unwrap();
            row.get::<_, i64>(0) == 1
        })
        .await;
        let heard = ground.receiver.seen().turned_away[0].clone();
        let hearer = workers
            .iter()
            .position(|worker| worker.sender == heard.sender);
        workers.swap_remove(hearer.unwrap()).kill().await;
        if running {
            // It reads what is kept with every tick.
            tokio::time::sleep(UNDER_WAY * 2).await;
        } else {
            let heartbeat = [("LANEKEEPER_WORKER__HEARTBEAT_MS", "300")];
            workers.push(WorkerProcess::start(&ground.url, &ground.receiver, &heartbeat).await);
        }
        ground.enqueue(4, 2).await;
        ground.accepted(10).await;
        let seen = ground.receiver.seen();
        let pause = Duration::from_secs(seconds) - Duration::from_millis(50);
        let early = seen.arrivals.iter().find(|one| one.at - heard.at < pause);
        assert!(early.is_none(), "{early:?} after {heard:?}");
        assert!(seen.turned_away.len() == 1 && seen.arrivals.iter().all(|one| one.attempt == 1));
        Ground::stop(workers).await;
    }
}
