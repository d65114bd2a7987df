//! Sends events to another agent, in one of two protocols: frames, which another Lanekeeper takes too (C3, C9,
//! docs/frames.md), or A2A (`a2a`).
//!
//! What an event becomes is in its headers: `{"frame":"REQUEST"}`, or `RESPONSE` and `ERROR` with a `correlation_id`, or
//! `ACK` with the ids in its payload; an EVENT otherwise. Several go in one BATCH. The answer is that to a batch of a
//! webhook (`webhook/batch.rs`), or an ACK frame. An ACK needs no ACK: it is settled when it is taken.

use std::sync::Arc;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Delivery, Server, Verdict};
use lanekeeper_core::frame::{self, FrameError, Outgoing};
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::Value;

use super::webhook::settings::{Checked, Given, is_variable};
use super::{Environment, SettingsError, Webhook};
use super::{a2a, settings};

/// Events that go together.
pub(super) const MOST_EVENTS: usize = frame::MOST_FRAMES;
const KIND: &str = "agent";
/// Bytes of a token's name.
const LONGEST_PEER: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(rename = "protocol")]
    _protocol: Option<String>,
    url: String,
    /// The variable with the access token that the peer gave us.
    token_env: Option<String>,
    secret_env: Option<String>,
    /// The name of the access token that we gave the peer: its ACK frames are for what this subscription sent.
    peer: Option<String>,
    timeout_ms: Option<u64>,
    batch: Option<u64>,
}

/// Whether the agent is spoken to over A2A.
fn is_a2a(given: &Value) -> Result<bool, SettingsError> {
    match given.get("protocol").map(Value::as_str) {
        None | Some(Some("frames")) => Ok(false),
        Some(Some("a2a")) => Ok(true),
        Some(_) => {
            let reason = "it must be \"frames\" or \"a2a\"";
            Err(SettingsError::invalid(KIND, "protocol", reason))
        }
    }
}

/// Whether messages go as frames, of which several go together.
pub(super) fn speaks_frames(settings: &Value) -> bool {
    is_a2a(settings).is_ok_and(|is_a2a| !is_a2a)
}

/// Whether a message is acknowledged by more than the answer to it.
pub(super) fn awaits_completion(settings: &Value) -> bool {
    matches!(is_a2a(settings), Ok(true)) && a2a::awaits_completion(settings)
}

fn read(given: &Value) -> Result<(Checked, Option<String>), SettingsError> {
    let given: Settings = settings::parse(KIND, given)?;
    let refused = |key, reason: &str| Err(SettingsError::invalid(KIND, key, reason));
    if given
        .token_env
        .as_deref()
        .is_some_and(|name| !is_variable(name))
    {
        // Not repeated: it may well be the token itself.
        return refused(
            "token_env",
            "it must be the name of an environment variable, not the token",
        );
    }
    let is_name = |peer: &str| (1..=LONGEST_PEER).contains(&peer.len());
    if given.peer.as_deref().is_some_and(|peer| !is_name(peer)) {
        return refused("peer", "it must be the name of an access token");
    }
    let most = u64::try_from(MOST_EVENTS).unwrap_or(u64::MAX);
    let posting = Given {
        url: given.url,
        secret_env: given.secret_env,
        timeout_ms: given.timeout_ms,
        batch: given.batch.or(Some(most)),
    };
    Ok((Checked::judge(KIND, posting)?, given.token_env))
}

/// Judges settings without reading a secret.
pub(super) fn check(settings: &Value) -> Result<(), SettingsError> {
    match is_a2a(settings)? {
        true => a2a::check(settings),
        false => read(settings).map(drop),
    }
}

/// Builds the adapter of one subscription. Connects to nothing yet.
pub(super) fn build(
    subscription: &str,
    settings: &Value,
    environment: &Environment,
) -> Result<Arc<dyn Adapter>, SettingsError> {
    if is_a2a(settings)? {
        let bearer = |variable| bearer(subscription, variable, environment);
        return Ok(Arc::new(a2a::build(
            subscription,
            settings,
            environment,
            bearer,
        )?));
    }
    let (checked, token_env) = read(settings)?;
    let authorization = token_env
        .map(|variable| bearer(subscription, variable, environment))
        .transpose()?;
    let post = Webhook::posting(KIND, subscription, checked, authorization, environment)?;
    Ok(Arc::new(Agent { post }))
}

fn bearer(
    subscription: &str,
    variable: String,
    environment: &Environment,
) -> Result<HeaderValue, SettingsError> {
    let subscription = subscription.to_owned();
    let token = match environment.secret(&variable) {
        Ok(token) => token,
        Err(source) => {
            return Err(SettingsError::Secret {
                subscription,
                source,
            });
        }
    };
    match HeaderValue::from_str(&format!("Bearer {token}")) {
        Ok(mut value) if !token.is_empty() => {
            value.set_sensitive(true);
            Ok(value)
        }
        _ => Err(SettingsError::Token {
            subscription,
            variable,
            reason: "a header cannot carry it",
        }),
    }
}

/// Posts frames to one URL.
struct Agent {
    post: Webhook,
}

/// The frames of events, up to the first of which none can be made.
#[derive(Default)]
struct Frames {
    texts: Vec<Vec<u8>>,
    are_acks: Vec<bool>,
    refused: Option<FrameError>,
}

impl Frames {
    fn of(deliveries: &[Delivery<'_>]) -> Self {
        let mut frames = Self::default();
        for delivery in deliveries {
            let frame =
                Outgoing::of(delivery).and_then(|frame| Ok((frame.is_ack(), frame.text()?)));
            match frame {
                Ok((is_ack, text)) => {
                    frames.texts.push(text);
                    frames.are_acks.push(is_ack);
                }
                Err(error) => {
                    frames.refused = Some(error);
                    break;
                }
            }
        }
        frames
    }

    /// The body of a request.
    fn body(&mut self) -> Vec<u8> {
        match &mut self.texts[..] {
            [one] => std::mem::take(one),
            several => frame::batch(several),
        }
    }
}

impl Agent {
    async fn send(&self, deliveries: &[Delivery<'_>]) -> BatchVerdict {
        let mut frames = Frames::of(deliveries);
        let sent = &deliveries[..frames.texts.len()];
        if sent.is_empty() {
            let why = frames.refused.map(|error| error.to_string());
            let error = format!("the event is no frame: {}", why.unwrap_or_default());
            return BatchVerdict::Each(vec![Verdict::Rejected { error }]);
        }
        let body = frames.body();
        match self.post.exchange(sent, body).await {
            BatchVerdict::Each(mut verdicts) => {
                for (verdict, is_ack) in verdicts.iter_mut().zip(&frames.are_acks) {
                    if *is_ack && *verdict == Verdict::Sent {
                        *verdict = Verdict::Accepted;
                    }
                }
                BatchVerdict::Each(verdicts)
            }
            whole => whole,
        }
    }
}

#[async_trait]
impl Adapter for Agent {
    fn acknowledges(&self) -> bool {
        true
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let verdict = self.send(std::slice::from_ref(delivery)).await;
        let verdict = verdict.of(0).cloned();
        verdict.unwrap_or_else(|| Verdict::retry("the peer did not answer for the message"))
    }

    fn max_batch(&self) -> usize {
        self.post.max_batch()
    }

    async fn deliver_batch(&self, deliveries: &[Delivery<'_>]) -> BatchVerdict {
        self.send(deliveries).await
    }

    fn server(&self) -> Option<Server> {
        self.post.server()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_without_being_repeated() {
        let url = "https://bob.example/v1/agents/inbox/frames";
        for (settings, key) in [
            (
                json!({"url": url, "token_env": "lk_1_secret value"}),
                "token_env",
            ),
            (json!({"url": url, "peer": ""}), "peer"),
            (json!({"url": url, "protocol": "acp"}), "protocol"),
            (
                json!({"url": url, "protocol": "a2a", "binding": "grpc"}),
                "binding",
            ),
            (json!({"url": url, "batch": 51}), "batch"),
            (json!({"url": "https://u:secret@bob.example/"}), "url"),
        ] {
            let error = check(&settings).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}`")), "{error}");
            assert!(
                error.contains("agent") && !error.contains("secret value"),
                "{error}"
            );
        }
        let environment = Environment::with_variables(false, [("T", "a\nb")]);
        let error = build("bob", &json!({"url": url, "token_env": "T"}), &environment);
        assert!(!error.err().unwrap().to_string().contains("a\nb"));
    }
}
