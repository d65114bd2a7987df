//! Telegram, against a fake of its Bot API.

use std::sync::Arc;

use async_trait::async_trait;
use lanekeeper_core::adapter::Verdict;
use serde_json::json;

use super::chat::{self, AMPLE, build_with};
use super::chats;
use super::destination::{Conduct, Destination, deliver, event, rejection};
use crate::support::platform::Telegram;

chats!(Bot);

type Bot = chat::Bot<Telegram>;

#[async_trait]
impl chat::Fake for Telegram {
    const KIND: &'static str = "telegram";
    const LONGEST: usize = 4096;
    const CHATS: [&'static str; 2] = ["-1001", "42"];

    async fn open() -> Self {
        Self::start(&[]).await
    }
}

#[tokio::test]
async fn markdown_is_escaped_so_that_telegram_takes_it() {
    let bot = Bot::start(Conduct::Accept, AMPLE).await;
    let memory: Arc<dyn lanekeeper_core::memory::Memory> =
        Arc::new(lanekeeper_core::memory::ProcessMemory::default());
    let adapter = build_with(&bot, &memory, json!({"format": "markdown"}));
    let said =
        "**Done!** see `a_b.c` (1. of 3):\n```rs\nlet a = [1];\n```\n> # _x_ | {y} ~ = + - !";
    let payload = json!({"text": said, "chat": 42}).to_string();
    assert_eq!(
        deliver(&*adapter, &event("s-1", 1, &payload)).await,
        Verdict::Accepted
    );
    let seen = bot.server.seen();
    // As it is shown: without the marks that were understood.
    let shown = "Done! see a_b.c (1. of 3):\nrs\nlet a = [1];\n\n> # _x_ | {y} ~ = + - !";
    assert_eq!(seen.texts(), [shown]);
    assert_eq!(seen.calls.len(), 1, "at the first try");
}

#[tokio::test]
async fn a_refusal_says_what_telegram_said() {
    let bot = Bot::start(Conduct::Refuse, AMPLE).await;
    let error = rejection(deliver(&*bot.adapter, &event("s-1", 1, Bot::PLAIN)).await);
    assert!(
        error.contains("403: Forbidden: bot was blocked by the user"),
        "{error}"
    );
}

#[tokio::test]
async fn a_message_answers_another_in_a_topic() {
    let bot = Bot::start(Conduct::Accept, AMPLE).await;
    let memory: Arc<dyn lanekeeper_core::memory::Memory> =
        Arc::new(lanekeeper_core::memory::ProcessMemory::default());
    let settings = json!({"thread_from": "/topic", "reply_to_from": "/to"});
    let adapter = build_with(&bot, &memory, settings);
    let payload =
        json!({"text": "z".repeat(4097), "chat": -1001, "topic": 17, "to": 5}).to_string();
    let verdict = deliver(&*adapter, &event("s-1", 1, &payload)).await;
    assert_eq!(verdict, Verdict::Accepted);
    let messages = bot.server.seen().messages;
    let told = |at: usize| {
        (
            messages[at].thread.as_deref(),
            messages[at].reply_to.as_deref(),
        )
    };
    // Only the first part answers.
    assert_eq!(
        [told(0), told(1)],
        [(Some("17"), Some("5")), (Some("17"), None)]
    );
}
