//! Appends events to a Redis stream: one `XADD`, and so one entry, for each event.
//!
//! An entry has the body that a webhook gets in the field `event`, and fields that a consumer can use without parsing
//! it: `id`, `stream`, `session`, `seq`, `type`, `attempt`, and `traceparent` and `tracestate` where there are any. A
//! delivery whose answer was lost comes again: consumers drop it by `id`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Delivery, Verdict};
use lanekeeper_core::trace::TraceContext;
use redis::Cmd;
use serde::Deserialize;
use serde_json::Value;

use super::redis_server::{self, Server, named};
use super::settings::{self, SettingsError};
use super::{Environment, envelope};

const KIND: &str = "redis_stream";
const DEFAULT_KEY: &str = "lanekeeper:{stream}";
const MOST_ENTRIES: u64 = 1_000_000_000;
/// Ten years.
const LONGEST_AGE_S: u64 = 315_576_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The variable with the server's URL, which may hold a password.
    url_env: String,
    /// The stream's key; `{stream}` and `{session}` stand for those of the event.
    key: Option<String>,
    /// About so many entries are kept; all by default.
    max_len: Option<u64>,
    /// Entries are kept for about so long, in place of `max_len`.
    max_age_s: Option<u64>,
    timeout_ms: Option<u64>,
    /// Events in one round trip.
    batch: Option<u64>,
}

/// Which entries an append drops, as far as whole nodes of them are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trim {
    Nothing,
    /// All but about so many.
    Length(u64),
    /// Those that are older.
    Age(Duration),
}

impl Trim {
    /// Adds its arguments to an `XADD`.
    fn add_to(self, command: &mut Cmd) {
        match self {
            Self::Nothing => {}
            Self::Length(most) => {
                command.arg("MAXLEN").arg("~").arg(most);
            }
            Self::Age(longest) => {
                // An entry's id begins with its time in milliseconds. The clock is this worker's, the ids' is the
                // server's: what is about so old differs by as much.
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let oldest = now.unwrap_or_default().saturating_sub(longest);
                command
                    .arg("MINID")
                    .arg("~")
                    .arg(oldest.as_millis().to_string());
            }
        }
    }
}

struct Checked {
    server: redis_server::Checked,
    key: String,
    trim: Trim,
}

impl Checked {
    fn read(given: &Value) -> Result<Self, SettingsError> {
        let given: Settings = settings::parse(KIND, given)?;
        let refused = |key, reason: &str| Err(SettingsError::invalid(KIND, key, reason));
        let server =
            redis_server::Checked::read(KIND, given.url_env, given.timeout_ms, given.batch)?;
        let key = given.key.unwrap_or_else(|| DEFAULT_KEY.to_owned());
        if key.is_empty() {
            return refused("key", "it must not be empty");
        }
        let trim = match (given.max_len, given.max_age_s) {
            (None, None) => Trim::Nothing,
            (Some(most), None) if (1..=MOST_ENTRIES).contains(&most) => Trim::Length(most),
            (None, Some(age)) if (1..=LONGEST_AGE_S).contains(&age) => {
                Trim::Age(Duration::from_secs(age))
            }
            (Some(_), None) => return refused("max_len", "it must lie between 1 and 1000000000"),
            (None, Some(_)) => return refused("max_age_s", "it must lie between 1 and 315576000"),
            (Some(_), Some(_)) => {
                return refused(
                    "max_age_s",
                    "a stream is trimmed by it or by max_len, not by both",
                );
            }
        };
        Ok(Self { server, key, trim })
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
) -> Result<RedisStream, SettingsError> {
    let Checked { server, key, trim } = Checked::read(settings)?;
    Ok(RedisStream {
        batch: server.batch,
        server: server.open(subscription, environment)?,
        key,
        trim,
    })
}

/// Adds each event to a stream of one Redis server.
pub(super) struct RedisStream {
    server: Server,
    key: String,
    trim: Trim,
    batch: usize,
}

impl RedisStream {
    fn command(&self, delivery: &Delivery<'_>) -> Cmd {
        let event = delivery.event;
        let mut command = redis::cmd("XADD");
        command.arg(named(&self.key, delivery));
        self.trim.add_to(&mut command);
        command
            .arg("*")
            .arg("id")
            .arg(event.message_id.to_string())
            .arg("stream")
            .arg(&*event.stream)
            .arg("session")
            .arg(&*event.session)
            .arg("seq")
            .arg(event.seq)
            .arg("type")
            .arg(&*event.event_type)
            .arg("attempt")
            .arg(delivery.attempt);
        let stored;
        let trace = match delivery.trace {
            Some(trace) => trace,
            None => {
                stored = TraceContext::of_event(event.headers.as_deref());
                &stored
            }
        };
        if let Some(parent) = &trace.traceparent {
            command.arg("traceparent").arg(parent);
            if let Some(state) = &trace.tracestate {
                command.arg("tracestate").arg(state);
            }
        }
        command.arg("event").arg(envelope::body(delivery));
        command
    }
}

#[async_trait]
impl Adapter for RedisStream {
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

    fn refusal(settings: Value) -> String {
        check(&settings).unwrap_err().to_string()
    }

    #[test]
    fn settings_that_cannot_work_are_refused_without_being_repeated() {
        let error = refusal(json!({"url_env": "redis://:secret@host"}));
        assert!(
            error.contains("`url_env`") && !error.contains("secret"),
            "{error}"
        );
        assert!(refusal(json!({"url_env": "R", "key": ""})).contains("`key`"));
        assert!(refusal(json!({"url_env": "R", "max_len": 0})).contains("`max_len`"));
        for age in [0, LONGEST_AGE_S + 1] {
            assert!(refusal(json!({"url_env": "R", "max_age_s": age})).contains("`max_age_s`"));
        }
        let both = refusal(json!({"url_env": "R", "max_len": 5, "max_age_s": 5}));
        assert!(both.contains("not by both"), "{both}");
        assert!(refusal(json!({"url_env": "R", "batch": 101})).contains("between 1 and 100"));
        assert!(refusal(json!({})).contains("missing field `url_env`"));
        let environment = Environment::with_variables(false, [("R", "http://:secret@host")]);
        let error = build("out", &json!({"url_env": "R"}), &environment)
            .err()
            .unwrap();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
