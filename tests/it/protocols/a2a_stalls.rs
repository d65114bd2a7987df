//! A2A 1.0: an agent behind a queue while Postgres does not answer: nobody is told what is not so, and strangers cost nothing.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::a2a_house::{House, PATH, message, state};
use crate::api::site::Answer;
use crate::process::plant::LIMIT;
use crate::support::{connect, wait_until};

/// Longer than a request waits for a connection of its pool, which has fewer than there are followers.
const STALL: Duration = Duration::from_millis(3_500);
const FOLLOWERS: usize = 12;
/// How a task is cannot be asked while this is locked; messages are appended.
const LOCK_TASKS: &str = "LOCK TABLE lanekeeper.outcome IN ACCESS EXCLUSIVE MODE";
const LOCK_AGENTS: &str = "LOCK TABLE lanekeeper.stream IN ACCESS EXCLUSIVE MODE";

#[tokio::test(flavor = "multi_thread")]
async fn followers_of_a_task_outlast_a_stall_of_postgres_and_see_its_end() {
    let house = House::open().await;
    let token = house.sender("app", &[]).await;
    let sender = house.site.worker.sender;
    house.site.plant.receiver.hold(sender);
    house.send(&token, "m1", "c").await;
    wait_until(LIMIT, "it is being sent", async || {
        state(&house.task(&token, "task-m1").await.unwrap()) == "WORKING"
    })
    .await;
    let body = json!({"jsonrpc": "2.0", "id": "f", "method": "SubscribeToTask", "params": {"id": "task-m1"}});
    let follow = || {
        let request = house.site.request(Method::POST, PATH).bearer_auth(&token);
        let request = request.header("A2A-Version", "1.0").body(body.to_string());
        async { request.send().await.unwrap() }
    };
    let answers = join_all((0..FOLLOWERS).map(|_| follow())).await;
    let mut operator = connect(&house.site.plant.url).await;
    let stall = operator.transaction().await.unwrap();
    stall.batch_execute(LOCK_TASKS).await.unwrap();
    sleep(STALL).await;
    stall.rollback().await.unwrap();
    house.site.plant.receiver.release(sender);
    for answer in answers {
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let text = timeout(LIMIT, answer.text()).await.unwrap().unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let last: Value = serde_json::from_str(lines.next_back().unwrap()).unwrap();
        let update = &last["result"]["statusUpdate"];
        assert!(update.is_object(), "it ended before its task: {text}");
        assert_eq!(state(update), "COMPLETED", "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_was_appended_is_never_answered_with_nothing_was_done() {
    let house = House::open().await;
    let token = house.sender("app", &[]).await;
    let mut operator = connect(&house.site.plant.url).await;
    let stall = operator.transaction().await.unwrap();
    stall.batch_execute(LOCK_TASKS).await.unwrap();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("m1", "c", true)});
    let answer = house.post(&token, "1.0", call.to_string()).await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    let said = answer.body.to_string();
    assert!(said.contains("outcome_unknown"), "{said}");
    assert!(!said.contains("nothing was done"), "{said}");
    stall.rollback().await.unwrap();
    let events = "SELECT count(*) FROM lanekeeper.event";
    assert_eq!(house.count(events).await, 1);
    // The hint of the answer: it does nothing twice.
    let task = house.send(&token, "m1", "c").await;
    assert_eq!(task["id"], "task-m1");
    assert_eq!(house.count(events).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_who_ask_for_cards_share_one_statement_and_wait_for_one_attempt() {
    let house = House::open().await;
    let card = |name: String| {
        let path = format!("/v1/agents/{name}/a2a/.well-known/agent-card.json");
        let request = house.site.request(Method::GET, &path);
        async { Answer::of(request.send().await.unwrap()).await.status }
    };
    let known = card("inbox".to_owned()).await;
    assert_eq!((known, card("nobody".to_owned()).await), (200, 404));
    // Until what was read is not believed any more.
    sleep(Duration::from_millis(2_100)).await;
    let mut operator = connect(&house.site.plant.url).await;
    let stall = operator.transaction().await.unwrap();
    stall.batch_execute(LOCK_AGENTS).await.unwrap();
    let began = Instant::now();
    let asking = join_all((0..20).map(|i| card(format!("stranger-{i}"))));
    let watching = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE wait_event_type = 'Lock' AND query LIKE '%streams that are agents%'";
        let mut most = 0;
        while began.elapsed() < STALL {
            most = most.max(house.count(waiting).await);
            sleep(Duration::from_millis(50)).await;
        }
        most
    };
    let (statuses, most) = tokio::join!(asking, watching);
    assert_eq!(statuses, [503; 20]);
    assert_eq!(most, 1, "statements at a time");
    assert!(began.elapsed() < Duration::from_secs(10));
    stall.rollback().await.unwrap();
    sleep(Duration::from_millis(2_100)).await;
    assert_eq!(card("inbox".to_owned()).await, 200);
}
