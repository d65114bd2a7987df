//! The secrets with which deliveries are signed and bots are identified.

use std::time::Duration;

use serde_json::json;

use super::mounted::Mounted;
use crate::command::run;
use crate::process::plant::{LIMIT, Plant};
use crate::support::platform::{TOKEN, Telegram};
use crate::support::{WorkerProcess, wait_until};

const KEPT: &str = "cannot be used: what it held before stays in use";

fn times(worker: &WorkerProcess, text: &str) -> usize {
    worker.log().matches(text).count()
}

/// Sends event after event until the worker has said this so often.
async fn deliver_until(plant: &Plant, worker: &WorkerProcess, text: &str, often: usize) {
    wait_until(LIMIT, text, async || {
        let before = plant.receiver.accepted();
        plant.enqueue("s", 1, 1).await;
        plant
            .receiver
            .wait_until(LIMIT, "it is delivered", |seen| {
                seen.arrivals.len() > before
            })
            .await;
        times(worker, text) >= often
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_secret_signs_from_the_next_look_on_and_one_that_cannot_be_used_never_does() {
    let plant = Plant::new(Duration::ZERO).await;
    let subscription = format!(
        "[subscription.out]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"{}\"\nsecret_env = \"ROTATED\"\n",
        plant.receiver.url()
    );
    let url = [("DATABASE_URL", plant.url.as_str())];
    let ran = run(&["apply", "-f", "-"], &url, &subscription).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let secrets = [(); 3].map(|()| plant.receiver.new_secret());
    let [(first, old), (second, new), (third, last)] = &secrets;
    let mut mounted = Mounted::new(&format!("{old}\n"));
    let path = mounted.path();
    let variables = [("ROTATED_FILE", path.as_str())];
    let worker = WorkerProcess::spawn(&plant.url, 0, "", &variables);
    worker.serves().await;
    let newest = || plant.receiver.seen().arrivals.last().unwrap().sender;
    plant.enqueue("s", 1, 1).await;
    plant.settled().await;
    assert_eq!(newest(), *first);

    // Nothing is delivered while it is replaced: the next one goes out with the new secret.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    mounted.replace(new);
    plant.enqueue("s", 1, 1).await;
    plant.settled().await;
    assert_eq!(newest(), *second);

    mounted.replace("\n");
    deliver_until(&plant, &worker, KEPT, 1).await;
    mounted.remove();
    deliver_until(&plant, &worker, KEPT, 2).await;
    mounted.replace("hunter2");
    deliver_until(&plant, &worker, KEPT, 3).await;
    assert_eq!(newest(), *second);
    mounted.replace(last);
    deliver_until(&plant, &worker, "is used from now on", 2).await;
    plant.enqueue("s", 1, 1).await;
    plant.settled().await;
    assert_eq!(newest(), *third);
    assert_eq!(plant.receiver.seen().refused, [""; 0]);
    assert_eq!(times(&worker, KEPT), 3, "once for each reason");
    for secret in [old, new, last, "hunter2"] {
        assert!(!worker.log().contains(secret));
    }
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bots_replaced_token_is_used_by_the_next_attempt() {
    let plant = Plant::new(Duration::ZERO).await;
    let telegram = Telegram::start(&[]).await;
    let subscription = format!(
        "[subscription.bot]\nstream = \"runs\"\nadapter = \"telegram\"\ntoken_env = \"BOT_TOKEN\"\n\
         api_url = \"{}\"\nchat = \"7\"\n",
        telegram.url()
    );
    let url = [("DATABASE_URL", plant.url.as_str())];
    let ran = run(&["apply", "--prune", "-f", "-"], &url, &subscription).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut mounted = Mounted::new("12:revoked");
    let path = mounted.path();
    let variables = [("BOT_TOKEN_FILE", path.as_str())];
    let worker = WorkerProcess::spawn(&plant.url, 0, "", &variables);
    worker.serves().await;
    let say = async |session: &str, text: &str| {
        let sql = "SELECT lanekeeper.enqueue('runs', $1, 'output', $2)";
        let payload = json!({ "text": text });
        plant
            .client
            .execute(sql, &[&session, &payload])
            .await
            .unwrap();
    };
    say("s", "before").await;
    let refused = "SELECT count(*) FROM lanekeeper.lane_status WHERE last_error LIKE '%401%'";
    wait_until(LIMIT, "it is refused", async || {
        plant.count(refused).await == 1
    })
    .await;
    mounted.replace(TOKEN);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    say("t", "after").await;
    telegram
        .wait_until(LIMIT, "it arrives", |seen| seen.texts() == ["after"])
        .await;
    let retried = run(
        &["lane", "retry", "1", "--reason", "the token is renewed"],
        &url,
        "",
    )
    .await;
    assert_eq!(retried.code, Some(0), "{}", retried.stderr);
    plant.settled().await;
    assert_eq!(telegram.seen().texts(), ["after", "before"]);
    for token in ["12:revoked", TOKEN] {
        assert!(!worker.log().contains(token));
    }
    assert!(worker.stop().await.success());
}
