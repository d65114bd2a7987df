//! One Redis server as a destination: its connection, and what its answers mean for a delivery.
//!
//! One connection for all lanes, made when it is needed and made anew after it failed. Several commands go as one
//! transaction of Redis (MULTI, EXEC) and one round trip: either all of them are carried out or none. With less, a server
//! that runs out of memory for a moment could take a later event and refuse an earlier one.

use std::time::Duration;

use lanekeeper_core::adapter::{Delivery, Verdict};
use lanekeeper_core::observed::Cause;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::settings::SettingsError;
use super::{Environment, descriptors};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);
/// Events in one round trip.
pub(super) const MOST_EVENTS: usize = 100;

/// The settings of a server, judged without reading a secret.
pub(super) struct Checked {
    kind: &'static str,
    url_env: String,
    timeout: Duration,
    pub batch: usize,
}

impl Checked {
    pub fn read(
        kind: &'static str,
        url_env: String,
        timeout_ms: Option<u64>,
        batch: Option<u64>,
    ) -> Result<Self, SettingsError> {
        if url_env.contains(':') || url_env.is_empty() {
            // Not repeated: it may well be the URL itself.
            let reason = "it must be the name of an environment variable, not the URL";
            return Err(SettingsError::invalid(kind, "url_env", reason));
        }
        Ok(Self {
            kind,
            url_env,
            timeout: super::settings::timeout(kind, timeout_ms, DEFAULT_TIMEOUT, LONGEST_TIMEOUT)?,
            batch: super::settings::batch(kind, batch, MOST_EVENTS)?,
        })
    }

    /// The server of one subscription. Connects to nothing yet.
    pub fn open(
        self,
        subscription: &str,
        environment: &Environment,
    ) -> Result<Server, SettingsError> {
        let url = environment
            .secret(&self.url_env)
            .map_err(|source| SettingsError::Secret {
                subscription: subscription.to_owned(),
                source,
            })?;
        // Fails only where it is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The error's own words could repeat the URL.
        let client = Client::open(url).map_err(|_| {
            SettingsError::invalid(self.kind, "url_env", "its value is no URL of a Redis")
        })?;
        Ok(Server {
            client,
            timeout: self.timeout,
            connection: Mutex::new(None),
        })
    }
}

/// A pattern with the event's stream and session in place of `{stream}` and `{session}`.
pub(super) fn named(pattern: &str, delivery: &Delivery<'_>) -> String {
    let event = delivery.event;
    // The session last: its name may hold anything, braces too.
    pattern
        .replace("{stream}", &event.stream)
        .replace("{session}", &event.session)
}

pub(super) struct Server {
    client: Client,
    timeout: Duration,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Server {
    /// Carries out commands, all or none, and judges what became of them. What is observed is noted with this delivery.
    pub async fn run(&self, delivery: &Delivery<'_>, commands: Vec<Cmd>) -> Verdict {
        match timeout(self.timeout, self.carry_out(commands)).await {
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

    async fn carry_out(&self, commands: Vec<Cmd>) -> Result<(), RedisError> {
        let mut connection = self.connected().await?;
        if let [command] = commands.as_slice() {
            return command.query_async(&mut connection).await;
        }
        let mut transaction = redis::pipe();
        transaction.atomic();
        for command in commands {
            transaction.add_command(command).ignore();
        }
        transaction.query_async(&mut connection).await
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

    /// The next delivery makes a connection of its own.
    async fn forget(&self) {
        *self.connection.lock().await = None;
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
