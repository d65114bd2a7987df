//! Updates that Telegram sends to a webhook.

use serde_json::{Value, json};

use super::{Chat, LIMIT};
use crate::api::site::Answer;
use crate::command::run;
use crate::sources::fixture::{self, documented};
use crate::support::{TestDb, WorkerProcess, wait_until};

pub(super) const HEADER: &str = "x-telegram-bot-api-secret-token";
pub(super) const HOOK_SECRET: &str = "a-secret-token_of-the-test";

/// Beside the polled source.
pub(super) const HOOK: &str = r#"
[source.hook]
webhook    = "telegram"
secret_env = "HOOK_SECRET"
bot_name   = "fake_bot"
allow_from = [77, -100]
session    = "hook-{chat_id}-{thread_id}"
commands   = { "/stop" = "interrupt", "/status" = "status" }
"#;

pub(super) async fn worker(chat: &Chat, variables: &[(&str, &str)]) -> WorkerProcess {
    // Fails only where it is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let secret = [("HOOK_SECRET", HOOK_SECRET)];
    chat.worker_with(&[&secret, variables].concat()).await
}

pub(super) async fn send(worker: &WorkerProcess, update: &Value) -> Answer {
    let headers = [(HEADER, HOOK_SECRET)];
    let body = update.to_string();
    let (answer, _) = fixture::post(&worker.http(), "hook", &headers, body.as_bytes()).await;
    answer
}

pub(super) fn update(id: i64, chat: i64, actor: i64, more: Value) -> Value {
    let mut message = json!({
        "message_id": id, "date": 1_767_323_045,
        "chat": {"id": chat, "type": if chat < 0 { "supergroup" } else { "private" }},
        "from": {"id": actor, "is_bot": false, "first_name": "Ada"},
    });
    for (key, value) in more.as_object().unwrap() {
        message[key] = value.clone();
    }
    json!({"update_id": id, "message": message})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_telegram_sends_becomes_the_same_message_as_one_that_is_fetched() {
    let chat = Chat::with(HOOK).await;
    let worker = worker(&chat, &[]).await;
    let written = [
        (77, 77, json!({"text": "and now the tests, please"})),
        (
            -100,
            5,
            json!({"text": "in a topic", "message_thread_id": 9, "is_topic_message": true}),
        ),
        (
            77,
            77,
            json!({"caption": "listen", "voice": {"file_id": "v1", "duration": 3}}),
        ),
    ];
    for (id, (in_chat, actor, message)) in (1..).zip(written) {
        chat.telegram.updates.write(in_chat, actor, message.clone());
        let answer = send(&worker, &update(id, in_chat, actor, message)).await;
        assert_eq!(
            (answer.status, &answer.body["method"]),
            (200, &json!("sendChatAction")),
            "{}",
            answer.body
        );
        assert_eq!(answer.body["chat_id"], in_chat);
    }
    chat.telegram.updates.confirmed(LIMIT).await;
    let read = "SELECT e.event_type, e.payload::jsonb FROM lanekeeper.event AS e
                WHERE e.payload::jsonb ->> 'origin' = $1 ORDER BY e.payload::jsonb ->> 'source_message_id'";
    let mut both = Vec::new();
    for origin in ["tg", "hook"] {
        let rows = chat.plant.client.query(read, &[&origin]).await.unwrap();
        let messages: Vec<(String, Value)> = rows
            .iter()
            .map(|row| {
                let mut payload: Value = row.get(1);
                payload["origin"].take();
                (row.get(0), payload)
            })
            .collect();
        assert_eq!(messages.len(), 3);
        both.push(messages);
    }
    assert_eq!(both[0], both[1]);
    assert_eq!(chat.contents("hook--100-9").await, ["in a topic"]);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_is_taken_once_and_only_with_the_secret() {
    let chat = Chat::with(HOOK).await;
    let worker = worker(&chat, &[]).await;
    let hello = update(1, 77, 77, json!({"text": "hello"}));
    let body = hello.to_string();
    for headers in [
        &[][..],
        &[(HEADER, "a-secret-token_of-the-tesT")],
        &[(HEADER, HOOK_SECRET), (HEADER, HOOK_SECRET)],
    ] {
        let (answer, _) = fixture::post(&worker.http(), "hook", headers, body.as_bytes()).await;
        answer.assert_problem(401, "unauthorized");
    }
    // A source that a worker asks takes no requests.
    let headers = [(HEADER, HOOK_SECRET)];
    let (answer, _) = fixture::post(&worker.http(), "tg", &headers, body.as_bytes()).await;
    answer.assert_problem(404, "not_found");
    assert_eq!(chat.contents("hook-77-0").await, [""; 0]);

    assert_eq!(send(&worker, &hello).await.body["method"], "sendChatAction");
    let again = send(&worker, &hello).await;
    assert_eq!(
        (again.status, &again.body["duplicate"]),
        (200, &json!(true))
    );
    // Nobody's: a stranger, an edit, another program, nothing.
    for passed in [
        update(2, 5, 5, json!({"text": "let me in"})),
        json!({"update_id": 3, "edited_message": hello["message"]}),
        update(
            4,
            -100,
            6,
            json!({"text": "beep", "from": {"id": 6, "is_bot": true}}),
        ),
        json!({"update_id": 5, "callback_query": {"id": "1"}}),
    ] {
        let answer = send(&worker, &passed).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.body["ignored"].is_string(), "{}", answer.body);
    }
    for nonsense in [json!({"message": hello["message"]}), json!([1])] {
        send(&worker, &nonsense)
            .await
            .assert_problem(422, "invalid");
    }
    assert_eq!(chat.contents("hook-77-0").await, ["hello"]);
    let counted = "SELECT count(*) FROM lanekeeper.event";
    assert_eq!(chat.plant.count(counted).await, 1);
    assert!(!worker.log().contains(HOOK_SECRET));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_chat_is_told_is_the_answer_to_the_request() {
    let chat = Chat::with(HOOK).await;
    let worker = worker(&chat, &[]).await;
    let text = |id, in_chat, text: &str| update(id, in_chat, 77, json!({"text": text}));
    send(&worker, &text(1, 77, "one")).await;
    let status = send(&worker, &text(2, 77, "/status@fake_bot")).await;
    assert_eq!(status.body["method"], "sendMessage");
    let told = status.body["text"].as_str().unwrap();
    assert!(told.starts_with("Session hook-77-0:"), "{told}");
    assert_eq!(status.body["reply_parameters"]["message_id"], 2);
    send(&worker, &text(3, 77, "/stop@other_bot")).await;
    send(&worker, &text(4, 77, "/STOP it")).await;
    let metrics = reqwest::get(worker.http() + "/metrics").await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for (outcome, count) in [("enqueued", 2), ("interrupted", 1), ("status", 1)] {
        let is_counted = metrics.lines().any(|line| {
            line.starts_with("lanekeeper_source_updates")
                && line.contains(&format!("\"{outcome}\""))
                && line.contains("\"hook\"")
                && line.ends_with(&format!(" {count}"))
        });
        assert!(is_counted, "{outcome}: {metrics}");
    }

    let close = "SELECT FROM lanekeeper.close_session('inbound', 'hook-77-0', 'done')";
    chat.plant.client.query(close, &[]).await.unwrap();
    let refused = send(&worker, &text(5, 77, "to a closed session")).await;
    assert_eq!(refused.status, 200, "Telegram would repeat anything else");
    let told = refused.body["text"].as_str().unwrap();
    assert!(told.contains("its session is closed"), "{told}");
    let too_long = "x".repeat(1 << 20);
    let (answer, _) = fixture::post(
        &worker.http(),
        "hook",
        &[(HEADER, HOOK_SECRET)],
        text(6, 77, &too_long).to_string().as_bytes(),
    )
    .await;
    answer.assert_problem(413, "payload_too_large");
    assert_eq!(
        chat.contents("hook-77-0").await,
        ["one", "/stop@other_bot", "/STOP it"]
    );
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_are_refused_until_the_worker_has_a_usable_secret() {
    let chat = Chat::with(HOOK).await;
    let worker = worker(&chat, &[("HOOK_SECRET", "short")]).await;
    let answer = send(&worker, &update(1, 77, 77, json!({"text": "hi"}))).await;
    answer.assert_problem(503, "unavailable");
    wait_until(LIMIT, "it says why", async || {
        worker.logged("what HOOK_SECRET holds is no usable secret")
    })
    .await;
    assert!(worker.stop().await.success());
}

#[tokio::test]
async fn settings_of_a_webhook_that_do_nothing_or_lack_something_are_refused() {
    let db = TestDb::new().await;
    let url = [("DATABASE_URL", db.url())];
    for (more, told) in [
        ("attachments = true", "name its variable with token_env"),
        ("token_env = \"T\"", "do nothing here"),
        (
            "max_file_bytes = 4096",
            "does nothing here without `attachments = true`",
        ),
        (
            "attachments = true\ntoken_env = \"T\"\nmax_file_bytes = 5",
            "between 1024 and",
        ),
        ("signature = \"slack\"", "Telegram signs nothing"),
        ("poll = \"telegram\"", "a source either has `poll`"),
        ("secret = \"x\"", "secrets never enter the database"),
        ("alow_from = [5]", "did you mean"),
        ("attachments_dir = \"/etc\"", "unknown key"),
    ] {
        let file = HOOK.to_owned() + more;
        let ran = run(&["apply", "-f", "-"], &url, &file).await;
        assert_ne!(ran.code, Some(0), "{more}");
        assert!(ran.stderr.contains(told), "{more}: {}", ran.stderr);
    }
    let name = HOOK.replace("fake_bot", "@fake_bot");
    let ran = run(&["apply", "-f", "-"], &url, &name).await;
    assert!(ran.stderr.contains("without @"), "{}", ran.stderr);
    let full = documented("tg-hook");
    let ran = run(&["apply", "-f", "-"], &url, &full).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let shown = run(&["status"], &url, "").await.stdout;
    assert!(shown.contains("telegram webhook"), "{shown}");
}
