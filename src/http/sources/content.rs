//! What a verified request says: its body as its platform writes it, and whether it is a message at all.
//!
//! Platforms also ask whether the address is ours, and send what no person wrote. Both are answered, and not enqueued:
//! an agent that gets its own words back as a message would answer them.

use std::borrow::Cow;

use axum::http::HeaderMap;
use lanekeeper_core::source::{Filter, Request, Signature};
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::super::problem::Problem;
use super::super::problem_type;
use super::answer::{Reader, Told, unknown};

/// Kinds of Slack's messages that a person wrote to be read: the others tell of changes, and of who came and went.
const WRITTEN: [&str; 3] = ["file_share", "me_message", "thread_broadcast"];

/// A body.
pub(super) struct Content<'a> {
    text: &'a str,
    /// `None`: it is neither JSON nor, of Slack, a form.
    json: Option<Value>,
    payload: Option<Cow<'a, str>>,
}

/// What it is to the source.
#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    /// Its answer has this reader.
    Message(Reader),
    /// The platform wants this answer, and nothing else.
    Question(Told),
    /// No message, for this reason.
    Ignored(Reader, String),
}

impl<'a> Content<'a> {
    pub(super) fn read(signature: Signature, body: &'a [u8]) -> Result<Self, Problem> {
        let text = std::str::from_utf8(body).map_err(|error| {
            let detail = format!("the body is no UTF-8 ({error}): nothing was enqueued");
            Problem::new(problem_type::INVALID, detail)
        })?;
        let mut json: Option<Value> = serde_json::from_str(text).ok();
        let mut payload = json.is_some().then_some(Cow::Borrowed(text));
        if signature == Signature::Slack {
            // By the body, because no signature covers the header that names its type.
            let is_form = json.is_none();
            let fields = json.get_or_insert_with(|| form(text));
            // Shows who knows it to be Slack, to receivers that verify no signatures.
            let token = fields.as_object_mut().and_then(|it| it.remove("token"));
            if is_form || token.is_some() {
                payload = Some(Cow::Owned(fields.to_string()));
            }
        }
        Ok(Self {
            text,
            json,
            payload,
        })
    }

    /// JSON text.
    pub(super) fn payload(&self) -> Option<&str> {
        self.payload.as_deref()
    }

    /// What templates are filled in from.
    pub(super) fn request<'r>(&'r self, header: &'r dyn Fn(&str) -> Option<String>) -> Request<'r> {
        Request {
            text: self.text,
            json: self.json.as_ref(),
            header,
        }
    }

    pub(super) fn kind(
        &self,
        signature: Signature,
        only: &Filter,
        headers: &HeaderMap,
    ) -> Result<Kind, Problem> {
        let kind = match signature {
            Signature::Standard | Signature::Github => Kind::Message(Reader::Platform),
            Signature::Slack => self.of_slack(only)?,
            Signature::Discord => self.of_discord()?,
        };
        let Kind::Message(reader) = kind else {
            return Ok(kind);
        };
        let header = |name: &str| value_of(headers, name);
        Ok(match only.leaves_out(&self.request(&header)) {
            None => kind,
            Some(at) => Kind::Ignored(
                reader,
                format!("`only` of the source leaves it out by {at}"),
            ),
        })
    }

    fn of_slack(&self, only: &Filter) -> Result<Kind, Problem> {
        let value = |at: &str| self.json.as_ref()?.pointer(at).filter(|it| !it.is_null());
        let text = |at: &str| value(at).and_then(Value::as_str);
        let ignored = |reason: &str| Ok(Kind::Ignored(Reader::Platform, reason.to_owned()));
        match (text("/type"), text("/challenge")) {
            (Some("url_verification"), Some(challenge)) => {
                let challenge = challenge.to_owned();
                return Ok(Kind::Question(Told::Challenge { challenge }));
            }
            (Some("app_rate_limited"), _) => {
                tracing::warn!(
                    workspace = text("/team_id"),
                    "Slack sends no more events of a workspace for this minute: there were more than it sends in an hour"
                );
                return ignored("Slack tells that it holds events back");
            }
            (Some("event_callback"), _) => {}
            _ if text("/command").is_some() => return Ok(Kind::Message(Reader::SlackUser)),
            _ if text("/ssl_check").is_some() => {
                return ignored("Slack looks whether the address is there");
            }
            _ => return Err(unknown("neither an event nor a command of Slack")),
        }
        // What `only` asks for is wanted, whoever wrote it.
        if value("/event/bot_id").is_some() && !only.is_about("/event/bot_id") {
            return ignored("a program wrote it (bot_id)");
        }
        let subtype = text("/event/subtype").filter(|subtype| !WRITTEN.contains(subtype));
        if let Some(subtype) = subtype.filter(|_| !only.is_about("/event/subtype")) {
            let subtype = Problem::excerpt(subtype);
            return ignored(&format!(
                "no message that a person wrote (subtype {subtype})"
            ));
        }
        Ok(Kind::Message(Reader::Platform))
    }

    fn of_discord(&self) -> Result<Kind, Problem> {
        let json = self.json.as_ref();
        let kind = json.and_then(|json| json.pointer("/type")?.as_u64());
        match kind {
            Some(1) => Ok(Kind::Question(Told::PONG)),
            // A command, a component of a message, a modal.
            Some(2 | 3 | 5) => Ok(Kind::Message(Reader::DiscordUser)),
            Some(4) => Ok(Kind::Question(Told::no_choices())),
            _ => Err(unknown("no interaction of Discord")),
        }
    }
}

/// A header, as templates have it.
pub(super) fn value_of(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// The fields of a form as an object of texts. Of fields with one name, the last counts.
fn form(text: &str) -> Value {
    let fields = form_urlencoded::parse(text.as_bytes());
    let fields = fields.map(|(name, value)| (name.into_owned(), Value::from(value)));
    Value::Object(fields.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn kind(signature: Signature, only: &[(&str, &str)], body: &str) -> Result<Kind, Problem> {
        let only = only
            .iter()
            .map(|(at, one)| ((*at).to_owned(), vec![(*one).to_owned()]));
        let only = Filter::parse(&only.collect::<BTreeMap<_, _>>()).unwrap();
        let content = Content::read(signature, body.as_bytes()).unwrap();
        content.kind(signature, &only, &HeaderMap::new())
    }

    fn slack(only: &[(&str, &str)], body: &Value) -> Kind {
        kind(Signature::Slack, only, &body.to_string()).unwrap()
    }

    fn event(more: Value) -> Value {
        let mut event = json!({"type": "message", "user": "U1", "text": "hi"});
        let more = more.as_object().unwrap().clone();
        event.as_object_mut().unwrap().extend(more);
        json!({"type": "event_callback", "event_id": "Ev1", "event": event})
    }

    #[test]
    fn only_what_a_person_wrote_in_slack_is_a_message_unless_only_asks_for_more() {
        for written in [
            event(json!({})),
            event(json!({"subtype": "file_share"})),
            event(json!({"subtype": "thread_broadcast", "bot_id": null})),
        ] {
            assert_eq!(
                slack(&[], &written),
                Kind::Message(Reader::Platform),
                "{written}"
            );
        }
        for other in [
            event(json!({"bot_id": "B1"})),
            event(json!({"subtype": "bot_message"})),
            event(json!({"subtype": "message_changed"})),
            event(json!({"subtype": "message_deleted"})),
            event(json!({"subtype": "channel_join"})),
            json!({"type": "app_rate_limited", "team_id": "T1"}),
            json!({"ssl_check": "1"}),
        ] {
            let is_ignored = matches!(slack(&[], &other), Kind::Ignored(Reader::Platform, _));
            assert!(is_ignored, "{other}");
        }
        let of_a_bot = event(json!({"bot_id": "B1", "subtype": "bot_message"}));
        let both = [("/event/bot_id", "B1"), ("/event/subtype", "bot_message")];
        assert_eq!(slack(&both, &of_a_bot), Kind::Message(Reader::Platform));
        for one in both {
            assert_ne!(slack(&[one], &of_a_bot), Kind::Message(Reader::Platform));
        }
        let another = event(json!({"bot_id": "B2", "subtype": "bot_message"}));
        assert_ne!(slack(&both, &another), Kind::Message(Reader::Platform));
    }

    #[test]
    fn slacks_challenge_is_a_question_and_no_message_has_one() {
        let asked = json!({"token": "t", "challenge": "3eZbrw1a", "type": "url_verification"});
        let challenge = "3eZbrw1a".to_owned();
        let told = Kind::Question(Told::Challenge { challenge });
        assert_eq!(slack(&[("/event/type", "message")], &asked), told);
        let event = event(json!({"challenge": "x"}));
        assert_eq!(slack(&[], &event), Kind::Message(Reader::Platform));
        for neither in [
            r#"{"type":"url_verification"}"#,
            r#"{"type":"url_verification","challenge":{"a":1}}"#,
            "{}",
            "[]",
            "",
            "payload=%7B%7D",
            "[[[",
        ] {
            assert!(kind(Signature::Slack, &[], neither).is_err(), "{neither}");
        }
    }

    #[test]
    fn a_command_of_slack_is_a_form_whose_fields_are_the_payload_without_the_token() {
        let body =
            "token=secret&command=%2Fagent&text=run+the+%F0%9F%A7%AA&text=last&trigger_id=1.2";
        let content = Content::read(Signature::Slack, body.as_bytes()).unwrap();
        let payload: Value = serde_json::from_str(content.payload().unwrap()).unwrap();
        let expected = json!({"command": "/agent", "text": "last", "trigger_id": "1.2"});
        assert_eq!(payload, expected);
        let asked = kind(Signature::Slack, &[], body).unwrap();
        assert_eq!(asked, Kind::Message(Reader::SlackUser));
        let left = kind(Signature::Slack, &[("/command", "/other")], body).unwrap();
        assert!(matches!(left, Kind::Ignored(Reader::SlackUser, _)));

        let body = event(json!({}))
            .to_string()
            .replacen('{', r#"{"token":"secret","#, 1);
        let content = Content::read(Signature::Slack, body.as_bytes()).unwrap();
        assert!(!content.payload().unwrap().contains("secret"));
        // Of others, the payload is what they sent.
        let content = Content::read(Signature::Github, body.as_bytes()).unwrap();
        assert_eq!(content.payload(), Some(body.as_str()));
        let content = Content::read(Signature::Github, b"a=b").unwrap();
        assert_eq!(content.payload(), None);
    }

    #[test]
    fn an_interaction_of_discord_is_a_message_unless_discord_asks_something() {
        let discord = |only: &[(&str, &str)], body: &str| kind(Signature::Discord, only, body);
        let ping = discord(&[("/data/name", "agent")], r#"{"type":1}"#).unwrap();
        assert_eq!(ping, Kind::Question(Told::PONG));
        let half_typed = discord(&[], r#"{"type":4,"data":{"name":"agent"}}"#).unwrap();
        assert_eq!(half_typed, Kind::Question(Told::no_choices()));
        for number in [2, 3, 5] {
            let body = format!(r#"{{"type":{number},"data":{{"name":"agent"}}}}"#);
            let wanted = discord(&[("/data/name", "agent")], &body).unwrap();
            assert_eq!(wanted, Kind::Message(Reader::DiscordUser));
            let other = discord(&[("/data/name", "other")], &body).unwrap();
            assert!(matches!(other, Kind::Ignored(Reader::DiscordUser, _)));
        }
        for none in [
            "",
            "[]",
            "{}",
            r#"{"type":"1"}"#,
            r#"{"type":6}"#,
            r#"{"type":-1}"#,
        ] {
            assert!(discord(&[], none).is_err(), "{none}");
        }
    }

    #[test]
    fn json_that_nests_deep_is_no_json_and_overflows_nothing() {
        let deep = "[".repeat(1 << 20);
        for signature in Signature::ALL {
            let content = Content::read(signature, deep.as_bytes()).unwrap();
            let request = content.request(&|_| None);
            assert!(request.json.is_none_or(Value::is_object));
        }
        assert!(Content::read(Signature::Slack, b"\xff{}").is_err());
    }
}
