//! Every setting as `lanekeeper config` shows it.

use figment::value::Value;

use super::mask::{masked_postgres_url, masked_redis_url};
use super::problem::Origin;
use super::schema;
use super::settings::Config;

/// A setting as it took effect, fit to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    pub key: String,
    /// `None`: not set. Secrets are masked.
    pub value: Option<String>,
    pub origin: Origin,
}

impl Config {
    /// Every setting with its value and source, secrets masked, ordered by key.
    pub fn effective(&self) -> Vec<Effective> {
        schema::flatten(self)
            .into_iter()
            .map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    (_, Value::Empty(..)) => None,
                    ("database.url", _) => self
                        .database
                        .url
                        .as_ref()
                        .map(|url| masked_postgres_url(url.expose())),
                    ("redis.url", _) => self
                        .redis
                        .url
                        .as_ref()
                        .map(|url| masked_redis_url(url.expose())),
                    (_, value) => Some(schema::shown(&value)),
                };
                Effective {
                    origin: self.origins.of(&key),
                    key,
                    value,
                }
            })
            .collect()
    }
}
