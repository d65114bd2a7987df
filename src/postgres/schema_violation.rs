//! The refusal of an event whose payload its type's schema does not take, as the schema of the database words it.

use serde::Deserialize;
use tokio_postgres::error::DbError;

use super::Refusal;

/// A payload does not match the JSON Schema of its event type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaViolation {
    pub refusal: Refusal,
    /// A JSON pointer into the payload. One of more than 2,000 bytes is cut at its beginning, and starts with `…` then.
    pub pointer: String,
    /// The keyword that is not met; `limit`: the payload cannot be checked within the bounds.
    pub keyword: String,
    /// The number of the event in its call, from 1, where that was a bulk call.
    pub event: Option<u64>,
}

impl SchemaViolation {
    /// `None`: LK006 was raised for another reason.
    pub(super) fn of(said: &DbError) -> Option<Self> {
        Self::read(Refusal::of(said), said.detail()?)
    }

    /// `detail` is the JSON object of `lanekeeper.check_schema`.
    fn read(refusal: Refusal, detail: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Detail {
            pointer: String,
            keyword: String,
            event: Option<u64>,
        }
        let Detail {
            pointer,
            keyword,
            event,
        } = serde_json::from_str(detail).ok()?;
        Some(Self {
            refusal,
            pointer,
            keyword,
            event,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(detail: &str) -> Option<SchemaViolation> {
        let refusal = Refusal {
            message: "wrong".to_owned(),
            hint: None,
        };
        SchemaViolation::read(refusal, detail)
    }

    #[test]
    fn the_detail_says_what_is_wrong_and_where() {
        let wrong = read(r#"{"event": 2, "keyword": "type", "pointer": "/a", "event_type": "t"}"#);
        let wrong = wrong.unwrap();
        assert_eq!((&*wrong.pointer, &*wrong.keyword), ("/a", "type"));
        assert_eq!(wrong.event, Some(2));
    }

    #[test]
    fn another_invalid_argument_is_no_violation() {
        for detail in ["", "{", r#"{"event": 2}"#] {
            assert_eq!(read(detail), None, "{detail}");
        }
    }
}
