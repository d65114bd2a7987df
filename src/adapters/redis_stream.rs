//! Appends events to a Redis stream: one `XADD`, and so one entry, for each event.
//!
//! An entry has the body that a webhook gets in the field `event`, and fields that a consumer can use without parsing
//! it: `id`, `stream`, `session`, `seq`, `type`, `attempt`, and `traceparent` and `tracestate` where there are any. A
//! delivery whose answer was lost comes again: consumers drop it by `id`.
//!
//! A batch is one transaction of Redis (MULTI, EXEC) and one round trip: either all of its entries are added or none. With
//! less, a server that runs out of memory for a moment could add a later entry and refuse an earlier one.
//!
//! One connection for all lanes, made when it is needed and made anew after it failed.

use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Delivery, Verdict};
use lanekeeper_core::observed::Cause;
use lanekeeper_core::trace::TraceContext;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::settings::{self, SettingsError};
use super::{Environment, descriptors, envelope};

const KIND: &str = "redis_stream";
const DEFAULT_KEY: &str = "lanekeeper:{stream}";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);
/// Events in one round trip.
const MOST_EVENTS: usize = 100;
const MOST_ENTRIES: u64 = 1_000_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The variable with the server's URL, which may hold a password.
    url_env: String,
    /// The stream's key; `{stream}` and `{session}` stand for those of the event.
    key: Option<String>,
    /// About so many entries are kept; all by default.
    max_len: Option<u64>,
    timeout_ms: Option<u64>,
    /// Events in one round trip.
    batch: Option<u64>,
}

struct Checked {
    url_env: String,
    key: String,
    max_len: Option<u64>,
    timeout: Duration,
    batch: usize,
}

impl Checked {
    fn read(given: &Value) -> Result<Self, SettingsError> {
        let given: Settings = settings::parse(KIND, given)?;
        let refused = |key, reason: &str| Err(SettingsError::invalid(KIND, key, reason));
        if given.url_env.contains(':') || given.url_env.is_empty() {
            // Not repeated: it may well be the URL itself.
            return refused(
                "url_env",
                "it must be the name of an environment variable, not the URL",
            );
        }
        let key = given.key.unwrap_or_else(|| DEFAULT_KEY.to_owned());
        if key.is_empty() {
            return refused("key", "it must not be empty");
        }
        if given
            .max_len
            .is_some_and(|most| !(1..=MOST_ENTRIES).contains(&most))
        {
            return refused("max_len", "it must lie between 1 and 1000000000");
        }
        Ok(Self {
            url_env: given.url_env,
            key,
            max_len: given.max_len,
            timeout: settings::timeout(KIND, given.timeout_ms, DEFAULT_TIMEOUT, LONGEST_TIMEOUT)?,
            batch: settings::batch(KIND, given.batch, MOST_EVENTS)?,
        })
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
    let Checked {
        url_env,
        key,
        max_len,
        timeout,
        batch,
    } = Checked::read(settings)?;
    let url = environment
        .secret(&url_env)
        .map_err(|source| SettingsError::Secret {
            subscription: subscription.to_owned(),
            source,
        })?;
    // Fails only where it is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The error's own words could repeat the URL.
    let client = Client::open(url)
        .map_err(|_| SettingsError::invalid(KIND, "url_env", "its value is no URL of a Redis"))?;
    Ok(RedisStream {
        client,
        key,
        max_len,
        timeout,
        batch,
        connection: Mutex::new(None),
    })
}

/// Adds each event to a stream of one Redis server.
pub(super) struct RedisStream {
    client: Client,
    key: String,
    max_len: Option<u64>,
    timeout: Duration,
    batch: usize,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl RedisStream {
    fn key(&self, delivery: &Delivery<'_>) -> String {
        let event = delivery.event;
        // The session last: its name may hold anything, braces too.
        self.key
            .replace("{stream}", &event.stream)
            .replace("{session}", &event.session)
    }

    fn command(&self, delivery: &Delivery<'_>) -> redis::Cmd {
        let event = delivery.event;
        let mut command = redis::cmd("XADD");
        command.arg(self.key(delivery));
        if let Some(most) = self.max_len {
            command.arg("MAXLEN").arg("~").arg(most);
        }
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

    async fn connected(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = &*kept {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            // Each delivery has its own.
            .set_response_timeout(None);
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok(kept.insert(connection).clone())
    }

    async fn add(&self, delivery: &Delivery<'_>) -> Result<(), RedisError> {
        let mut connection = self.connected().await?;
        self.command(delivery).query_async(&mut connection).await
    }

    async fn add_all(&self, deliveries: &[Delivery<'_>]) -> Result<(), RedisError> {
        let mut connection = self.connected().await?;
        let mut transaction = redis::pipe();
        transaction.atomic();
        for delivery in deliveries {
            transaction.add_command(self.command(delivery)).ignore();
        }
        transaction.query_async(&mut connection).await
    }

    /// The next delivery makes a connection of its own.
    async fn forget(&self) {
        *self.connection.lock().await = None;
    }
}

impl RedisStream {
    /// The verdict on what was asked of the server. What is observed is noted with this delivery.
    async fn judged(
        &self,
        delivery: &Delivery<'_>,
        asking: impl Future<Output = Result<(), RedisError>>,
    ) -> Verdict {
        match timeout(self.timeout, asking).await {
            Ok(Ok(())) => Verdict::Accepted,
            Ok(Err(error)) => {
                // A server that refuses may be the wrong one by now: a replica since a failover, another node.
                self.forget().await;
                if error.is_connection_refusal() {
                    delivery.failed_by(Cause::ConnectionRefused);
                } else if error.is_timeout() {
                    delivery.failed_by(Cause::Timeout);
                } else if error.is_connection_dropped() {
                    delivery.failed_by(Cause::ConnectionReset);
                }
                descriptors::unsent(&error, said(&error))
            }
            Err(_) => {
                self.forget().await;
                delivery.failed_by(Cause::Timeout);
                let waited = self.timeout.as_millis();
                Verdict::retry(format!("Redis did not answer within {waited} ms"))
            }
        }
    }
}

#[async_trait]
impl Adapter for RedisStream {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        self.judged(delivery, self.add(delivery)).await
    }

    fn max_batch(&self) -> usize {
        self.batch
    }

    async fn deliver_batch(&self, deliveries: &[Delivery<'_>]) -> BatchVerdict {
        match deliveries.first() {
            Some(first) => BatchVerdict::Whole(self.judged(first, self.add_all(deliveries)).await),
            None => BatchVerdict::Each(Vec::new()),
        }
    }
}

/// Without what it was asked: the server's code and words, or what kind of failure it was. Everything may be
/// mended: a full memory, a replica, a key of another type, a password.
fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("Redis refused it: {code} {detail}"),
        (Some(code), None) => format!("Redis refused it: {code}"),
        (None, _) if error.is_connection_refusal() => "Redis refuses connections".to_owned(),
        (None, _) => format!("Redis cannot be reached: {}", error.category()),
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
        assert!(refusal(json!({"url_env": "R", "batch": 101})).contains("between 1 and 100"));
        assert!(refusal(json!({})).contains("missing field `url_env`"));
        let environment = Environment::with_variables(false, [("R", "http://:secret@host")]);
        let error = build("out", &json!({"url_env": "R"}), &environment)
            .err()
            .unwrap();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
