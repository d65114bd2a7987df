//! What workers report about subscriptions, and how commands show it: `status`, `doctor`, `subscription list`, `breaker
//! list` and `apply`, without Redis and without the workers' logs.

use std::time::Duration;

use serde_json::Value;

use super::plant::{LIMIT, Plant};
use crate::command::run;
use crate::support::wait_until;

/// The JSON lines of a command, whatever its exit code.
async fn lines(plant: &Plant, command: &[&str]) -> Vec<Value> {
    let command = [command, &["--output", "json"]].concat();
    let ran = run(&command, &[("DATABASE_URL", &plant.url)], "").await;
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}\n{}", ran.stderr)))
        .collect()
}

/// What `status` says of the subscription `out`.
async fn delivery(plant: &Plant) -> Value {
    let status = lines(plant, &["status"]).await;
    let out = status.iter().find(|line| line["subscription"] == "out");
    out.unwrap()["delivery"].clone()
}

async fn until_state(plant: &Plant, state: &str) {
    wait_until(LIMIT, state, async || {
        delivery(plant).await["state"] == state
    })
    .await;
}

/// The doctor's checks of a name: status and finding.
async fn checks(plant: &Plant, name: &str) -> Vec<(String, String)> {
    let checks = lines(plant, &["doctor"]).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    checks
        .iter()
        .filter(|check| check["check"] == name)
        .map(|check| (text(&check["status"]), text(&check["found"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_refuses_is_said_by_apply_at_once_and_by_status_doctor_and_list() {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant
        .worker(&[("LANEKEEPER_WORKER__ALLOW_PRIVATE_TARGETS", "false")])
        .await;
    until_state(&plant, "refused").await;
    let told = delivery(&plant).await;
    assert!(
        told["reason"]
            .as_str()
            .unwrap()
            .contains("127.0.0.1 is not a public address"),
        "{told}"
    );
    assert_eq!(
        (&told["workers"]["refused"], &told["workers"]["delivering"]),
        (&1.into(), &0.into())
    );
    assert_eq!(told["reports"][0]["state"], "refused");
    let text = run(&["status"], &[("DATABASE_URL", &plant.url)], "").await;
    assert!(
        text.stdout
            .contains("out: refused by the worker: the webhook adapter"),
        "{}",
        text.stdout
    );
    let listed = lines(&plant, &["subscription", "list"]).await;
    let out = listed
        .iter()
        .find(|it| it["subscription"] == "out")
        .unwrap();
    assert_eq!(out["delivery"]["state"], "refused");
    let doctor = checks(&plant, "delivery").await;
    assert!(
        doctor
            .iter()
            .any(|(status, found)| status == "fail" && found.contains("not a public address")),
        "{doctor:?}"
    );

    // Another one is refused as soon as it is applied; one that can be delivered causes no word.
    let file = "[subscription.inner]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"http://10.0.0.1/hooks\"\n\
                [subscription.secretive]\nstream = \"runs\"\nadapter = \"webhook\"\nurl = \"https://example.com/\"\n\
                secret_env = \"NOBODY_HAS_THIS\"\n\
                [subscription.open]\nstream = \"runs\"\nadapter = \"stdout\"\n";
    let url = [("DATABASE_URL", plant.url.as_str())];
    let applied = run(&["apply", "-f", "-"], &url, file).await;
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    for told in [
        "warning: inner: refused by the worker",
        "warning: secretive: refused by the worker",
        "NOBODY_HAS_THIS",
    ] {
        assert!(applied.stderr.contains(told), "{}", applied.stderr);
    }
    for silent in ["open:", "not said yet"] {
        assert!(!applied.stderr.contains(silent), "{}", applied.stderr);
    }
    // Nothing was changed by it, and still it is refused.
    let again = run(&["apply", "-f", "-"], &url, file).await;
    assert!(again.stderr.contains("warning: inner"), "{}", again.stderr);
    assert!(worker.stop().await.success());
    let left = "SELECT count(*) FROM lanekeeper.subscription_report";
    assert_eq!(
        plant.count(left).await,
        0,
        "a worker that ends takes its reports with it"
    );
    assert_eq!(delivery(&plant).await["state"], "no_worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_judged_by_the_workers_and_not_by_the_shell_of_doctor() {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    until_state(&plant, "delivering").await;
    // This process has neither the secret nor leave to reach the receiver. The agent registry is reported a moment later.
    wait_until(LIMIT, "all are delivered", async || {
        let found = checks(&plant, "delivery").await;
        found.iter().all(|(status, _)| status == "ok")
    })
    .await;
    assert_eq!(checks(&plant, "subscription").await, []);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_circuit_is_shown_with_its_reason_without_redis_and_closes_again() {
    let plant = Plant::new(Duration::ZERO).await;
    plant.receiver.set_broken(true);
    let worker = plant
        .worker(&[("LANEKEEPER_WORKER__BREAKER_OPEN_MS", "1000")])
        .await;
    plant.enqueue("session-", 8, 1).await;
    until_state(&plant, "circuit_open").await;
    let told = delivery(&plant).await;
    assert!(
        told["since"].is_string() && told["reason"].as_str().unwrap().contains("answered 500"),
        "{told}"
    );
    let listed = lines(&plant, &["breaker", "list"]).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(
        (&listed[0]["state"], &listed[0]["subscriptions"][0]),
        (&"open".into(), &"out".into())
    );
    assert!(
        listed[0]["open_s"].is_number() && listed[0]["reason"].is_string(),
        "{listed:?}"
    );
    let text = run(&["status"], &[("DATABASE_URL", &plant.url)], "")
        .await
        .stdout;
    assert!(
        text.contains("circuit open for") && text.contains("out: circuit open at the worker"),
        "{text}"
    );
    let doctor = checks(&plant, "delivery").await;
    assert!(
        doctor
            .iter()
            .any(|(status, found)| status == "warn" && found.contains("circuit open")),
        "{doctor:?}"
    );
    plant.receiver.set_broken(false);
    until_state(&plant, "delivering").await;
    assert_eq!(lines(&plant, &["breaker", "list"]).await.len(), 0);
    plant.settled().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_session_that_fails_is_named_by_doctor() {
    let plant = Plant::new(Duration::ZERO).await;
    assert_eq!(checks(&plant, "failing lanes").await[0].0, "ok");
    plant.receiver.set_broken(true);
    let worker = plant.worker(&[]).await;
    plant.enqueue("alone-", 1, 1).await;
    wait_until(LIMIT, "its failure is named", async || {
        checks(&plant, "failing lanes")
            .await
            .iter()
            .any(|(status, found)| {
                status == "warn"
                    && found.starts_with("out: 1 fail")
                    && found.contains("answered 500")
            })
    })
    .await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_and_heartbeats_write_no_report_and_a_lost_one_comes_back() {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant
        .worker(&[
            ("LANEKEEPER_WORKER__HEARTBEAT_MS", "300"),
            ("LANEKEEPER_WORKER__REGISTRY", "false"),
        ])
        .await;
    until_state(&plant, "delivering").await;
    let row = async || -> Option<String> {
        let read = "SELECT string_agg(r.ctid::text || r.xmin::text, ' ') FROM lanekeeper.subscription_report AS r";
        plant.client.query_one(read, &[]).await.unwrap().get(0)
    };
    let before = row().await;
    assert!(before.is_some());
    let beats = "SELECT version FROM lanekeeper.worker";
    let from = plant.count(beats).await;
    plant.enqueue("session-", 20, 10).await;
    plant.settled().await;
    wait_until(LIMIT, "three heartbeats came", async || {
        plant.count(beats).await > from + 3
    })
    .await;
    assert_eq!(row().await, before);
    // As a peer leaves it that took this worker for dead.
    plant
        .client
        .batch_execute("DELETE FROM lanekeeper.subscription_report")
        .await
        .unwrap();
    wait_until(LIMIT, "it is there again", async || row().await.is_some()).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reports_of_a_worker_that_died_do_not_count_and_go_with_its_row() {
    let plant = Plant::new(Duration::ZERO).await;
    plant
        .client
        .batch_execute(
            "INSERT INTO lanekeeper.worker (worker_id, version, started_at, host, pid, release, state)
             VALUES (7, 1, now(), 'node-a', 42, '0', 'running');
             INSERT INTO lanekeeper.subscription_report (worker_id, subscription_id, version, state)
             SELECT 7, s.subscription_id, s.version, 'delivering' FROM lanekeeper.subscription AS s",
        )
        .await
        .unwrap();
    assert_eq!(delivery(&plant).await["state"], "delivering");
    let older = "UPDATE lanekeeper.subscription_report SET version = 0";
    plant.client.batch_execute(older).await.unwrap();
    assert_eq!(delivery(&plant).await["state"], "unreported");
    let silent = "UPDATE lanekeeper.worker SET beat_at = now() - interval '1 hour'";
    plant.client.batch_execute(silent).await.unwrap();
    assert_eq!(delivery(&plant).await["state"], "no_worker");
    let survivor = "SELECT count(*) FROM lanekeeper.take_over(8, 30000)";
    plant.count(survivor).await;
    let left = "SELECT (SELECT count(*) FROM lanekeeper.subscription_report) + (SELECT count(*) FROM lanekeeper.worker)";
    assert_eq!(plant.count(left).await, 0);
}
