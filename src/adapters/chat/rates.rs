//! The rate limits of chat platforms, and the subscription's key `rates`, which overrides them.

use std::collections::BTreeMap;
use std::time::Duration;

use lanekeeper_core::bucket::Rate;
use serde::Deserialize;

use crate::SettingsError;

/// A rate limit of a platform.
#[derive(Debug)]
pub struct PlatformLimit {
    /// Its key in `rates`, and a part of its buckets' keys.
    pub name: &'static str,
    /// Whether it applies to each chat separately. Otherwise it applies to everything that a bot sends.
    pub per_chat: bool,
    sends: u32,
    seconds: u64,
}

impl PlatformLimit {
    /// A limit on everything that a bot sends: this many requests in this many seconds.
    pub const fn of_bot(name: &'static str, sends: u32, seconds: u64) -> Self {
        Self {
            name,
            per_chat: false,
            sends,
            seconds,
        }
    }

    /// A limit on what a bot sends to one chat.
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
    /// Refuses names that are not among these limits.
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

    /// The rate that applies: the subscription's, or else the platform's.
    pub fn of(&self, limit: &PlatformLimit) -> Rate {
        self.0.get(limit.name).copied().unwrap_or_else(|| {
            Rate::new(limit.sends, Duration::from_secs(limit.seconds))
                .expect("the defaults are rates")
        })
    }
}

/// A rate limit that the platform counts over several subscriptions. They must all set the same rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformRate {
    pub kind: &'static str,
    /// The variable with the secret that identifies the sender to the platform.
    pub secret_env: String,
    /// Its key in `rates`.
    pub name: &'static str,
    /// The chat that it applies to. `None`: it applies to everything that is sent with the secret, or events name the
    /// chat.
    pub chat: Option<String>,
    pub rate: Rate,
}

impl PlatformRate {
    /// Whether the platform counts both together, and their rates differ.
    pub fn contradicts(&self, other: &Self) -> bool {
        let is_same_chat = self.chat.is_none() || other.chat.is_none() || self.chat == other.chat;
        (self.kind, self.name, &self.secret_env) == (other.kind, other.name, &other.secret_env)
            && is_same_chat
            && self.rate != other.rate
    }
}
