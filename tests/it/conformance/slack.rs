//! Slack, against a fake of its Web API.

use async_trait::async_trait;
use lanekeeper_adapters::{Environment, build};
use lanekeeper_core::adapter::Verdict;
use serde_json::json;

use super::destination::{deliver, event};
use super::{chat, chats};
use crate::support::platform::{Kind, Slack, TOKEN};

chats!(Bot);

type Bot = chat::Bot<Slack>;

#[async_trait]
impl chat::Fake for Slack {
    const KIND: &'static str = "slack";
    const LONGEST: usize = 4000;
    const CHATS: [&'static str; 2] = ["C81", "C82"];

    async fn open() -> Self {
        Self::start(&[]).await
    }

    fn api_url(&self) -> String {
        format!("{}/api", self.url())
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
