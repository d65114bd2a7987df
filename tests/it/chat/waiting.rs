//! Operators reach lanes at once that wait long in a chat's queue.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::ground::{Ground, LIMIT};
use crate::command::{Ran, run};
use crate::support::{WorkerProcess, wait_until};

/// Between two turns of the chat.
const INTERVAL: Duration = Duration::from_secs(6);
/// What is at once, on a loaded machine; well before the next turn.
const SOON: Duration = Duration::from_secs(3);

/// One session has spoken, and two wait for their turns.
struct Line {
    ground: Ground,
    workers: Vec<WorkerProcess>,
    spoke_at: Instant,
}

impl Line {
    async fn new() -> Self {
        let ground = Ground::new(&[], "rates = { chat = \"1/6s\" }").await;
        let workers = ground.workers(1).await;
        ground.say("s1", &json!({"chat": 42, "text": "s1"})).await;
        ground
            .telegram
            .wait_until(LIMIT, "one speaks", |seen| seen.messages.len() == 1)
            .await;
        let spoke_at = ground.telegram.seen().calls[0].at;
        for session in ["s2", "s3"] {
            let payload = json!({"chat": 42, "text": session});
            ground.say(session, &payload).await;
        }
        let line = Self {
            ground,
            workers,
            spoke_at,
        };
        wait_until(LIMIT, "two wait", async || line.held().await == 2).await;
        line
    }

    async fn held(&self) -> i64 {
        let sql = "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'held' AND behind > 0";
        self.ground.count(sql).await
    }

    /// Runs a command, which succeeds long before the next turn comes.
    async fn operate(&self, arguments: &[&str]) {
        let asked_at = Instant::now();
        let variables = [("DATABASE_URL", self.ground.url.as_str())];
        let Ran { code, stderr, .. } = run(arguments, &variables, "").await;
        assert_eq!(code, Some(0), "{stderr}");
        assert!(asked_at.elapsed() < SOON, "{:?}", asked_at.elapsed());
    }

    fn texts(&self) -> Vec<String> {
        let seen = self.ground.telegram.seen();
        let mut texts: Vec<String> = seen.texts().into_iter().map(str::to_owned).collect();
        texts.sort_unstable();
        texts
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_is_paused_lets_go_of_the_lanes_in_line_and_sends_nothing_more() {
    let line = Line::new().await;
    line.operate(&["subscription", "pause", "bot"]).await;
    wait_until(SOON, "both are let go", async || line.held().await == 0).await;
    let paused =
        "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'paused' AND behind > 0";
    assert_eq!(line.ground.count(paused).await, 2);
    // Both turns pass.
    sleep_until(line.spoke_at + 2 * INTERVAL + SOON).await;
    assert_eq!(line.texts(), ["s1"]);
    assert_eq!(line.ground.telegram.seen().calls.len(), 1);
    line.operate(&["subscription", "resume", "bot"]).await;
    line.ground.drained().await;
    assert_eq!(line.texts(), ["s1", "s2", "s3"]);
    Ground::stop(line.workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_parks_and_skips_lanes_in_line_at_once() {
    let line = Line::new().await;
    let of = |session: &'static str| ["--stream", "runs", "--session", session];
    line.operate(&[&["lane", "park"][..], &of("s2")].concat())
        .await;
    line.operate(&[&["lane", "skip", "--yes"][..], &of("s3")].concat())
        .await;
    let states = "SELECT count(*) FROM lanekeeper.lane_status
                  WHERE (session, state) IN (('s2', 'parked'), ('s3', 'idle'))";
    wait_until(SOON, "one is parked and the other done", async || {
        line.ground.count(states).await == 2
    })
    .await;
    // Who comes after them has their turn.
    line.ground
        .say("s4", &json!({"chat": 42, "text": "s4"}))
        .await;
    line.ground
        .telegram
        .wait_until(LIMIT, "another speaks", |seen| seen.messages.len() == 2)
        .await;
    assert_eq!(line.texts(), ["s1", "s4"]);
    line.operate(&[&["lane", "unpark"][..], &of("s2")].concat())
        .await;
    line.ground.drained().await;
    assert_eq!(line.texts(), ["s1", "s2", "s4"]);
    Ground::stop(line.workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_lanes_in_line_are_requeued_and_dropped_at_once() {
    let line = Line::new().await;
    // Without a text: refused before it draws on anything.
    line.ground.say("s0", &json!({"chat": 42})).await;
    let dead =
        "SELECT count(*) FROM lanekeeper.dead WHERE resolution IS NULL AND after_seq IS NULL";
    wait_until(LIMIT, "one is refused", async || {
        line.ground.count(dead).await == 1
    })
    .await;
    line.ground
        .say("s0", &json!({"chat": 42, "text": "s0"}))
        .await;
    wait_until(LIMIT, "three wait", async || line.held().await == 3).await;
    let id = line
        .ground
        .count("SELECT dead_id FROM lanekeeper.dead")
        .await;
    line.operate(&["dead", "requeue", &id.to_string(), "--yes"])
        .await;
    wait_until(LIMIT, "it is refused again", async || {
        line.ground.count(dead).await == 1 && line.held().await == 3
    })
    .await;
    line.operate(&["dead", "drop", &id.to_string(), "--yes"])
        .await;
    Ground::stop(line.workers).await;
}
