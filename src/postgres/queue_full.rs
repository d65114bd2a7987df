//! The refusal of an append to a session that is full (C5), as the schema words it.

use std::time::Duration;

use serde::Deserialize;
use tokio_postgres::error::DbError;

use super::Refusal;

/// A session has as many undelivered events as one of its subscriptions takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFull {
    pub refusal: Refusal,
    /// The subscription, where it is known.
    pub subscription: Option<String>,
    /// How long it takes at the least until there may be room. `None`: nothing is delivered before an operator acts.
    pub retry_after: Option<Duration>,
}

impl QueueFull {
    /// One of which nothing more is known.
    pub fn of_refusal(refusal: Refusal, retry_after: Option<Duration>) -> Self {
        Self {
            refusal,
            subscription: None,
            retry_after,
        }
    }

    pub(super) fn of(said: &DbError) -> Self {
        Self::read(Refusal::of(said), said.detail().unwrap_or_default())
    }

    /// `detail` is the JSON object of `lanekeeper.raise_queue_full`.
    fn read(refusal: Refusal, detail: &str) -> Self {
        #[derive(Default, Deserialize)]
        struct Detail {
            subscription: Option<String>,
            retry_after_ms: Option<u64>,
        }
        let Detail {
            subscription,
            retry_after_ms,
        } = serde_json::from_str(detail).unwrap_or_default();
        Self {
            refusal,
            subscription,
            retry_after: retry_after_ms.map(Duration::from_millis),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(detail: &str) -> QueueFull {
        let refusal = Refusal {
            message: "full".to_owned(),
            hint: None,
        };
        QueueFull::read(refusal, detail)
    }

    #[test]
    fn the_detail_says_for_whom_it_is_full_and_when_there_may_be_room() {
        let full = read(r#"{"subscription": "out", "pending": 10, "retry_after_ms": 1500}"#);
        assert_eq!(full.subscription.as_deref(), Some("out"));
        assert_eq!(full.retry_after, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn without_a_time_it_does_not_drain() {
        for detail in [
            r#"{"subscription": "out", "retry_after_ms": null}"#,
            "",
            "{",
        ] {
            assert_eq!(read(detail).retry_after, None, "{detail}");
        }
    }
}
