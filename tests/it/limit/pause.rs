//! G3: a destination that asks for a pause gets it from every process.

use std::time::Duration;

use super::ground::{Ground, LIMIT, assert_never_faster};
use crate::support::Instead;

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
