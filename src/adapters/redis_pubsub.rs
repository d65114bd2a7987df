//! Publishes events to a channel of Redis Pub/Sub: one `PUBLISH`, and so one message, for each event.
//!
//! A message is the body that a webhook gets. Redis keeps none: whoever is not subscribed at that moment never gets it, and
//! an event counts as delivered when the server took it, whoever listens. So it is for what is worth nothing later, such as
//! waking an open page; what must arrive goes to a `redis_stream`. A delivery whose answer was lost comes again.

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Delivery, Verdict};
use redis::Cmd;
use serde::Deserialize;
use serde_json::Value;

use super::redis_server::{self, Server, named};
use super::settings::{self, SettingsError};
use super::{Environment, envelope};

const KIND: &str = "redis_pubsub";
const DEFAULT_CHANNEL: &str = "lanekeeper:{stream}:{session}";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The variable with the server's URL, which may hold a password.
    url_env: String,
    /// `{stream}` and `{session}` stand for those of the event.
    channel: Option<String>,
    timeout_ms: Option<u64>,
    /// Events in one round trip.
    batch: Option<u64>,
}

struct Checked {
    server: redis_server::Checked,
    channel: String,
}

impl Checked {
    fn read(given: &Value) -> Result<Self, SettingsError> {
        let given: Settings = settings::parse(KIND, given)?;
        let server =
            redis_server::Checked::read(KIND, given.url_env, given.timeout_ms, given.batch)?;
        let channel = given.channel.unwrap_or_else(|| DEFAULT_CHANNEL.to_owned());
        if channel.is_empty() {
            let reason = "it must not be empty";
            return Err(SettingsError::invalid(KIND, "channel", reason));
        }
        Ok(Self { server, channel })
    }
}

/// Judges settings without reading a secret.
pub(super) fn check(settings: &Value) -> Result<(), SettingsError> {
    Checked::read(settings).map(drop)
}

/// Builds the adapter of one subscription. Connects to nothing yet.
pub(super) fn build(
    subscription: &str,
    settings: &Value,
    environment: &Environment,
) -> Result<RedisPubSub, SettingsError> {
    let Checked { server, channel } = Checked::read(settings)?;
    Ok(RedisPubSub {
        batch: server.batch,
        server: server.open(subscription, environment)?,
        channel,
    })
}

/// Publishes each event at one Redis server.
pub(super) struct RedisPubSub {
    server: Server,
    channel: String,
    batch: usize,
}

impl RedisPubSub {
    fn command(&self, delivery: &Delivery<'_>) -> Cmd {
        let mut command = redis::cmd("PUBLISH");
        command
            .arg(named(&self.channel, delivery))
            .arg(envelope::body(delivery));
        command
    }
}

#[async_trait]
impl Adapter for RedisPubSub {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        self.server
            .run(delivery, vec![self.command(delivery)])
            .await
    }

    fn max_batch(&self) -> usize {
        self.batch
    }

    async fn deliver_batch(&self, deliveries: &[Delivery<'_>]) -> BatchVerdict {
        let Some(first) = deliveries.first() else {
            return BatchVerdict::Each(Vec::new());
        };
        let commands: Vec<Cmd> = deliveries.iter().map(|one| self.command(one)).collect();
        BatchVerdict::Whole(self.server.run(first, commands).await)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_without_being_repeated() {
        let refusal = |settings: Value| check(&settings).unwrap_err().to_string();
        let error = refusal(json!({"url_env": "redis://:secret@host"}));
        assert!(
            error.contains("`url_env`") && !error.contains("secret"),
            "{error}"
        );
        assert!(refusal(json!({"url_env": "R", "channel": ""})).contains("`channel`"));
        assert!(refusal(json!({"url_env": "R", "batch": 101})).contains("between 1 and 100"));
        assert!(refusal(json!({"url_env": "R", "key": "k"})).contains("`key`"));
    }
}
