//! Progress output that is too large to be fetched with its batch is coalesced like short output.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, interval};

use super::ground::{Ground, LIMIT};
use crate::support::platform::Kind;

/// With five messages of text each, and far above what comes with a batch.
const CHARACTERS: usize = 20_000;
const VERSIONS: usize = 10;

/// A version that says so in its first message.
async fn say(ground: &Ground, key: &str, version: usize, is_final: bool) {
    let head = format!("{key}{version} ");
    let text = head.clone() + &"x".repeat(CHARACTERS - head.len());
    let payload = json!({"chat": 42, "text": text, "message_key": key, "final": is_final});
    ground.say("s1", &payload).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_large_versions_that_wait_only_the_newest_goes_out_and_a_final_always() {
    let ground = Ground::new(&[], "rates = { bot = \"100/s\", chat = \"100/s\" }").await;
    for version in 1..=VERSIONS {
        say(&ground, "a", version, false).await;
    }
    // Of another message, whose final is not the last word of its key.
    for version in 1..=VERSIONS {
        say(&ground, "b", version, version == 5).await;
    }
    let workers = ground.workers(1).await;
    ground.drained().await;
    let seen = ground.telegram.seen();
    let shown: Vec<Vec<&str>> = seen
        .messages
        .iter()
        .map(|message| {
            let versions = message.versions.iter();
            let heads = versions.filter_map(|(_, text)| text.split_once(' '));
            heads.map(|(head, _)| head).collect()
        })
        .filter(|heads: &Vec<&str>| !heads.is_empty())
        .collect();
    assert_eq!(shown, [vec!["a10"], vec!["b5", "b10"]]);
    assert_eq!(seen.count(Kind::Send), 10, "five messages each");
    let text: usize = seen.texts().iter().map(|text| text.len()).sum();
    assert!(text >= 2 * (CHARACTERS - 10), "{text}");
    let coalesced = "SELECT count(*) FROM lanekeeper.outcome WHERE kind = 'coalesced'";
    assert_eq!(ground.count(coalesced).await, 17);
    let others = "SELECT count(*) FROM lanekeeper.outcome WHERE kind <> 'coalesced'";
    assert_eq!(ground.count(others).await, 0);
    Ground::stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_version_that_is_refused_makes_no_other_needless() {
    let ground = Ground::new(&[], "").await;
    say(&ground, "a", 1, false).await;
    // More than fifty messages: nothing of it can be shown.
    let payload = json!({"chat": 42, "text": "y".repeat(205_000), "message_key": "a"});
    ground.say("s1", &payload).await;
    let workers = ground.workers(1).await;
    ground
        .telegram
        .wait_until(LIMIT, "the first is shown", |seen| seen.messages.len() == 5)
        .await;
    ground.drained().await;
    let kind = "SELECT count(*) FROM lanekeeper.outcome WHERE kind = 'dead_lettered' AND seq = 2";
    assert_eq!(ground.count(kind).await, 1);
    Ground::stop(workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_come_faster_than_their_messages_can_be_sent_are_shown_to_the_end() {
    let ground = Ground::new(&[], "rates = { chat = \"4/s\" }").await;
    let workers = ground.workers(1).await;
    // Each takes five turns, in which a dozen newer ones come.
    let mut ticks = interval(Duration::from_millis(100));
    let begun = Instant::now();
    let mut version = 0;
    while ground.telegram.seen().messages.len() < 5 {
        assert!(begun.elapsed() < LIMIT, "{} versions", version);
        ticks.tick().await;
        version += 1;
        say(&ground, "a", version, false).await;
    }
    say(&ground, "a", version + 1, true).await;
    ground.drained().await;
    let seen = ground.telegram.seen();
    let last = format!("a{} ", version + 1);
    assert!(seen.messages[0].text().starts_with(&last));
    assert_eq!(seen.count(Kind::Send), 5);
    Ground::stop(workers).await;
}
