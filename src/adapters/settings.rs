//! Reads an adapter's settings, and reports what is wrong with them.
//!
//! `apply` already finds every mistake and names its key. Errors do not repeat values, because a URL may contain a
//! credential.

use std::time::Duration;

use serde::de::value::Error as Stopped;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;
use thiserror::Error;

use super::environment::SecretError;

/// Why an adapter cannot be built. Nothing is lost by it: the events wait until the subscription
/// is applied again with settings that work. Print the chain: the reason is often in the source.
#[derive(Debug, Error)]
pub enum SettingsError {
    #[error("there is no adapter `{kind}`{}; known adapters: {}", did_you_mean(kind, known), known.join(", "))]
    UnknownAdapter {
        kind: String,
        known: &'static [&'static str],
    },
    #[error(
        "a program that embeds Lanekeeper delivers these events, and this worker is another one: they wait for that program"
    )]
    Embedded,
    #[error("the {adapter} adapter has no setting `{key}`{}; known settings: {}", did_you_mean(key, known), known.join(", "))]
    UnknownKey {
        adapter: &'static str,
        key: String,
        known: &'static [&'static str],
    },
    #[error("the {adapter} adapter's setting `{key}` is not usable: {reason}")]
    Invalid {
        adapter: &'static str,
        key: String,
        reason: String,
    },
    #[error("the {adapter} adapter's settings cannot be read: {reason}")]
    Unreadable {
        adapter: &'static str,
        reason: String,
    },
    #[error("subscription `{subscription}` has no usable secret, so nothing is sent for it")]
    Secret {
        subscription: String,
        source: SecretError,
    },
    #[error("subscription `{subscription}`: the secret in {variable} cannot sign")]
    Key {
        subscription: String,
        variable: String,
        source: super::KeyError,
    },
    #[error("subscription `{subscription}`: what {variable} holds is not usable: {reason}")]
    Token {
        subscription: String,
        variable: String,
        reason: &'static str,
    },
    #[error(
        "subscription `{subscription}`: https needs the system's certificates to verify its \
         target; install them (Debian: ca-certificates) or name a file in SSL_CERT_FILE"
    )]
    Certificates {
        subscription: String,
        source: reqwest::Error,
    },
    #[error("subscription `{subscription}`: the standard output cannot be opened")]
    Output {
        subscription: String,
        source: std::io::Error,
    },
}

impl SettingsError {
    pub(super) fn invalid(adapter: &'static str, key: &str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            adapter,
            key: key.to_owned(),
            reason: reason.into(),
        }
    }
}

/// Reads `settings` as `T`, whose fields are the known keys.
pub(super) fn parse<T: DeserializeOwned>(
    adapter: &'static str,
    settings: &Value,
) -> Result<T, SettingsError> {
    let known = fields::<T>();
    if let Some(given) = settings.as_object()
        && let Some(key) = given.keys().find(|key| !known.contains(&key.as_str()))
    {
        let key = key.clone();
        return Err(SettingsError::UnknownKey {
            adapter,
            key,
            known,
        });
    }
    serde_path_to_error::deserialize(settings).map_err(|error| {
        let key = error.path().to_string();
        let reason = error.into_inner().to_string();
        // A path of "." is the whole: not an object, or a key that is missing from it.
        if key == "." {
            SettingsError::Unreadable { adapter, reason }
        } else {
            SettingsError::Invalid {
                adapter,
                key,
                reason,
            }
        }
    })
}

/// A time-out in milliseconds, between 1 and `longest`.
pub(super) fn timeout(
    adapter: &'static str,
    given_ms: Option<u64>,
    default: Duration,
    longest: Duration,
) -> Result<Duration, SettingsError> {
    let timeout = given_ms.map_or(default, Duration::from_millis);
    if timeout.is_zero() || timeout > longest {
        let reason = format!("it must lie between 1 and {} ms", longest.as_millis());
        return Err(SettingsError::invalid(adapter, "timeout_ms", reason));
    }
    Ok(timeout)
}

/// How many events go in one request: 1 by default, at most `most`.
pub(super) fn batch(
    adapter: &'static str,
    given: Option<u64>,
    most: usize,
) -> Result<usize, SettingsError> {
    let batch = given.map_or(Some(1), |given| usize::try_from(given).ok());
    batch
        .filter(|batch| (1..=most).contains(batch))
        .ok_or_else(|| {
            let reason = format!("it must lie between 1 and {most}");
            SettingsError::invalid(adapter, "batch", reason)
        })
}

fn did_you_mean(given: &str, known: &[&str]) -> String {
    let by_likeness = known
        .iter()
        .map(|word| (strsim::jaro_winkler(given, word), word));
    match by_likeness.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
        Some((likeness, nearest)) if likeness > 0.7 => format!(" (did you mean `{nearest}`?)"),
        _ => String::new(),
    }
}

/// The names that `T`'s derived `Deserialize` asks for, from the derive itself: a list kept beside
/// the struct would drift from it.
fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // Stopped before any value is read, so there is no result to look at.
    let _ = T::deserialize(FieldProbe(&mut fields));
    fields
}

struct FieldProbe<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldProbe<'_> {
    type Error = Stopped;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Stopped> {
        *self.0 = fields;
        Err(Stopped::custom("only the field names were asked for"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Stopped> {
        Err(Stopped::custom("not a struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
