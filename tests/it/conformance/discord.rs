//! Discord, against a fake of its API: a bot through the whole suite, and what is different with a webhook.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper::adapter::{Adapter, Environment, Verdict, build};
use serde_json::{Value, json};

use super::chat::{self, AMPLE, Messenger};
use super::destination::{Conduct, Destination, Watched, deliver, event};
use super::{chats, conforms};
use crate::support::platform::{Discord, Fault, Kind, Platform, TOKEN, WEBHOOK_TOKEN, Window};

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
    server: Discord,
    adapter: Arc<dyn Adapter>,
}

#[async_trait]
impl Destination for Bot {
    const PLAIN: &'static str = r#"{"text": "done", "chat": "81"}"#;

    async fn start(conduct: Conduct, timeout: Duration) -> Self {
        let server = Discord::start(&[]).await;
        chat::conduct(&server, conduct);
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap();
        let settings = json!({
            "token_env": "BOT_TOKEN", "api_url": server.url(), "chat_from": "/chat", "timeout_ms": timeout_ms,
        });
        let environment = Environment::with_variables(true, [("BOT_TOKEN", TOKEN)]);
        let adapter = build("discord", "audit", &settings, &environment).unwrap();
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
    const KIND: &'static str = "discord";
    const LONGEST: usize = 2000;
    const CHATS: [&'static str; 2] = ["81", "82"];

    fn platform(&self) -> &Platform {
        &self.server
    }

    fn settings(&self) -> Value {
        let server = &self.server;
        json!({"token_env": "BOT_TOKEN", "api_url": server.url()})
    }
}

fn webhook(server: &Discord) -> Arc<dyn Adapter> {
    let url = server.webhook_url();
    let environment = Environment::with_variables(true, [("WEBHOOK_URL", url)]);
    let settings = json!({"url_env": "WEBHOOK_URL", "thread_from": "/thread"});
    build("discord", "audit", &settings, &environment).unwrap()
}

#[tokio::test]
async fn a_webhook_sends_edits_and_deletes_in_a_thread() {
    let server = Discord::start(&[]).await;
    let adapter = webhook(&server);
    let long = "y".repeat(2500);
    for (seq, text) in (1..).zip(["one", &long, "three"]) {
        let payload = json!({"text": text, "message_key": "k", "thread": "9"}).to_string();
        let verdict = deliver(&*adapter, &event("s-1", seq, &payload)).await;
        assert_eq!(verdict, Verdict::Accepted);
    }
    let seen = server.seen();
    assert_eq!(seen.texts(), ["three"]);
    assert_eq!(seen.messages[0].thread.as_deref(), Some("9"));
    assert_eq!((seen.count(Kind::Send), seen.count(Kind::Delete)), (2, 1));
}

#[tokio::test]
async fn a_webhook_that_was_deleted_is_gone_and_its_url_is_not_shown() {
    let server = Discord::start(&[]).await;
    let url = server.webhook_url().replace(WEBHOOK_TOKEN, "revoked0123");
    let environment = Environment::with_variables(true, [("WEBHOOK_URL", url)]);
    let settings = json!({"url_env": "WEBHOOK_URL"});
    let adapter = build("discord", "audit", &settings, &environment).unwrap();
    match deliver(&*adapter, &event("s-1", 1, r#"{"text": "a"}"#)).await {
        Verdict::Gone { error } => {
            assert!(
                error.contains("Unknown Webhook") && !error.contains("revoked0123"),
                "{error}"
            );
        }
        verdict => panic!("{verdict:?}"),
    }
}

#[tokio::test]
async fn what_the_headers_say_silences_the_channel_before_a_429() {
    let window = Window {
        per_chat: true,
        most: 2,
        time: Duration::from_secs(5),
    };
    let server = Discord::start(&[window]).await;
    let settings = json!({"token_env": "BOT_TOKEN", "api_url": server.url(), "channel": "81"});
    let environment = Environment::with_variables(true, [("BOT_TOKEN", TOKEN)]);
    let adapter = build("discord", "audit", &settings, &environment).unwrap();
    let event = event("s-1", 1, r#"{"text": "a"}"#);
    assert_eq!(deliver(&*adapter, &event).await, Verdict::Accepted);
    assert_eq!(adapter.learned(), []);
    assert_eq!(deliver(&*adapter, &event).await, Verdict::Accepted);
    let learned = adapter.learned();
    let [(bucket, silence)] = learned.as_slice() else {
        panic!("{learned:?}")
    };
    assert!(
        bucket.key.ends_with("channel 81") && *silence > Duration::from_secs(3),
        "{learned:?}"
    );
    assert_eq!(adapter.learned(), [], "once");
}

#[tokio::test]
async fn a_global_429_is_of_the_whole_bot_and_a_wrong_token_too() {
    let bot = Bot::start(Conduct::Accept, AMPLE).await;
    let event = event("s-1", 1, Bot::PLAIN);
    let global = &bot.adapter.buckets(&event)[0];
    bot.server.fault_once(Fault::GlobalPause { seconds: 4 });
    match deliver(&*bot.adapter, &event).await {
        Verdict::Throttled { after, of, .. } => {
            assert_eq!((after, of.as_ref()), (Duration::from_secs(4), Some(global)));
        }
        verdict => panic!("{verdict:?}"),
    }
    bot.server.fault_once(Fault::Unauthorized);
    assert!(matches!(
        deliver(&*bot.adapter, &event).await,
        Verdict::Retry { .. }
    ));
    let learned = bot.adapter.learned();
    assert!(
        learned
            .iter()
            .any(|(bucket, pause)| bucket == global && *pause >= Duration::from_secs(60))
    );
}

#[tokio::test]
async fn a_bot_answers_a_message_and_speaks_in_a_thread() {
    let bot = Bot::start(Conduct::Accept, AMPLE).await;
    let settings = json!({
        "token_env": "BOT_TOKEN", "api_url": bot.server.url(), "channel": "81", "thread_from": "/thread",
        "reply_to_from": "/to",
    });
    let environment = Environment::with_variables(true, [("BOT_TOKEN", TOKEN)]);
    let adapter = build("discord", "audit", &settings, &environment).unwrap();
    let payload = json!({"text": "z".repeat(2001), "thread": "17", "to": "5"}).to_string();
    assert_eq!(
        deliver(&*adapter, &event("s-1", 1, &payload)).await,
        Verdict::Accepted
    );
    let told: Vec<_> = bot
        .server
        .seen()
        .messages
        .into_iter()
        .map(|one| (one.chat, one.reply_to))
        .collect();
    assert_eq!(
        told,
        [
            ("17".to_owned(), Some("5".to_owned())),
            ("17".to_owned(), None)
        ]
    );
}
