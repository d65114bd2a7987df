//! C10: events about destinations, subscriptions and workers are appended to the stream `lifecycle`, for its
//! subscribers.

use std::time::Duration;

use super::plant::{LIMIT, Plant};
use crate::command::run;
use crate::support::{SECRET_ENV, wait_until};

/// The feed's events, as session and type, with what they say.
async fn told(plant: &Plant) -> Vec<(String, String, serde_json::Value)> {
    let query = "SELECT s.name, e.event_type, e.payload::jsonb FROM lanekeeper.event AS e
                 JOIN lanekeeper.session AS s USING (session_id) JOIN lanekeeper.stream AS t USING (stream_id)
                 WHERE t.name = 'lifecycle' ORDER BY e.created_at";
    let rows = plant.client.query(query, &[]).await.unwrap();
    let told = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2)));
    told.collect()
}

async fn is_told(plant: &Plant, event_type: &str) -> (String, serde_json::Value) {
    wait_until(LIMIT, event_type, async || {
        told(plant)
            .await
            .iter()
            .any(|(_, found, _)| found == event_type)
    })
    .await;
    let all = told(plant).await;
    let found = all.into_iter().find(|(_, found, _)| found == event_type);
    let (session, _, payload) = found.unwrap();
    (session, payload)
}

const QUICK: [(&str, &str); 2] = [
    ("LANEKEEPER_WORKER__BREAKER_OPEN_MS", "1000"),
    ("LANEKEEPER_WORKER__BREAKER_LANES", "3"),
];

#[tokio::test(flavor = "multi_thread")]
async fn circuits_pauses_and_takeovers_are_published_to_subscribers_of_the_lifecycle_stream() {
    let plant = Plant::new(Duration::from_millis(5)).await;
    let file = format!(
        "[subscription.out]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"{0}\"\n\
         secret_env = \"{SECRET_ENV}\"\nconcurrency = 50\nretry = {{ schedule = [\"200ms\"] }}\n\
         [subscription.feed]\nstream = \"lifecycle\"\nadapter = \"exec\"\ncommand = [\"true\"]\n",
        plant.receiver.url()
    );
    let url = [("DATABASE_URL", plant.url.as_str())];
    let ran = run(&["apply", "-f", "-"], &url, &file).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let worker = plant.worker(&QUICK).await;
    plant.receiver.set_broken(true);
    plant.enqueue("s", 5, 1).await;
    let (session, opened) = is_told(&plant, "circuit_opened").await;
    assert!(session.starts_with("destination webhook "), "{session}");
    assert_eq!(opened["subscription"], "out");
    assert!(opened["worker_id"].is_i64(), "{opened}");
    plant.receiver.set_broken(false);
    let (closed_session, _) = is_told(&plant, "circuit_closed").await;
    assert_eq!(closed_session, session);
    plant.settled().await;

    let survivor = plant.worker(&QUICK).await;
    plant.enqueue("more", 200, 20).await;
    wait_until(LIMIT, "the first one is busy", async || {
        !plant.held_by(&worker).await.is_empty()
    })
    .await;
    worker.kill().await;
    let (_, lost) = is_told(&plant, "taken_over").await;
    assert!(lost["lanes"].as_i64().unwrap() > 0, "{lost}");
    plant.settled().await;
    assert_eq!(
        told(&plant)
            .await
            .iter()
            .filter(|one| one.1 == "circuit_opened")
            .count(),
        1
    );
    assert!(survivor.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_while_the_feed_is_paused_is_delivered_when_it_goes_on() {
    let plant = Plant::new(Duration::ZERO).await;
    let folder = tempfile::tempdir().unwrap();
    let heard = folder.path().join("heard");
    let file = format!(
        "[subscription.feed]\nstream = \"lifecycle\"\nadapter = \"exec\"\n\
         command = [\"sh\", \"-c\", 'cat >> \"$0\"; echo >> \"$0\"', \"{}\"]\n",
        heard.display()
    );
    let url = [("DATABASE_URL", plant.url.as_str())];
    let ask = async |arguments: &[&str], input: &str| {
        let ran = run(arguments, &url, input).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    };
    ask(&["apply", "-f", "-"], &file).await;
    ask(&["subscription", "pause", "feed", "--reason", "test"], "").await;
    let worker = plant.worker(&QUICK).await;
    plant.receiver.set_broken(true);
    plant.enqueue("s", 5, 1).await;
    is_told(&plant, "circuit_opened").await;
    plant.receiver.set_broken(false);
    is_told(&plant, "circuit_closed").await;
    assert!(!heard.exists(), "it is paused");
    ask(&["subscription", "resume", "feed"], "").await;
    wait_until(LIMIT, "both are delivered", async || {
        let heard = std::fs::read_to_string(&heard).unwrap_or_default();
        heard.contains("circuit_opened") && heard.contains("circuit_closed")
    })
    .await;
    plant.settled().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_where_nobody_subscribes() {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant.worker(&QUICK).await;
    plant.receiver.set_broken(true);
    plant.enqueue("s", 5, 1).await;
    wait_until(LIMIT, "the circuit opens", async || {
        worker.logged("circuit opened")
    })
    .await;
    plant.receiver.set_broken(false);
    plant.settled().await;
    assert_eq!(told(&plant).await, []);
    assert!(worker.stop().await.success());
}
