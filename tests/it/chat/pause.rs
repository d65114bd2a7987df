//! If a chat asks for a pause, every worker keeps it, and other chats are not affected.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::ground::{Ground, LIMIT};
use crate::support::platform::{Call, Fault};

const PAUSE: Duration = Duration::from_secs(12);
/// What was decided before the pause was known, on a loaded machine.
const UNDER_WAY: Duration = Duration::from_millis(700);
const SESSIONS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_429_of_one_chat_holds_up_that_chat_and_no_other() {
    let ground = Ground::new(&[], "rates = { chat = \"5/s\", group = \"300/min\" }").await;
    let workers = ground.workers(2).await;
    ground
        .telegram
        .fault_in("-1", Some(Fault::Pause { seconds: 12 }));
    for session in 0..SESSIONS {
        for chat in ["-1", "-2"] {
            let payload = json!({"chat": chat, "text": format!("{session}")});
            ground.say(&format!("{chat} {session}"), &payload).await;
        }
    }
    let refused = |call: &Call| call.chat == "-1" && call.refused;
    ground
        .telegram
        .wait_until(LIMIT, "one chat wants a pause", |seen| {
            seen.calls.iter().any(refused)
        })
        .await;
    ground.telegram.fault_in("-1", None);
    let told: Instant = {
        let seen = ground.telegram.seen();
        seen.calls.iter().find(|call| refused(call)).unwrap().at
    };
    ground
        .telegram
        .wait_until(PAUSE, "the other chat goes on", |seen| {
            seen.chat("-2").len() == SESSIONS
        })
        .await;
    let other = told.elapsed();
    ground
        .telegram
        .wait_until(LIMIT, "the chat goes on after its pause", |seen| {
            seen.chat("-1").len() == SESSIONS
        })
        .await;
    ground.drained().await;
    println!("the other chat had all after {other:.1?}");
    assert!(other < PAUSE, "{other:?}");
    let seen = ground.telegram.seen();
    let in_pause = seen.calls.iter().filter(|call| {
        call.chat == "-1"
            && call.at > told + UNDER_WAY
            && call.at < told + PAUSE - Duration::from_millis(50)
    });
    assert_eq!(in_pause.count(), 0, "nothing comes in the pause");
    let burnt = "SELECT count(*) FROM lanekeeper.outcome";
    assert_eq!(ground.count(burnt).await, 0);
    Ground::stop(workers).await;
}
