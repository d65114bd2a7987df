//! A subscription's `limit`: how fast its destination may be sent to.
//!
//! In the database it stands among the adapter's settings, which an older release refuses as a whole: a
//! worker that knows no limits delivers no limited subscription, instead of delivering it too fast.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::Url;

use crate::bucket::{Bucket, Rate};

/// Its key in the file and in the database.
pub const LIMIT: &str = "limit";

/// `{ rate = "30/s", burst = 1, key = "…" }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    pub rate: Rate,
    #[serde(default = "one")]
    pub burst: u32,
    /// Subscriptions with the same key share the limit. `None`: those with the same destination do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

fn one() -> u32 {
    1
}

/// Takes the limits out of what the database has as settings.
///
/// # Errors
/// Where this release does not understand them.
pub fn split(mut settings: Value) -> Result<(Vec<Limit>, Value), serde_json::Error> {
    let limits = match settings.as_object_mut().and_then(|all| all.remove(LIMIT)) {
        Some(limits) => serde_json::from_value(limits)?,
        None => Vec::new(),
    };
    Ok((limits, settings))
}

/// The settings as the database has them.
pub fn join(limits: &[Limit], mut settings: Value) -> Value {
    if let (false, Some(all)) = (limits.is_empty(), settings.as_object_mut()) {
        all.insert(LIMIT.to_owned(), serde_json::json!(limits));
    }
    settings
}

/// The buckets that every send of a subscription draws on.
pub fn buckets(limits: &[Limit], adapter: &str, settings: &Value) -> Vec<Bucket> {
    let bucket = |limit: &Limit| Bucket {
        key: match &limit.key {
            Some(key) => key.as_str().into(),
            // Several limits of one destination are several buckets.
            None => format!(
                "{} {}",
                destination(adapter, settings),
                limit.rate.per().as_secs()
            )
            .into(),
        },
        rate: limit.rate,
        burst: limit.burst,
    };
    let mut buckets = Vec::with_capacity(limits.len());
    for bucket in limits.iter().map(bucket) {
        // Written twice it would be drawn on twice.
        if !buckets.contains(&bucket) {
            buckets.push(bucket);
        }
    }
    buckets
}

/// A name for where a subscription delivers to. Paths of webhook URLs are often credentials: only
/// their hash enters it.
pub fn destination(adapter: &str, settings: &Value) -> String {
    // A bot is one destination, whatever chats it speaks in.
    let place = ["url", "command", "function", "url_env", "token_env"]
        .iter()
        .find_map(|key| settings.get(key));
    let origin = place
        .and_then(Value::as_str)
        .and_then(|url| Url::parse(url).ok())
        .map(|url| format!(" {}", url.origin().ascii_serialization()));
    let hash = place.map(|place| {
        let hash = Sha256::digest(place.to_string());
        let digits: String = hash
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!(" {digits}")
    });
    format!(
        "{adapter}{}{}",
        origin.unwrap_or_default(),
        hash.unwrap_or_default()
    )
}
