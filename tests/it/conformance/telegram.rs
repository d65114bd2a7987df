//! Telegram, against a fake of its Bot API.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper::adapter::{Adapter, Environment, Verdict, build};
use serde_json::{Value, json};

use super::chat::{self, AMPLE, Messenger, build_with};
use super::destination::{Conduct, Destination, Watched, deliver, event, rejection};
use super::{chats, conforms};
use crate::support::platform::{Platform, TOKEN, Telegram};

conforms!(Bot:
    passing_failure_is_retried,
    final_refusal_is_a_rejection,
    silence_ends_at_the_time_out_in_a_retry,
    dropped_delivery_leaves_nothing_running,
);

chats!(Bot:
    any_text_is_shown_as_it_is,
    a_long_text_is_several_messages_in_order,
    one_request_is_one_turn,
    later_versions_edit_the_message,
    a_successor_edits_what_it_did_not_send,
    keys_sessions_and_chats_have_their_own_messages,
    a_message_grows_and_shrinks_by_parts,
    a_retry_sends_only_the_parts_that_are_missing,
    without_its_memory_it_sends_nothing_and_nothing_twice,
    an_answer_that_cannot_be_read_has_nothing_sent_again,
    a_message_that_was_deleted_is_sent_anew,
    concurrent_messages_do_not_mix,
    a_pause_is_of_the_one_chat,
    what_has_no_text_or_place_is_refused_by_its_pointer,
    a_wrong_token_is_retried_slowly_and_never_shown,
    typing_is_shown_before_a_final_and_costs_no_delivery,
);

struct Bot {
    server: Telegram,
    adapter: Arc<dyn Adapter>,
}

#[async_trait]
impl Destination for Bot {
    const PLAIN: &'static str = r#"{"text": "done", "chat": 42}"#;

    async fn start(conduct: Conduct, timeout: Duration) -> Self {
        let server = Telegram::start(&[]).await;
        chat::conduct(&server, conduct);
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap();
        let settings = json!({
            "token_env": "BOT_TOKEN", "api_url": server.url(), "chat_from": "/chat", "timeout_ms": timeout_ms,
        });
        let environment = Environment::with_variables(true, [("BOT_TOKEN", TOKEN)]);
        let adapter = build("telegram", "audit", &settings, &environment).unwrap();
        Self { server, adapter }
    }

    fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::clone(&self.adapter)
    }
}

#[async_trait]
impl Watched for Bot {
    async fn reached(&self) {
        chat::reached(&self.server).await;
    }

    async fn abandoned(&self) {
        chat::abandoned(&self.server).await;
    }
}

impl Messenger for Bot {
    const KIND: &'static str = "telegram";
    const LONGEST: usize = 4096;
    const CHATS: [&'static str; 2] = ["-1001", "42"];

    fn platform(&self) -> &Platform {
        &self.server
    }

    fn settings(&self) -> Value {
        json!({"token_env": "BOT_TOKEN", "api_url": self.server.url()})
    }
}

#[tokio::test]
async fn markdown_is_escaped_so_that_telegram_takes_it() {
    let bot = Bot::start(Conduct::Accept, AMPLE).await;
    let memory: Arc<dyn lanekeeper::adapter::Memory> =
        Arc::new(lanekeeper::adapter::ProcessMemory::default());
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
    let memory: Arc<dyn lanekeeper::adapter::Memory> =
        Arc::new(lanekeeper::adapter::ProcessMemory::default());
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
