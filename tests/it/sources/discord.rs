//! E2, E7: Discord's interactions, with the example of the page. The tests sign them themselves.

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::fixture::{self, ago, bound, close, documented, hex, ignored, messages, post, send};
use crate::api::site::{Answer, Site};

/// Of the application that the worker knows.
const SEED: [u8; 32] = [7; 32];

fn pair(seed: [u8; 32]) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&seed).unwrap()
}

fn signature(seed: [u8; 32], at: &str, body: &[u8]) -> String {
    hex(pair(seed).sign(&[at.as_bytes(), body].concat()).as_ref())
}

async fn site(file: &str) -> Site {
    let key = hex(pair(SEED).public_key().as_ref());
    fixture::site(file, &[("DISCORD_PUBLIC_KEY", &key)]).await
}

/// Signed so many seconds ago.
async fn sent(site: &Site, age_s: i64, body: &[u8]) -> Answer {
    let at = ago(age_s).to_string();
    let signature = signature(SEED, &at, body);
    let headers = [
        ("x-signature-ed25519", signature.as_str()),
        ("x-signature-timestamp", &at),
    ];
    let (answer, _) = post(&site.worker.http(), "discord", &headers, body).await;
    answer
}

async fn discord(site: &Site, body: &Value) -> Answer {
    sent(site, 0, body.to_string().as_bytes()).await
}

fn command(id: &str, name: &str, text: &str) -> Value {
    json!({
        "type": 2, "id": id, "application_id": "A1", "token": "for-the-answer", "guild_id": "YOUR_SERVER_ID", "channel_id": "C1",
        "member": {"user": {"id": "U1", "username": "ada"}},
        "data": {"name": name, "options": [{"name": "text", "type": 3, "value": text}]},
    })
}

fn told(text: &str) -> Value {
    let data = json!({"content": text, "flags": 64, "allowed_mentions": {"parse": []}});
    json!({"type": 4, "data": data})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_discord_is_in_postgres_when_its_sender_reads_the_reply_and_once() {
    let site = site(&documented("discord")).await;
    for _ in 0..2 {
        let answer = discord(&site, &command("1", "agent", "and the @everyone tests")).await;
        assert_eq!(
            (answer.status, &answer.body),
            (200, &told("Sent to the agent."))
        );
        assert_eq!(site.logged_events().await, 1);
    }
    // A command in private has a user in place of a member.
    let mut private = command("2", "agent", "hi");
    private["user"] = private["member"]["user"].take();
    private["channel_id"] = "C2".into();
    assert_eq!(discord(&site, &private).await.status, 200);
    let messages = messages(&site).await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    for (message, (channel, text, id)) in messages
        .iter()
        .zip([("C1", "and the @everyone tests", "1"), ("C2", "hi", "2")])
    {
        assert_eq!(message["session"], format!("discord-{channel}"));
        assert_eq!(
            (&message["origin"], &message["content"]),
            (&json!("discord"), &json!(text))
        );
        assert_eq!(
            (&message["actor_id"], &message["actor_name"]),
            (&json!("U1"), &json!("ada"))
        );
        assert_eq!(message["source_message_id"], id);
        assert_eq!(message["payload"]["token"], "for-the-answer");
    }
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn discord_gets_its_pong_only_where_it_signed_the_ping_and_its_questions_are_no_messages() {
    let site = site(&documented("discord")).await;
    let pong = discord(&site, &json!({"type": 1, "id": "1"})).await;
    assert_eq!((pong.status, &pong.body), (200, &json!({"type": 1})));
    assert_eq!(pong.kind, "application/json");
    send(&site, "discord", &[], r#"{"type":1}"#)
        .await
        .assert_problem(401, "unauthorized");
    let half_typed = json!({"type": 4, "id": "2", "data": {"name": "agent"}});
    let choices = discord(&site, &half_typed).await;
    assert_eq!(choices.body, json!({"type": 8, "data": {"choices": []}}));
    let other = discord(&site, &command("3", "other", "hi")).await;
    assert_eq!(other.body, told("This is not sent to an agent."));
    assert_eq!(
        (site.logged_events().await, ignored(&site, "discord").await),
        (0, 1.0)
    );
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_deferred_a_program_answers_the_command_later() {
    let site = site(&format!("{}\ndeferred = true", documented("discord"))).await;
    for id in ["1", "1", "2"] {
        let answer = discord(&site, &command(id, "agent", "hi")).await;
        assert_eq!((answer.status, &answer.body), (200, &json!({"type": 5})));
    }
    let other = discord(&site, &command("3", "other", "hi")).await;
    assert_eq!(other.body["type"], 4, "nobody would answer it later");
    assert_eq!(site.logged_events().await, 2);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forged_replayed_or_cannot_be_taken_of_discord_is_refused_and_not_enqueued() {
    let site = site(&documented("discord")).await;
    let body = command("1", "agent", "rm -rf /").to_string();
    let at = ago(0).to_string();
    let (right, forged) = (
        signature(SEED, &at, body.as_bytes()),
        signature([8; 32], &at, body.as_bytes()),
    );
    let (time, name) = ("x-signature-timestamp", "x-signature-ed25519");
    let later = ago(-1).to_string();
    for headers in [
        vec![],
        vec![(time, at.as_str())],
        vec![(name, right.as_str())],
        vec![(time, &at), (name, &forged)],
        vec![(time, &at), (name, &right[..126])],
        vec![(time, &later), (name, &right)],
        vec![(time, &at), (time, &at), (name, &right)],
        vec![(time, &at), (name, &right), (name, &right)],
    ] {
        send(&site, "discord", &headers, &body)
            .await
            .assert_problem(401, "unauthorized");
    }
    let headers = [(time, at.as_str()), (name, &right)];
    let other = body.replace("rm", "mv");
    send(&site, "discord", &headers, &other)
        .await
        .assert_problem(401, "unauthorized");
    // Nothing separates time and body where they are signed.
    let (shorter, moved) = at.split_at(9);
    let headers = [(time, shorter), (name, &right)];
    let moved = format!("{moved}{body}");
    send(&site, "discord", &headers, &moved)
        .await
        .assert_problem(401, "unauthorized");
    for age_s in [400, -400] {
        let replayed = sent(&site, age_s, body.as_bytes()).await;
        replayed.assert_problem(401, "unauthorized");
    }
    let large = command("1", "agent", &"x".repeat(1 << 20)).to_string();
    let large = sent(&site, 0, large.as_bytes()).await;
    large.assert_problem(413, "payload_too_large");
    let lacking = r#"{"type":2,"id":"1","guild_id":"YOUR_SERVER_ID","channel_id":"C1","data":{"name":"agent"}}"#;
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for body in [
        b"{\"type\":2}\xff".as_slice(),
        b"",
        b"{\"type\":9}",
        lacking.as_bytes(),
        deep.as_bytes(),
    ] {
        let invalid = sent(&site, 0, body).await;
        invalid.assert_problem(422, "invalid");
    }
    assert_eq!(site.logged_events().await, 0);

    bound(&site, &documented("discord")).await;
    assert_eq!(
        discord(&site, &command("1", "agent", "first")).await.status,
        200
    );
    let refused = discord(&site, &command("2", "agent", "hi")).await;
    refused.assert_problem(429, "queue_full");
    close(&site, "discord-C1").await;
    let refused = discord(&site, &command("3", "agent", "late")).await;
    refused.assert_problem(409, "session_closed");
    assert_eq!(site.logged_events().await, 1);
    assert!(site.worker.stop().await.success());
}
