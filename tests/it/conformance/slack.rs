//! Slack, against a fake of its Web API.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper::adapter::{Adapter, Environment, Verdict, build};
use serde_json::{Value, json};

use super::chat::{self, Messenger};
use super::destination::{Conduct, Destination, Watched, deliver, event};
use super::{chats, conforms};
use crate::support::platform::{Kind, Platform, Slack, TOKEN};

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
    server: Slack,
    adapter: Arc<dyn Adapter>,
}

#[async_trait]
impl Destination for Bot {
    const PLAIN: &'static str = r#"{"text": "done", "chat": "C81"}"#;

    async fn start(conduct: Conduct, timeout: Duration) -> Self {
        let server = Slack::start(&[]).await;
        chat::conduct(&server, conduct);
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap();
        let settings = json!({
            "token_env": "BOT_TOKEN", "api_url": format!("{}/api", server.url()), "chat_from": "/chat", "timeout_ms": timeout_ms,
        });
        let environment = Environment::with_variables(true, [("BOT_TOKEN", TOKEN)]);
        let adapter = build("slack", "audit", &settings, &environment).unwrap();
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
    const KIND: &'static str = "slack";
    const LONGEST: usize = 4000;
    const CHATS: [&'static str; 2] = ["C81", "C82"];

    fn platform(&self) -> &Platform {
        &self.server
    }

    fn settings(&self) -> Value {
        let server = &self.server;
        json!({"token_env": "BOT_TOKEN", "api_url": format!("{}/api", server.url())})
    }
}

#[tokio::test]
async fn a_channel_by_its_name_is_edited_by_its_id_and_an_answer_stands_in_a_thread() {
    let server = Slack::start(&[]).await;
    let environment = Environment::with_variables(true, [("BOT_TOKEN", TOKEN)]);
    let settings = json!({
        "token_env": "BOT_TOKEN", "api_url": format!("{}/api", server.url()), "channel": "#general",
        "reply_to_from": "/to",
    });
    let adapter = build("slack", "audit", &settings, &environment).unwrap();
    for (seq, text) in (1..).zip(["a", "ab"]) {
        let payload = json!({"text": text, "message_key": "k", "to": "1767.5"}).to_string();
        let verdict = deliver(&*adapter, &event("s-1", seq, &payload)).await;
        assert_eq!(verdict, Verdict::Accepted);
    }
    let seen = server.seen();
    assert_eq!((seen.texts(), seen.count(Kind::Edit)), (vec!["ab"], 1));
    assert_eq!(seen.messages[0].chat, "CGENERAL");
    assert_eq!(seen.messages[0].thread.as_deref(), Some("1767.5"));
}
