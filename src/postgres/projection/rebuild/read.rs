//! What a rebuild reads: how far the lanes are, how far it is itself, and the log.

use jiff::Timestamp;
use lanekeeper_core::event::Event;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{EVENTS_AT_ONCE, Rebuild};
use crate::StoreError;

pub const LANES: &str = include_str!("../../sql/projection_lanes.sql");
pub const EVENTS: &str = include_str!("../../sql/projection_events.sql");

const LANES_AT_ONCE: i64 = 200;

pub(super) struct Lane {
    pub(super) lane_id: i64,
    session_id: i64,
    session: String,
    pub(super) cursor: i64,
}

/// What is handed to the function, or left out.
pub(super) struct Found {
    pub(super) event: Event,
    pub(super) applied: bool,
    pub(super) again: bool,
}

impl Rebuild<'_> {
    pub(super) async fn lanes(&self, after: i64) -> Result<Vec<Lane>, StoreError> {
        let rows = self
            .owner
            .query(LANES, &[&self.subscription_id, &after, &LANES_AT_ONCE])
            .await
            .map_err(StoreError::on("reading the lanes of a projection"))?;
        let lane = |row: &Row| Lane {
            lane_id: row.get("lane_id"),
            session_id: row.get("session_id"),
            session: row.get("session"),
            cursor: row.get("cursor"),
        };
        Ok(rows.iter().map(lane).collect())
    }

    /// Up to where each lane is rebuilt.
    pub(super) async fn done(&self, lanes: &[Lane]) -> Result<Vec<i64>, StoreError> {
        let ids: Vec<i64> = lanes.iter().map(|lane| lane.lane_id).collect();
        let reading = format!(
            "SELECT coalesce(d.seq, 0) FROM unnest($1::bigint[]) WITH ORDINALITY AS l (lane_id, place)
             LEFT JOIN {}.lanekeeper_done AS d ON d.lane_id = l.lane_id ORDER BY l.place",
            self.shadow
        );
        let rows = self
            .connection
            .client()
            .query_typed(&reading, &[(&ids, Type::INT8_ARRAY)])
            .await
            .map_err(StoreError::on("reading how far a rebuild is"))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    pub(super) async fn events(&self, lane: &Lane, done: i64) -> Result<Vec<Found>, StoreError> {
        let rows = self
            .owner
            .query(
                EVENTS,
                &[
                    &lane.lane_id,
                    &lane.session_id,
                    &done,
                    &lane.cursor,
                    &EVENTS_AT_ONCE,
                ],
            )
            .await
            .map_err(StoreError::on("reading the log for a rebuild"))?;
        let found = |row: &Row| Found {
            event: self.event(row, &lane.session),
            applied: row.get("applied"),
            again: row.get("again"),
        };
        Ok(rows.iter().map(found).collect())
    }

    pub(super) fn event(&self, row: &Row, session: &str) -> Event {
        Event {
            message_id: row.get("message_id"),
            stream: self.stream.into(),
            session: session.into(),
            seq: row.get("seq"),
            event_type: row.get::<_, &str>("event_type").into(),
            created_at: row.get::<_, Timestamp>("created_at"),
            payload: row.get("payload"),
            headers: None,
        }
    }
}
