//! Sessions that a producer's open transaction holds up: what the bot's other chats notice of it.

use serde_json::json;

use super::{Chat, LIMIT};
use crate::support::platform::Seen;
use crate::support::{connect, wait_until};

const COMMANDS: &str = "commands = { \"/stop\" = \"interrupt\", \"/status\" = \"status\" }\n";
/// Holds up a session that exists.
const ENQUEUE: &str =
    "SELECT lanekeeper.enqueue_inbound($1, 'terminal', 'of the open transaction')";

/// Somebody writes into a topic of the group, which is a session of its own.
fn write_in_topic(chat: &Chat, topic: i64, text: &str) {
    let message = json!({"text": text, "message_thread_id": topic, "is_topic_message": true});
    chat.telegram.updates.write(-100, 77, message);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_sessions_that_are_held_up_do_not_silence_the_other_chats() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    let topics = [1, 2, 3];
    for topic in topics {
        write_in_topic(&chat, topic, "before");
    }
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    let mut producer = connect(&chat.plant.url).await;
    let open = producer.transaction().await.unwrap();
    for topic in topics {
        let session = format!("tg--100-{topic}");
        open.execute(ENQUEUE, &[&session]).await.unwrap();
    }
    for topic in topics {
        write_in_topic(&chat, topic, "first");
    }
    write_in_topic(&chat, 1, "second");
    updates.text(77, "elsewhere");
    wait_until(LIMIT, "the other chat is heard", async || {
        chat.contents("tg-77-0").await == ["elsewhere"]
    })
    .await;
    // What is written from now on does not wait until all the locked sessions were tried.
    let asked = updates.asked();
    wait_until(LIMIT, "each locked session was found", async || {
        updates.asked() >= asked + 3
    })
    .await;
    updates.text(77, "elsewhere again");
    wait_until(LIMIT, "the other chat goes on", async || {
        chat.contents("tg-77-0").await == ["elsewhere", "elsewhere again"]
    })
    .await;
    assert_eq!(updates.kept(), 6, "nothing is confirmed beyond them");
    open.commit().await.unwrap();
    updates.confirmed(LIMIT).await;
    let own = "of the open transaction";
    assert_eq!(
        chat.contents("tg--100-1").await,
        ["before", own, "first", "second"]
    );
    for session in ["tg--100-2", "tg--100-3"] {
        assert_eq!(chat.contents(session).await, ["before", own, "first"]);
    }
    assert_eq!(
        chat.contents("tg-77-0").await,
        ["elsewhere", "elsewhere again"]
    );
    assert!(!worker.logged("gives no sign of life"));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_of_a_session_that_is_held_up_does_not_silence_the_other_chats() {
    let chat = Chat::with(COMMANDS).await;
    let updates = &chat.telegram.updates;
    updates.text(-100, "before");
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    let mut producer = connect(&chat.plant.url).await;
    let open = producer.transaction().await.unwrap();
    open.execute(ENQUEUE, &[&"tg--100-0"]).await.unwrap();
    updates.text(-100, "/stop");
    updates.text(77, "elsewhere");
    wait_until(LIMIT, "the other chat is heard", async || {
        chat.contents("tg-77-0").await == ["elsewhere"]
    })
    .await;
    assert_eq!(updates.kept(), 2, "nothing is confirmed beyond it");
    open.commit().await.unwrap();
    updates.confirmed(LIMIT).await;
    assert_eq!(
        chat.contents("tg--100-0").await,
        ["before", "of the open transaction", "/stop"]
    );
    assert_eq!(chat.contents("tg-77-0").await, ["elsewhere"]);
    assert!(!worker.logged("gives no sign of life"));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_answered_twice_while_another_session_is_held_up() {
    let chat = Chat::with(COMMANDS).await;
    let updates = &chat.telegram.updates;
    updates.text(-100, "before");
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    let mut producer = connect(&chat.plant.url).await;
    let open = producer.transaction().await.unwrap();
    open.execute(ENQUEUE, &[&"tg--100-0"]).await.unwrap();
    updates.text(-100, "waits");
    updates.text(77, "/status");
    updates.text(77, "nul \u{0}");
    updates.text(77, "taken");
    let answers = |seen: &Seen, word: &str| {
        let texts = seen.texts();
        texts.iter().filter(|text| text.contains(word)).count()
    };
    let both =
        |seen: &Seen| answers(seen, "Session tg-77-0") > 0 && answers(seen, "was not taken") > 0;
    let reason = "both are answered";
    chat.telegram.wait_until(LIMIT, reason, both).await;
    let asked = updates.asked();
    wait_until(LIMIT, "they have come again", async || {
        updates.asked() >= asked + 3
    })
    .await;
    open.commit().await.unwrap();
    updates.confirmed(LIMIT).await;
    assert_eq!(chat.telegram.seen().texts().len(), 2);
    assert_eq!(chat.contents("tg-77-0").await, ["taken"]);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answered_question_is_confirmed_although_the_stream_refuses_the_message_behind_it() {
    let chat = Chat::with(COMMANDS).await;
    let updates = &chat.telegram.updates;
    let only = "SELECT lanekeeper.set_producers('inbound', ARRAY['token 1'])";
    chat.plant.client.execute(only, &[]).await.unwrap();
    updates.text(77, "/status");
    updates.text(77, "wait for me");
    let worker = chat.worker().await;
    chat.problem_is("its messages wait").await;
    let next = "SELECT next_update FROM lanekeeper.source_poll";
    assert_eq!(chat.plant.count(next).await, 2);
    assert_eq!(chat.contents("tg-77-0").await.len(), 0);
    assert!(worker.stop().await.success());
}
