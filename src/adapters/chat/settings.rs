//! The settings that all chat adapters share. They are checked without a secret and without the network.

use std::time::Duration;

use url::{Host, Url};

use super::api::{Api, Credential};
use super::message::{Reading, Source};
use super::rates::{PlatformLimit, PlatformRate, Rates};
use crate::Environment;
use crate::settings::{self, SettingsError};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);

/// A settings struct with what all chats have, and its own: one flat list, for the derive tells which keys
/// there are.
macro_rules! shared_settings {
    ($(#[$meta:meta])* struct $name:ident { $($own:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($own: $type,)*
            chat_from: Option<String>,
            thread: Option<String>,
            thread_from: Option<String>,
            reply_to_from: Option<String>,
            text_from: Option<String>,
            key_from: Option<String>,
            final_from: Option<String>,
            typing: Option<bool>,
            timeout_ms: Option<u64>,
            rates: Option<crate::chat::Rates>,
        }

        impl $name {
            fn shared(&mut self) -> crate::chat::Shared {
                crate::chat::Shared {
                    chat_from: self.chat_from.take(),
                    thread: self.thread.take(),
                    thread_from: self.thread_from.take(),
                    reply_to_from: self.reply_to_from.take(),
                    text_from: self.text_from.take(),
                    key_from: self.key_from.take(),
                    final_from: self.final_from.take(),
                    typing: self.typing,
                    timeout_ms: self.timeout_ms,
                    rates: self.rates.take(),
                }
            }
        }
    };
}
pub(crate) use shared_settings;

/// The common settings as they were given.
pub struct Shared {
    pub chat_from: Option<String>,
    pub thread: Option<String>,
    pub thread_from: Option<String>,
    pub reply_to_from: Option<String>,
    pub text_from: Option<String>,
    pub key_from: Option<String>,
    pub final_from: Option<String>,
    pub typing: Option<bool>,
    pub timeout_ms: Option<u64>,
    pub rates: Option<Rates>,
}

/// The common settings once they have been judged.
#[derive(Debug)]
pub struct Checked {
    pub kind: &'static str,
    pub limits: &'static [PlatformLimit],
    pub rates: Rates,
    pub reading: Reading,
    pub typing: bool,
    pub timeout: Duration,
}

impl Shared {
    /// `chat`: the setting that names the chat, and what it says; `None` where the adapter has one place.
    pub fn check(
        self,
        kind: &'static str,
        limits: &'static [PlatformLimit],
        chat: Option<(&'static str, Option<String>)>,
    ) -> Result<Checked, SettingsError> {
        let pointers = [
            ("chat_from", &self.chat_from),
            ("thread_from", &self.thread_from),
            ("reply_to_from", &self.reply_to_from),
            ("text_from", &self.text_from),
            ("key_from", &self.key_from),
            ("final_from", &self.final_from),
        ];
        for (key, pointer) in pointers {
            if pointer.as_ref().is_some_and(|text| !text.starts_with('/')) {
                let reason = "it must be a JSON pointer into the payload, such as \"/chat_id\"";
                return Err(SettingsError::invalid(kind, key, reason));
            }
        }
        let chat = match chat {
            None if self.chat_from.is_some() => {
                let reason = "a webhook has its channel: there is no other to be named";
                return Err(SettingsError::invalid(kind, "chat_from", reason));
            }
            None => None,
            Some((key, given)) => match source(kind, key, given, "chat_from", self.chat_from)? {
                None => {
                    let reason = format!(
                        "it must say where to send: {key} = \"…\", or chat_from = \"/pointer\" into the payload"
                    );
                    return Err(SettingsError::invalid(kind, key, reason));
                }
                some => some,
            },
        };
        let thread = source(kind, "thread", self.thread, "thread_from", self.thread_from)?;
        let rates = self.rates.unwrap_or_default();
        rates.check(kind, limits)?;
        Ok(Checked {
            kind,
            limits,
            rates,
            reading: Reading::new(
                self.text_from,
                self.key_from,
                self.final_from,
                [chat, thread],
                self.reply_to_from,
            ),
            typing: self.typing.unwrap_or(false),
            timeout: settings::timeout(kind, self.timeout_ms, DEFAULT_TIMEOUT, LONGEST_TIMEOUT)?,
        })
    }
}

impl Checked {
    /// The rates that hold for all who send with this variable's secret.
    pub fn platform_rates(&self, secret_env: &str) -> Vec<PlatformRate> {
        let rate = |limit: &PlatformLimit| PlatformRate {
            kind: self.kind,
            secret_env: secret_env.to_owned(),
            name: limit.name,
            chat: self
                .reading
                .given_chat()
                .filter(|_| limit.per_chat)
                .map(str::to_owned),
            rate: self.rates.of(limit),
        };
        self.limits.iter().map(rate).collect()
    }
}

/// A bot: the variable with its token, and where the platform's API is.
#[derive(Debug)]
pub struct Bot {
    pub token_env: String,
    api_url: Url,
}

impl Bot {
    pub fn check(
        kind: &'static str,
        token_env: String,
        api_url: Option<&str>,
        default: &'static str,
    ) -> Result<Self, SettingsError> {
        Ok(Self {
            token_env: variable(kind, "token_env", token_env)?,
            api_url: checked_url(kind, api_url.unwrap_or(default))?,
        })
    }

    /// The API as this bot may use it.
    pub fn open(
        self,
        subscription: &str,
        checked: &Checked,
        environment: &Environment,
    ) -> Result<Api, SettingsError> {
        let token = Credential::of_environment(subscription, &self.token_env, environment)?;
        Api::open(
            checked,
            "api_url",
            self.api_url,
            token,
            subscription,
            environment,
        )
    }
}

fn source(
    kind: &'static str,
    key: &'static str,
    given: Option<String>,
    from: &'static str,
    pointer: Option<String>,
) -> Result<Option<Source>, SettingsError> {
    match (given, pointer) {
        (Some(_), Some(_)) => {
            let reason = format!("{from} says it too: keep one");
            Err(SettingsError::invalid(kind, key, reason))
        }
        (Some(name), None) if name.is_empty() => {
            Err(SettingsError::invalid(kind, key, "it must not be empty"))
        }
        (Some(name), None) => Ok(Some(Source::Given(name))),
        (None, pointer) => Ok(pointer.map(Source::Pointer)),
    }
}

/// Where an API is: https, but for a server on this very machine, where the operator allows private targets.
fn checked_url(kind: &'static str, given: &str) -> Result<Url, SettingsError> {
    let refused = |reason: &str| SettingsError::invalid(kind, "api_url", reason);
    let url = Url::parse(given).map_err(|error| refused(&error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(refused(
            "it must be a plain base URL, without credentials or query",
        ));
    }
    secure(&url).map_err(refused)?;
    Ok(url)
}

/// A credential goes there: it must not be readable on the way.
pub fn secure(url: &Url) -> Result<(), &'static str> {
    let loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if loopback => Ok(()),
        _ => Err("it must be https: a token goes there (http is for loopback only)"),
    }
}

/// Whether it may be the name of an environment variable, and is not the secret itself.
fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The name of the variable with a secret; the secret itself is refused, and not repeated.
pub fn variable(
    kind: &'static str,
    key: &'static str,
    given: String,
) -> Result<String, SettingsError> {
    match is_variable(&given) {
        true => Ok(given),
        false => {
            let reason = "it must be the name of an environment variable, not the secret";
            Err(SettingsError::invalid(kind, key, reason))
        }
    }
}
