//! Finds lanes without reading idle ones.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::{StoreError, read};

/// A lane as people see it.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
pub struct LaneStatus {
    pub lane_id: i64,
    pub stream: String,
    pub session: String,
    pub subscription: String,
    /// idle | ready | held | blocked | parked | paused | removed
    pub state: String,
    /// Everything up to and including this seq is settled.
    pub cursor: i64,
    pub newest_seq: i64,
    /// Events after the cursor, those that the filter will leave out included; 0 where it leaves all of them out.
    pub behind: i64,
    /// The event that is next.
    pub head_seq: Option<i64>,
    pub head_age_s: Option<f64>,
    /// Failed attempts on the head.
    pub attempts: i32,
    /// Workers that died while they held it.
    pub crashes: i32,
    pub retry_at: Option<Timestamp>,
    pub parked_at: Option<Timestamp>,
    pub last_error: Option<String>,
    pub changed_at: Timestamp,
    /// Events up to this seq were sent, and are not all acknowledged.
    pub sent_seq: Option<i64>,
    /// When the first of them that is not is sent again.
    pub ack_due_at: Option<Timestamp>,
    /// The worker that holds it.
    pub held_by: Option<i64>,
}

impl LaneStatus {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            lane_id: row.try_get("lane_id")?,
            stream: row.try_get("stream")?,
            session: row.try_get("session")?,
            subscription: row.try_get("subscription")?,
            state: row.try_get("state")?,
            cursor: row.try_get("cursor")?,
            newest_seq: row.try_get("newest_seq")?,
            behind: row.try_get("behind")?,
            head_seq: row.try_get("head_seq")?,
            head_age_s: row.try_get("head_age_s")?,
            attempts: row.try_get("attempts")?,
            crashes: row.try_get("crashes")?,
            retry_at: row.try_get("retry_at")?,
            parked_at: row.try_get("parked_at")?,
            last_error: row.try_get("last_error")?,
            changed_at: row.try_get("changed_at")?,
            sent_seq: row.try_get("sent_seq")?,
            ack_due_at: row.try_get("ack_due_at")?,
            held_by: row.try_get("held_by")?,
        })
    }
}

/// Where a page of lanes ended; the next one begins behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanePlace {
    /// Microseconds since 1970 of the ready entry; below 0 for a parked lane.
    pub due_us: i64,
    pub position: i64,
}

/// Of what Postgres can add to 1970: the year 9999.
const LAST_DUE_US: i64 = 253_402_300_800_000_000;

/// As links and cursors carry it.
impl fmt::Display for LanePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.due_us, self.position)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such place in the list of lanes")]
pub struct NoSuchPlace;

impl FromStr for LanePlace {
    type Err = NoSuchPlace;

    fn from_str(text: &str) -> Result<Self, NoSuchPlace> {
        let (due_us, position) = text.split_once('.').ok_or(NoSuchPlace)?;
        let due_us: i64 = due_us.parse().map_err(|_| NoSuchPlace)?;
        if due_us >= LAST_DUE_US {
            return Err(NoSuchPlace);
        }
        Ok(Self {
            due_us: due_us.max(-1),
            position: position.parse().map_err(|_| NoSuchPlace)?,
        })
    }
}

/// Which lanes are listed.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaneFilter<'a> {
    /// `None`: all.
    pub subscription_ids: Option<&'a [i32]>,
    /// Those in back-off and parked only.
    pub held_up: bool,
    pub after: Option<LanePlace>,
}

/// The ids of at most `limit` lanes that have something to do, each with its place in the list.
///
/// # Errors
/// Where they cannot be read.
pub async fn active_lanes(
    client: &impl GenericClient,
    filter: LaneFilter<'_>,
    limit: i64,
) -> Result<Vec<(i64, LanePlace)>, StoreError> {
    let statement = include_str!("../sql/lane_active.sql");
    read(
        client,
        "looking for lanes",
        statement,
        &[
            (&filter.subscription_ids, Type::INT4_ARRAY),
            (&filter.held_up, Type::BOOL),
            (&limit, Type::INT8),
            (&filter.after.map(|place| place.due_us), Type::INT8),
            (&filter.after.map(|place| place.position), Type::INT8),
        ],
        |row| {
            let place = LanePlace {
                due_us: row.try_get("due_us")?,
                position: row.try_get("position")?,
            };
            Ok((row.try_get("lane_id")?, place))
        },
    )
    .await
}

/// The ids of a session's lanes.
///
/// # Errors
/// Where they cannot be read.
pub async fn lanes_of_session(
    client: &impl GenericClient,
    session_id: i64,
    subscription_id: Option<i32>,
) -> Result<Vec<i64>, StoreError> {
    let statement = include_str!("../sql/lane_of_session.sql");
    read(
        client,
        "looking for a session's lanes",
        statement,
        &[(&session_id, Type::INT8), (&subscription_id, Type::INT4)],
        |row| row.try_get(0),
    )
    .await
}

/// Lanes by id, in the order given; ids that there are not are left out.
///
/// # Errors
/// Where they cannot be read.
pub async fn lanes(
    client: &impl GenericClient,
    ids: &[i64],
) -> Result<Vec<LaneStatus>, StoreError> {
    let statement = include_str!("../sql/lane_status.sql");
    read(
        client,
        "reading lanes",
        statement,
        &[(&ids, Type::INT8_ARRAY)],
        LaneStatus::from_row,
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_and_never_beyond_what_postgres_takes() {
        let at = LanePlace {
            due_us: 1_700_000_000_000_000,
            position: 42,
        };
        assert_eq!(at.to_string().parse(), Ok(at));
        for bad in ["", "1", "1.x", "9223372036854775807.1", "1.2.3"] {
            assert_eq!(bad.parse::<LanePlace>(), Err(NoSuchPlace), "{bad}");
        }
        let earliest: LanePlace = "-9223372036854775808.1".parse().unwrap();
        assert_eq!(earliest.due_us, -1);
    }
}
