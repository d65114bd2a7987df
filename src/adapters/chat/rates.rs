//! What is kept of a platform's limits, and what a subscription says instead with `rates`.

use std::collections::BTreeMap;
use std::time::Duration;

use lanekeeper_core::bucket::Rate;
use serde::Deserialize;

use crate::SettingsError;

/// A limit of a platform's.
#[derive(Debug)]
pub struct PlatformLimit {
    /// Its name among the `rates`, and in its buckets.
    pub name: &'static str,
    /// Whether each chat has it, and not all that a bot sends together.
    pub per_chat: bool,
    sends: u32,
    seconds: u64,
}

impl PlatformLimit {
    /// Of all that a bot sends: so many requests in so many seconds.
    pub const fn of_bot(name: &'static str, sends: u32, seconds: u64) -> Self {
        Self {
            name,
            per_chat: false,
            sends,
            seconds,
        }
    }

    /// Of what it sends to one chat.
    pub const fn of_chat(name: &'static str, sends: u32, seconds: u64) -> Self {
        Self {
            per_chat: true,
            ..Self::of_bot(name, sends, seconds)
        }
    }
}

/// The rates that a subscription sets, by the names of the platform's limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Rates(BTreeMap<String, Rate>);

impl Rates {
    /// Refuses names that are none of these limits'.
    pub fn check(
        &self,
        kind: &'static str,
        limits: &'static [PlatformLimit],
    ) -> Result<(), SettingsError> {
        let is_known = |name: &String| limits.iter().any(|limit| limit.name == name);
        let Some(unknown) = self.0.keys().find(|name| !is_known(name)) else {
            return Ok(());
        };
        let names: Vec<&str> = limits.iter().map(|limit| limit.name).collect();
        let reason = format!(
            "there is no rate {unknown:?}, there are {}",
            names.join(", ")
        );
        Err(SettingsError::invalid(kind, "rates", reason))
    }

    /// What counts: what was set, or the platform's.
    pub fn of(&self, limit: &PlatformLimit) -> Rate {
        self.0.get(limit.name).copied().unwrap_or_else(|| {
            Rate::new(limit.sends, Duration::from_secs(limit.seconds))
                .expect("the defaults are rates")
        })
    }
}

/// A rate by which all subscriptions must go that a platform counts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformRate {
    pub kind: &'static str,
    /// The variable with the secret by which the platform knows who sends.
    pub secret_env: String,
    /// Its name among the `rates`.
    pub name: &'static str,
    /// The chat that it is of; `None`: of all that is sent with the secret, or of whichever chat an event names.
    pub chat: Option<String>,
    pub rate: Rate,
}

impl PlatformRate {
    /// Whether both are of what the platform counts together, and differ.
    pub fn contradicts(&self, other: &Self) -> bool {
        let is_same_chat = self.chat.is_none() || other.chat.is_none() || self.chat == other.chat;
        (self.kind, self.name, &self.secret_env) == (other.kind, other.name, &other.secret_env)
            && is_same_chat
            && self.rate != other.rate
    }
}
