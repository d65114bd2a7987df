//! What a stream says about the delivery of its events, for subscriptions that say nothing of their own.

use std::time::Duration;

use serde::Serialize;

use super::pending::in_words;

/// `timeout`, `batch` and `poll_floor` of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeliveryDefaults {
    /// How long a delivery may take. `None`: as long as the adapter allows by default.
    #[serde(serialize_with = "in_words", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// How many events of a session go together. `None`: as the adapter does by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// The longest time between two scans of an idle worker that delivers the stream. `None`: the worker's.
    #[serde(serialize_with = "in_words", skip_serializing_if = "Option::is_none")]
    pub poll_floor: Option<Duration>,
}

impl DeliveryDefaults {
    /// The longest `timeout`: no adapter waits longer.
    pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(3_600);
    /// The largest `batch`: no adapter takes more.
    pub const LARGEST_BATCH: u32 = 100;
    pub const SHORTEST_POLL_FLOOR: Duration = Duration::from_millis(10);
    pub const LONGEST_POLL_FLOOR: Duration = Duration::from_secs(60);
}
