//! What people write becomes messages, once; what is none is passed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Chat, LIMIT, SECRET};
use crate::command::run;
use crate::support::platform::Kind;
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn what_people_write_is_enqueued_with_all_its_fields_and_then_confirmed() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    // Written before anybody asks, as after an hour without workers.
    updates.text(77, "and now the tests, please");
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    let topic = json!({"text": "in a topic", "message_thread_id": 9, "is_topic_message": true});
    updates.write(-100, 5, topic);
    updates.write(
        77,
        77,
        json!({"caption": "listen", "voice": {"file_id": "v1", "duration": 3}}),
    );
    // Passed: a stranger, a stranger's group, a service message, another bot, an edit, something that is no message.
    updates.write(5, 5, json!({"text": "let me in"}));
    updates.write(-5, 5, json!({"text": "let us in"}));
    updates.write(77, 77, json!({"new_chat_title": "x"}));
    updates.write(
        -100,
        6,
        json!({"text": "beep", "from": {"id": 6, "is_bot": true}}),
    );
    updates.push(
        "edited_message",
        77,
        77,
        json!({"text": "edit", "edit_date": 5}),
    );
    updates.push("callback_query", 77, 77, json!({}));
    updates.text(77, "the last one");
    updates.confirmed(LIMIT).await;
    assert_eq!(
        chat.contents("tg-77-0").await,
        ["and now the tests, please", "listen", "the last one"]
    );
    assert_eq!(chat.contents("tg--100-9").await, ["in a topic"]);
    assert_eq!(
        chat.plant
            .count("SELECT count(*) FROM lanekeeper.event")
            .await,
        4
    );

    let payload = "SELECT e.payload::jsonb FROM lanekeeper.event AS e WHERE e.event_type = 'voice'";
    let row = chat.plant.client.query_one(payload, &[]).await.unwrap();
    let voice: Value = row.get(0);
    for (field, expected) in [
        ("origin", json!("tg")),
        ("actor_id", json!("77")),
        ("actor_name", json!("Ada")),
        ("source_channel_id", json!("77")),
        ("source_message_id", json!("77/3")),
    ] {
        assert_eq!(voice[field], expected, "{voice}");
    }
    assert_eq!(voice["payload"]["file"]["file_id"], "v1");
    let typed = |seen: &crate::support::platform::Seen| seen.count(Kind::Typing) == 4;
    chat.telegram
        .wait_until(LIMIT, "each message is acknowledged by typing", typed)
        .await;

    // Fails only where it is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = reqwest::get(worker.http() + "/metrics").await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for (outcome, count) in [("enqueued", 4), ("not_allowed", 2)] {
        let counted = metrics.lines().any(|line| {
            line.starts_with("lanekeeper_source_updates")
                && line.contains(&format!("\"{outcome}\""))
                && line.ends_with(&format!(" {count}"))
        });
        assert!(counted, "{outcome}: {metrics}");
    }
    let url = [("DATABASE_URL", chat.plant.url.as_str())];
    let text = run(&["status"], &url, "").await.stdout;
    assert!(
        text.contains("telegram") && text.contains("TG_TOKEN"),
        "{text}"
    );
    let json = run(&["status", "--output", "json"], &url, "").await.stdout;
    assert!(json.contains(r#""bot":"telegram 110201543""#), "{json}");
    let log = worker.log();
    assert!(
        ![text, json, metrics, log]
            .iter()
            .any(|said| said.contains(SECRET))
    );
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_a_message_of_its_own_where_edits_are_taken() {
    let chat = Chat::with("edits = true\ntyping = false\n").await;
    let updates = &chat.telegram.updates;
    updates.text(77, "first");
    for (edited_at, text) in [(5, "second"), (6, "third")] {
        let edit = json!({"message_id": 1, "text": text, "edit_date": edited_at});
        updates.push("edited_message", 77, 77, edit);
    }
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    assert_eq!(chat.contents("tg-77-0").await, ["first", "second", "third"]);
    assert_eq!(chat.telegram.seen().calls.len(), 0, "nobody types");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_postgres_refuses_is_passed_with_a_word_to_its_author_and_holds_nobody_up() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    updates.text(77, "before");
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    let close = "SELECT FROM lanekeeper.close_session('inbound', 'tg-77-0', 'done')";
    chat.plant.client.query(close, &[]).await.unwrap();
    updates.text(77, "to a closed session");
    updates.text(-100, &"x".repeat((1 << 20) + 1));
    updates.text(-100, "nul \u{0}");
    updates.text(-100, "after");
    updates.confirmed(LIMIT).await;
    assert_eq!(chat.contents("tg-77-0").await, ["before"]);
    assert_eq!(chat.contents("tg--100-0").await, ["after"]);
    let told = |seen: &crate::support::platform::Seen| {
        let texts = seen.texts();
        let has = |why: &str| texts.iter().filter(|text| text.contains(why)).count();
        has("its session is closed") == 1 && has("it is too long") == 2
    };
    chat.telegram.wait_until(LIMIT, "they are told", told).await;
    assert!(worker.logged("a message was passed, because it cannot be enqueued"));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_of_days_ago_is_not_named_because_telegram_may_number_anew() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    updates.number_from(10_000);
    updates.text(77, "before the holidays");
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    assert!(worker.stop().await.success());
    let age = "UPDATE lanekeeper.source_poll SET moved_at = moved_at - interval '8 days'";
    chat.plant.client.batch_execute(age).await.unwrap();
    updates.number_from(5);
    updates.text(77, "after");
    let asked = updates.offsets().len();
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    assert_eq!(
        chat.contents("tg-77-0").await,
        ["before the holidays", "after"]
    );
    assert_eq!(updates.offsets()[asked..asked + 2], [None, Some(6)]);
    assert!(worker.stop().await.success());
}

/// A figure of one machine: printed, with a bound that only a defect misses.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_in_postgres_within_milliseconds() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    updates.text(77, "0");
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    let mut written = Vec::new();
    for i in 1..=50 {
        let asked = updates.asked();
        wait_until(LIMIT, "a question is open", async || {
            updates.asked() >= asked && updates.kept() == 0
        })
        .await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        written.push(now.as_secs_f64());
        updates.text(77, &i.to_string());
        updates.confirmed(LIMIT).await;
    }
    let read = "SELECT extract(epoch FROM e.created_at)::float8 FROM lanekeeper.event AS e ORDER BY e.seq OFFSET 1";
    let rows = chat.plant.client.query(read, &[]).await.unwrap();
    let mut latencies: Vec<f64> = rows
        .iter()
        .zip(&written)
        .map(|(row, written)| (row.get::<_, f64>(0) - written) * 1_000.0)
        .collect();
    assert_eq!(latencies.len(), 50);
    latencies.sort_by(f64::total_cmp);
    let (p50, p99) = (latencies[25], latencies[49]);
    println!("from the update to the append: p50 {p50:.1} ms, the slowest {p99:.1} ms");
    assert!(p50 < Duration::from_secs(1).as_secs_f64() * 1_000.0);
    assert!(worker.stop().await.success());
}
