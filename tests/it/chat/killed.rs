//! A worker dies between two versions of a message: its successor edits the same message.

use serde_json::json;

use super::ground::{Ground, LIMIT};
use crate::support::platform::{Fault, Kind};

#[tokio::test(flavor = "multi_thread")]
async fn the_successor_of_a_killed_worker_edits_the_message_that_it_sent() {
    let ground = Ground::new(&[], "").await;
    let mut workers = ground.workers(1).await;
    let say = async |text: &str| {
        let last = text == "done";
        let payload = json!({"chat": 42, "text": text, "message_key": "m", "final": last});
        ground.say("s1", &payload).await;
    };
    let shows = async |text: &str| {
        ground
            .telegram
            .wait_until(LIMIT, text, |seen| seen.texts() == [text])
            .await;
    };
    say("one").await;
    shows("one").await;
    say("two").await;
    shows("two").await;
    ground.telegram.fault_once(Fault::Silent);
    say("three").await;
    ground
        .telegram
        .wait_until(LIMIT, "an edit is under way", |seen| seen.hanging == 1)
        .await;
    workers.remove(0).kill().await;
    say("four").await;
    let successors = ground.workers(1).await;
    shows("four").await;
    say("done").await;
    shows("done").await;
    ground.drained().await;
    let seen = ground.telegram.seen();
    assert_eq!(seen.messages.len(), 1);
    assert_eq!(seen.count(Kind::Send), 1);
    let remembered = "SELECT count(*) FROM lanekeeper.sent_message";
    assert_eq!(
        ground.count(remembered).await,
        1,
        "one row, and none per edit"
    );
    Ground::stop(successors).await;
}
