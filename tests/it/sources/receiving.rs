//! E2, E7: requests of platforms, which the tests sign themselves: there is no platform here.

use futures_util::future::join_all;
use lanekeeper_adapters::Signer;
use reqwest::Method;
use serde_json::{Value, json};

use super::FILE;
use super::fixture::{self, LIMIT, ago, apply, close, hmac_of, ignored, send};
use crate::api::site::{Answer, Site};
use crate::support::wait_until;

pub(super) const GH_SECRET: &str = "not-a-secret-of-anybody";
pub(super) const STD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub(super) async fn site(file: &str) -> Site {
    site_with(file, &[]).await
}

pub(super) async fn site_with(file: &str, variables: &[(&str, &str)]) -> Site {
    let secrets = [("GH_SECRET", GH_SECRET), ("STD_SECRET", STD_SECRET)];
    fixture::site(file, &[&secrets, variables].concat()).await
}

pub(super) fn hub(secret: &str, body: &str) -> String {
    format!("sha256={}", hmac_of(secret, body.as_bytes()))
}

/// As GitHub sends it, with this id of the delivery.
pub(super) async fn github(site: &Site, id: &str, body: &str) -> Answer {
    let signature = hub(GH_SECRET, body);
    let headers = [
        ("x-hub-signature-256", signature.as_str()),
        ("x-github-delivery", id),
    ];
    send(site, "gh", &headers, body).await
}

async fn standard(site: &Site, id: &str, age_s: i64, body: &str) -> Answer {
    let at = ago(age_s);
    let signature = Signer::parse(STD_SECRET)
        .unwrap()
        .sign(id, at, body.as_bytes());
    let at = at.to_string();
    let headers = [
        ("webhook-id", id),
        ("webhook-timestamp", at.as_str()),
        ("webhook-signature", signature.as_str()),
    ];
    send(site, "std", &headers, body).await
}

fn comment(text: &str) -> String {
    json!({"repository": "a/b", "comment": {"body": text}, "sender": 77, "issue": null}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_request_is_in_postgres_when_it_is_answered_and_once_however_often_it_comes() {
    let site = site(FILE).await;
    let first = github(&site, "one", &comment("and the tests")).await;
    assert_eq!(
        (first.status, site.logged_events().await),
        (201, 1),
        "{}",
        first.body
    );
    // The id of the delivery is not signed: whoever saw the request may change it.
    for id in ["one", "two"] {
        let again = github(&site, id, &comment("and the tests")).await;
        assert_eq!(
            (again.status, &again.body["duplicate"]),
            (200, &json!(true))
        );
        assert_eq!(again.body["message_id"], first.body["message_id"]);
    }
    let copies = (0..8).map(|_| standard(&site, "msg_1", 0, "plain \u{1b}[31mtext"));
    let answers = join_all(copies).await;
    let new = answers.iter().filter(|answer| answer.status == 201).count();
    let told: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(new, 1, "{told:?}");
    assert_eq!(site.logged_events().await, 2);
    // Another id is another message, and another source's ids are its own.
    assert_eq!(standard(&site, "msg_2", 0, "plain").await.status, 201);

    let client = crate::support::connect(&site.plant.url).await;
    let shown =
        "SELECT to_jsonb(m) FROM lanekeeper.inbound_message AS m ORDER BY m.session DESC, m.seq";
    let shown: Vec<Value> = client
        .query(shown, &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let (hub, plain) = (&shown[0], &shown[1]);
    assert_eq!(hub["session"], "gh-a/b");
    assert_eq!(
        (&hub["origin"], &hub["content"]),
        (&json!("gh"), &json!("and the tests"))
    );
    assert_eq!(
        (&hub["actor_id"], &hub["source_channel_id"]),
        (&json!("77"), &Value::Null)
    );
    assert_eq!(hub["payload"]["sender"], 77);
    assert_eq!(
        (&plain["session"], &plain["content"]),
        (&json!("all"), &json!("plain \u{1b}[31mtext"))
    );
    assert_eq!(
        (&plain["source_message_id"], &plain["payload"]),
        (&json!("msg_1"), &Value::Null)
    );
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forged_old_large_or_not_meant_for_the_source_is_refused_and_not_enqueued() {
    let site = site(FILE).await;
    let body = comment("rm -rf /");
    let forged = hub("another-secret-of-mine", &body);
    let right = hub(GH_SECRET, &body);
    for headers in [
        vec![],
        vec![("x-hub-signature-256", forged.as_str())],
        vec![("x-hub-signature-256", &right[7..])],
        vec![
            ("x-hub-signature-256", right.as_str()),
            ("x-hub-signature-256", forged.as_str()),
        ],
    ] {
        let refused = send(&site, "gh", &headers, &body).await;
        refused.assert_problem(401, "unauthorized");
    }
    let signature = [("x-hub-signature-256", right.as_str())];
    let other_body = comment("rm -rf /x");
    let refused = send(&site, "gh", &signature, &other_body).await;
    refused.assert_problem(401, "unauthorized");
    for age_s in [400, -400] {
        let refused = standard(&site, "msg_1", age_s, "old").await;
        refused.assert_problem(401, "unauthorized");
    }
    github(&site, "one", &comment(&"x".repeat(2_048)))
        .await
        .assert_problem(413, "payload_too_large");
    for lacking in [
        "{}",
        "[]",
        "not json",
        r#"{"repository":"a","comment":{"body":null}}"#,
    ] {
        github(&site, "one", lacking)
            .await
            .assert_problem(422, "invalid");
    }
    let long = json!({"repository": "r".repeat(600), "comment": {"body": "hi"}}).to_string();
    github(&site, "one", &long)
        .await
        .assert_problem(422, "invalid");
    github(&site, "one", &comment("nul \u{0}"))
        .await
        .assert_problem(422, "invalid");
    send(&site, "none", &signature, &body)
        .await
        .assert_problem(404, "not_found");
    let get = site
        .request(Method::GET, "/v1/sources/gh")
        .send()
        .await
        .unwrap();
    Answer::of(get)
        .await
        .assert_problem(405, "method_not_allowed");
    assert_eq!(site.logged_events().await, 0);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_the_secret_says_so_and_takes_a_change_of_the_source_up() {
    let site = site(&FILE.replace("GH_SECRET", "NOT_SET")).await;
    let refused = github(&site, "one", &comment("hi")).await;
    refused.assert_problem(503, "unavailable");
    assert!(
        site.worker
            .logged("neither NOT_SET nor NOT_SET_FILE is set")
    );
    apply(&site, FILE).await;
    wait_until(LIMIT, "the change counts", async || {
        github(&site, "one", &comment("hi")).await.status == 201
    })
    .await;
    apply(&site, "").await;
    wait_until(LIMIT, "the removal counts", async || {
        github(&site, "one", &comment("hi")).await.status == 404
    })
    .await;
    assert_eq!(site.logged_events().await, 1);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_may_only_append_where_the_stream_names_it_and_to_sessions_that_are_open() {
    let site = site(FILE).await;
    let client = crate::support::connect(&site.plant.url).await;
    let set = async |producers: &str| {
        let set = format!("SELECT lanekeeper.set_producers('inbound', {producers})");
        client.batch_execute(&set).await.unwrap();
    };
    set("ARRAY['source std']").await;
    let refused = github(&site, "one", &comment("hi")).await;
    refused.assert_problem(403, "forbidden");
    assert_eq!(standard(&site, "msg_1", 0, "hi").await.status, 201);
    set("NULL").await;
    close(&site, "all").await;
    let refused = standard(&site, "msg_2", 0, "late").await;
    refused.assert_problem(409, "session_closed");
    let again = standard(&site, "msg_1", 0, "hi").await;
    assert_eq!((again.status, site.logged_events().await), (200, 1));
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_leaves_out_is_answered_and_counted_and_not_enqueued() {
    let only = "only = { \"/action\" = [\"created\", \"edited\"], \"/bot\" = false }\nmax_bytes ";
    let site = site(&FILE.replace("max_bytes ", only)).await;
    let sent = async |action: &str, bot: bool| {
        let mut body: Value = serde_json::from_str(&comment("hi")).unwrap();
        body["action"] = action.into();
        body["bot"] = bot.into();
        github(&site, "one", &body.to_string()).await
    };
    for (action, bot, at) in [("deleted", false, "/action"), ("created", true, "/bot")] {
        let ignored = sent(action, bot).await;
        let why = ignored.body["ignored"].as_str().unwrap();
        assert_eq!(ignored.status, 200);
        assert!(why.contains(at), "{why}");
    }
    // Without the value that it is about.
    assert!(github(&site, "one", &comment("hi")).await.body["ignored"].is_string());
    assert_eq!(
        (site.logged_events().await, ignored(&site, "gh").await),
        (0, 3.0)
    );
    let forged = send(&site, "gh", &[], r#"{"action":"deleted"}"#).await;
    forged.assert_problem(401, "unauthorized");
    for (action, status) in [("created", 201), ("edited", 201), ("created", 200)] {
        assert_eq!(sent(action, false).await.status, status);
    }
    assert_eq!(
        (site.logged_events().await, ignored(&site, "gh").await),
        (2, 3.0)
    );
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_signed_request_takes_the_place_of_what_waits() {
    let commands = FILE.replace(
        "max_bytes  = 2048",
        "commands = { \"/stop\" = \"interrupt\" }\n\n[subscription.agent]\nstream = \"inbound\"\nadapter = \"exec\"\ncommand = [\"false\"]",
    );
    assert_ne!(commands, FILE);
    let site = site(&commands).await;
    for text in ["one", "/stop now"] {
        let answer = github(&site, "id", &comment(text)).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    let again = github(&site, "id", &comment("/stop now")).await;
    assert_eq!((again.status, &again.body["seq"]), (200, &json!(2)));
    // The agent takes nothing, so both are tried again, until the first is superseded.
    let superseded = "SELECT count(*) FROM lanekeeper.inbound_message AS m
                      WHERE m.message_state = 'superseded' AND m.content = 'one'";
    wait_until(LIMIT, "the first is superseded", async || {
        site.plant.count(superseded).await == 1
    })
    .await;
    let others = "SELECT count(*) FROM lanekeeper.inbound_message AS m
                  WHERE m.message_state = 'superseded' AND m.content <> 'one'";
    assert_eq!(site.plant.count(others).await, 0);
    assert!(site.worker.stop().await.success());
}
