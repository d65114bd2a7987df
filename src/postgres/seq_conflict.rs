//! The refusal of an append whose seq is not the one that its caller expected, as the schema words it.

use serde::Deserialize;
use tokio_postgres::error::DbError;

use super::Refusal;

/// The event would have had another seq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeqConflict {
    pub refusal: Refusal,
    /// The seq that there is: the session's newest, or that of the event with the same key or id. `None`: it is not known.
    pub seq: Option<i64>,
}

impl SeqConflict {
    pub(super) fn of(said: &DbError) -> Self {
        Self::read(Refusal::of(said), said.detail().unwrap_or_default())
    }

    /// `detail` is the JSON object of `lanekeeper.enqueue_at`.
    fn read(refusal: Refusal, detail: &str) -> Self {
        #[derive(Deserialize)]
        struct Detail {
            seq: i64,
        }
        let detail = serde_json::from_str(detail).ok();
        Self {
            refusal,
            seq: detail.map(|Detail { seq }| seq),
        }
    }
}
