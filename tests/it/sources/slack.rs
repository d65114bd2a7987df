//! E2, E7: Slack's events and commands, with the example of the page. The tests sign them themselves.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::fixture::{
    self, LIMIT, ago, apply, bound, close, documented, hmac_of, ignored, messages, once, post, send,
};
use crate::api::site::{Answer, Site};
use crate::process::plant::Plant;
use crate::support::{Protocol, Proxy, TestDb, Upstream, WorkerProcess, wait_until};

const SECRET: &str = "not-a-secret-of-anybody";
const VARIABLES: [(&str, &str); 1] = [("SLACK_SIGNING_SECRET", SECRET)];

async fn site() -> Site {
    fixture::site(&documented("slack"), &VARIABLES).await
}

fn signature(secret: &str, at: &str, body: &[u8]) -> String {
    let signed = [b"v0:", at.as_bytes(), b":", body].concat();
    format!("v0={}", hmac_of(secret, &signed))
}

/// The headers of a request that was signed so many seconds ago.
fn signed(age_s: i64, body: &[u8]) -> [(&'static str, String); 2] {
    let at = ago(age_s).to_string();
    let signature = signature(SECRET, &at, body);
    [
        ("x-slack-request-timestamp", at),
        ("x-slack-signature", signature),
    ]
}

/// Also returns whether Slack is told not to repeat it.
async fn sent(
    base: &str,
    name: &str,
    age_s: i64,
    more: &[(&str, &str)],
    body: &[u8],
) -> (Answer, bool) {
    let signed = signed(age_s, body);
    let own = signed
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    post(base, name, &[&own, more].concat(), body).await
}

async fn slack(site: &Site, body: &Value) -> Answer {
    let body = body.to_string();
    let (answer, _) = sent(&site.worker.http(), "slack", 0, &[], body.as_bytes()).await;
    answer
}

fn message(id: &str, text: &str, more: Value) -> Value {
    let mut event = json!({
        "type": "message", "channel": "C1", "user": "U1", "text": text, "ts": format!("1.{id}"),
    });
    let more = more.as_object().unwrap().clone();
    event.as_object_mut().unwrap().extend(more);
    json!({"token": "secret", "type": "event_callback", "event_id": format!("Ev{id}"), "event": event})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_slack_is_in_postgres_when_it_is_answered_and_a_retry_is_the_same_message() {
    let site = site().await;
    let first = slack(&site, &message("1", "and the tests", json!({}))).await;
    assert_eq!(
        (first.status, site.logged_events().await),
        (201, 1),
        "{}",
        first.body
    );
    // A retry is signed anew.
    let body = message("1", "and the tests", json!({})).to_string();
    let retry = [
        ("x-slack-retry-num", "1"),
        ("x-slack-retry-reason", "http_timeout"),
    ];
    let (again, _) = sent(&site.worker.http(), "slack", -2, &retry, body.as_bytes()).await;
    assert_eq!(
        (again.status, &again.body["duplicate"]),
        (200, &json!(true))
    );
    assert_eq!(again.body["message_id"], first.body["message_id"]);

    // Two replicas that get every retry at once.
    let other = site
        .plant
        .worker(
            &[
                &VARIABLES[..],
                &[("LANEKEEPER_HTTP__ALLOW_UNAUTHENTICATED", "true")],
            ]
            .concat(),
        )
        .await;
    let reply = message("2", "in the thread", json!({"thread_ts": "1.1"})).to_string();
    let bases = [site.worker.http(), other.http()];
    let copies = (0..8).map(|n| sent(&bases[n % 2], "slack", n as i64, &[], reply.as_bytes()));
    let answers: Vec<u16> = join_all(copies)
        .await
        .iter()
        .map(|it| it.0.status)
        .collect();
    assert_eq!(
        answers.iter().filter(|status| **status == 201).count(),
        1,
        "{answers:?}"
    );
    assert!(
        answers.iter().all(|status| [200, 201].contains(status)),
        "{answers:?}"
    );

    let messages = messages(&site).await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    for (message, (text, id)) in messages
        .iter()
        .zip([("and the tests", "Ev1"), ("in the thread", "Ev2")])
    {
        assert_eq!(message["session"], "slack-C1-1.1");
        assert_eq!(message["origin"], "slack");
        assert_eq!(
            (&message["content"], &message["source_message_id"]),
            (&json!(text), &json!(id))
        );
        assert_eq!(
            (&message["actor_id"], &message["source_channel_id"]),
            (&json!("U1"), &json!("C1"))
        );
        assert_eq!(message["payload"]["event_id"], id);
        assert!(!message.to_string().contains("secret"), "{message}");
    }
    assert!(other.stop().await.success());
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_gets_its_challenge_back_only_where_it_signed_it() {
    let site = site().await;
    let asked = json!({"token": "t", "challenge": "3eZbrw1aBm2r", "type": "url_verification"});
    let answer = slack(&site, &asked).await;
    assert_eq!(
        (answer.status, &answer.body),
        (200, &json!({"challenge": "3eZbrw1aBm2r"}))
    );
    assert_eq!(answer.kind, "application/json");
    let unsigned = send(&site, "slack", &[], &asked.to_string()).await;
    unsigned.assert_problem(401, "unauthorized");
    assert!(!unsigned.body.to_string().contains("3eZbrw1aBm2r"));
    assert_eq!(
        (site.logged_events().await, ignored(&site, "slack").await),
        (0, 0.0)
    );
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_person_wrote_in_slack_is_answered_and_counted_and_not_enqueued() {
    let site = site().await;
    let others = [
        message("1", "the agent's own answer", json!({"bot_id": "B1"})),
        message(
            "2",
            "",
            json!({"subtype": "message_changed", "hidden": true}),
        ),
        message("3", "", json!({"subtype": "message_deleted"})),
        message("4", "", json!({"type": "reaction_added"})),
        json!({"type": "app_rate_limited", "team_id": "T1", "minute_rate_limited": 1}),
    ];
    for other in &others {
        let answer = slack(&site, other).await;
        assert_eq!(answer.status, 200, "{other}");
        assert!(answer.body["ignored"].is_string(), "{}", answer.body);
    }
    let counted = others.len() as f64;
    assert_eq!(
        (site.logged_events().await, ignored(&site, "slack").await),
        (0, counted)
    );
    assert!(site.worker.logged("Slack sends no more events"));
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forged_or_replayed_in_slacks_name_is_refused_and_not_enqueued() {
    let site = site().await;
    let base = site.worker.http();
    let body = message("1", "rm -rf /", json!({})).to_string();
    let at = ago(0).to_string();
    let (right, forged) = (
        signature(SECRET, &at, body.as_bytes()),
        signature("another-secret-of-mine", &at, body.as_bytes()),
    );
    let (time, name) = ("x-slack-request-timestamp", "x-slack-signature");
    let later = ago(-1).to_string();
    for headers in [
        vec![],
        vec![(time, at.as_str())],
        vec![(name, right.as_str())],
        vec![(time, &at), (name, &forged)],
        vec![(time, &at), (name, &right[3..])],
        vec![(time, &later), (name, &right)],
        vec![(time, &at), (time, &later), (name, &right)],
        vec![(time, &at), (name, &right), (name, &forged)],
    ] {
        send(&site, "slack", &headers, &body)
            .await
            .assert_problem(401, "unauthorized");
    }
    let other = body.replace("rm", "mv");
    let headers = [(time, at.as_str()), (name, &right)];
    send(&site, "slack", &headers, &other)
        .await
        .assert_problem(401, "unauthorized");
    for age_s in [400, -400] {
        let (replayed, _) = sent(&base, "slack", age_s, &[], body.as_bytes()).await;
        replayed.assert_problem(401, "unauthorized");
    }
    assert_eq!(site.logged_events().await, 0);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_slack_would_send_in_vain_it_is_told_not_to_repeat() {
    let site = site().await;
    let base = site.worker.http();
    let answered = async |body: &[u8]| sent(&base, "slack", 0, &[], body).await;
    let large = message("1", &"x".repeat(1 << 20), json!({})).to_string();
    answered(large.as_bytes())
        .await
        .0
        .assert_problem(413, "payload_too_large");
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let nested = message("1", "hi", json!({}))
        .to_string()
        .replace("\"secret\"", &deep);
    let nul = message("1", "nul \u{0}", json!({})).to_string();
    let invalid = [
        b"{\"type\":\"event_callback\"}\xff".as_slice(),
        b"",
        b"{}",
        deep.as_bytes(),
        nested.as_bytes(),
        nul.as_bytes(),
    ];
    for body in invalid {
        let (refused, no_retry) = answered(body).await;
        assert_eq!(refused.status, 422, "{}", refused.body);
        assert!(no_retry, "{}", refused.body);
    }
    assert_eq!(site.logged_events().await, 0);

    let sent = message("1", "first", json!({})).to_string();
    assert_eq!(answered(sent.as_bytes()).await.0.status, 201);
    close(&site, "slack-C1-1.1").await;
    let late = message("2", "late", json!({"thread_ts": "1.1"})).to_string();
    let (closed, no_retry) = answered(late.as_bytes()).await;
    closed.assert_problem(409, "session_closed");
    assert!(no_retry);
    assert_eq!(
        answered(sent.as_bytes()).await.0.status,
        200,
        "it came before the close"
    );

    // A session drains: the next retry may find room.
    bound(&site, &documented("slack")).await;
    let full = async |id: &str| {
        let body = message(id, "hi", json!({"thread_ts": "9"})).to_string();
        answered(body.as_bytes()).await
    };
    assert_eq!(full("3").await.0.status, 201);
    let (refused, no_retry) = full("4").await;
    refused.assert_problem(429, "queue_full");
    assert!(!no_retry);
    assert_eq!(site.logged_events().await, 2);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_slack_that_comes_while_postgres_is_away_is_enqueued_when_it_is_repeated() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let db = TestDb::new().await;
    let direct = db.url().to_owned();
    let proxy = Proxy::start(Upstream::of(&direct), Protocol::Postgres).await;
    let plant = Plant::on(direct.clone(), "runs", Duration::ZERO).await;
    let worker = WorkerProcess::start(&proxy.through(&direct), &plant.receiver, &VARIABLES).await;
    let site = Site::of(plant, worker);
    apply(&site, &documented("slack")).await;
    wait_until(LIMIT, "the source is known", async || {
        slack(
            &site,
            &json!({"type": "url_verification", "challenge": "c"}),
        )
        .await
        .status
            == 200
    })
    .await;

    let nowhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
    proxy.lead_to(Upstream::Tcp(nowhere));
    proxy.cut();
    let body = message("1", "hi", json!({})).to_string();
    let base = site.worker.http();
    let since = std::time::Instant::now();
    let signed = signed(0, body.as_bytes());
    let headers = signed
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let (away, no_retry) = once(&base, "slack", &headers, body.as_bytes()).await;
    assert!(
        since.elapsed() < Duration::from_secs(3),
        "{:?}",
        since.elapsed()
    );
    assert_eq!((away.status, no_retry), (503, false), "{}", away.body);
    proxy.lead_to(Upstream::of(&direct));
    wait_until(LIMIT, "a retry is enqueued", async || {
        let retry = [("x-slack-retry-num", "1")];
        let answer = sent(&base, "slack", 0, &retry, body.as_bytes()).await;
        [200, 201].contains(&answer.0.status)
    })
    .await;
    assert_eq!(site.logged_events().await, 1);
    assert!(site.worker.stop().await.success());
    drop(db);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_slack_is_a_message_and_its_sender_reads_the_reply() {
    let site = fixture::site(&documented("slack-command"), &VARIABLES).await;
    let base = site.worker.http();
    let command = |id: &str, name: &str| {
        format!(
            "token=secret&channel_id=C1&user_id=U1&user_name=ada&command=%2F{name}&text=run+the+%F0%9F%A7%AA+%26+go&trigger_id={id}"
        )
    };
    let answered = async |body: &str| {
        sent(&base, "slack-command", 0, &[], body.as_bytes())
            .await
            .0
    };
    for _ in 0..2 {
        let answer = answered(&command("1.a", "agent")).await;
        assert_eq!(answer.status, 200);
        let reply = json!({"response_type": "ephemeral", "text": "Sent to the agent."});
        assert_eq!(answer.body, reply);
    }
    assert_eq!(answered(&command("1.b", "agent")).await.status, 200);
    let other = answered(&command("1.c", "other")).await;
    assert_eq!(other.body["text"], "This is not sent to an agent.");
    assert_eq!(answered("ssl_check=1&token=secret").await.status, 200);
    let messages = messages(&site).await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    let first = &messages[0];
    assert_eq!(
        (&first["session"], &first["content"]),
        (&json!("slack-C1"), &json!("run the 🧪 & go"))
    );
    assert_eq!(
        (&first["actor_name"], &first["source_message_id"]),
        (&json!("ada"), &json!("1.a"))
    );
    assert_eq!(first["payload"]["command"], "/agent");
    assert!(!first.to_string().contains("secret"), "{first}");
    let lacking = answered("command=%2Fagent&trigger_id=1.d").await;
    lacking.assert_problem(422, "invalid");
    assert_eq!(ignored(&site, "slack-command").await, 2.0);
    assert!(site.worker.stop().await.success());
}
