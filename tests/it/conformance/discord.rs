//! Discord, against a fake of its API: a bot through the whole suite, and the differences of a webhook.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_adapters::{Environment, build};
use lanekeeper_core::adapter::{Adapter, Verdict};
use serde_json::json;

use super::chat::{self, AMPLE};
use super::chats;
use super::destination::{Conduct, Destination, deliver, event};
use crate::support::platform::{Discord, Fault, Kind, TOKEN, WEBHOOK_TOKEN, Window};

chats!(Bot);

type Bot = chat::Bot<Discord>;

#[async_trait]
impl chat::Fake for Discord {
    const KIND: &'static str = "discord";
    const LONGEST: usize = 2000;
    const CHATS: [&'static str; 2] = ["81", "82"];

    async fn open() -> Self {
        Self::start(&[]).await
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
