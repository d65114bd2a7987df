//! Calls the function with events of the log, and records in the same transaction how far the rebuild is.
//!
//! A live projection gets fewer events in a call, and one by one after a failure. So events that fail together come again in
//! halves, in their order, each half committed before the next begins. Only an event that fails alone ends the rebuild: it
//! is the one that the function refuses, and those before it are entered.

use std::time::{Duration, Instant};

use lanekeeper_core::adapter::Delivery;
use lanekeeper_core::envelope;
use lanekeeper_core::event::Event;
use tokio_postgres::types::Type;

use super::super::connection::{Connection, Failure};
use super::error::RebuildError;
use super::read::Found;
use super::{Rebuild, TOUCHED};
use crate::StoreError;

impl Rebuild<'_> {
    /// Enters events of a lane, which brings it to `to`.
    pub(super) async fn enter_in_parts(
        &mut self,
        lane_id: i64,
        to: i64,
        found: &[Found],
    ) -> Result<(), RebuildError> {
        let mut rest = found;
        // Of parts of the present size: a smaller one says nothing of larger ones.
        let mut slowest: Option<Duration> = None;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(self.at_once.min(rest.len()));
            let reached = match (part.last(), behind) {
                (Some(last), [_, ..]) => last.event.seq,
                _ => to,
            };
            let began = Instant::now();
            if self.enter(lane_id, reached, part).await? {
                if part.len() == self.at_once {
                    slowest = slowest.max(Some(began.elapsed()));
                }
                rest = behind;
            } else {
                self.at_once = part.len() / 2;
                slowest = None;
            }
        }
        // Not before the end: behind a part that failed, an event that hangs would be waited for with each size once more.
        if slowest.is_some_and(|took| took <= self.projection.timeout / 4) {
            self.at_once = self.at_once.saturating_mul(2);
        }
        Ok(())
    }

    /// Calls the function with events of a lane and records how far the lane is, in one transaction. `false`: it refused
    /// several together, and nothing of them is left.
    pub(super) async fn enter(
        &mut self,
        lane_id: i64,
        to: i64,
        found: &[Found],
    ) -> Result<bool, RebuildError> {
        let applied: Vec<&Event> = found
            .iter()
            .filter(|found| found.applied)
            .map(|found| &found.event)
            .collect();
        let left_out: Vec<i64> = found
            .iter()
            .filter(|found| found.again)
            .map(|found| found.event.seq)
            .collect();
        if !self.call(&applied).await? {
            return Ok(false);
        }
        let shadow = &self.shadow;
        let noting = async {
            let client = self.connection.client();
            let done = format!(
                "INSERT INTO {shadow}.lanekeeper_done AS d (lane_id, seq) VALUES ($1, $2)
                 ON CONFLICT (lane_id) DO UPDATE SET seq = greatest(d.seq, excluded.seq)"
            );
            let given: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                [(&lane_id, Type::INT8), (&to, Type::INT8)];
            client.execute_typed(&done, &given).await?;
            if !left_out.is_empty() {
                let leaving = format!(
                    "INSERT INTO {shadow}.lanekeeper_left_out (lane_id, seq) SELECT $1, s.seq FROM unnest($2::bigint[]) AS s (seq)
                     ON CONFLICT DO NOTHING"
                );
                let given: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                    [(&lane_id, Type::INT8), (&left_out, Type::INT8_ARRAY)];
                client.execute_typed(&leaving, &given).await?;
            }
            client.batch_execute("COMMIT").await
        };
        noting
            .await
            .map_err(StoreError::on("recording how far a rebuild is"))?;
        Ok(true)
    }

    /// Calls the function with these events in an open transaction. `false`: it refused several together, which are rolled
    /// back. One that it refuses alone ends the rebuild.
    pub(super) async fn call(&mut self, events: &[&Event]) -> Result<bool, RebuildError> {
        let text = |event: &&Event| {
            envelope::text(&Delivery {
                event,
                subscription: self.subscription,
                attempt: 1,
                replay_id: None,
                requeued: false,
                asks_ack: false,
                trace: None,
                observed: None,
            })
        };
        let bodies: Vec<String> = events.iter().map(text).collect();
        let called = self.connection.call(&bodies).await;
        let failure = match called {
            Ok(()) => return self.look_at_changes().await,
            Err(Some(failure @ Failure::Raised(_))) => {
                if !self.connection.rollback().await {
                    self.reconnect().await?;
                }
                failure
            }
            Err(Some(failure)) => return Err(RebuildError::Role(failure)),
            Err(None) => {
                let failure = self.connection.unanswered();
                self.reconnect().await?;
                failure
            }
        };
        match events {
            [] => Err(RebuildError::Role(failure)),
            [event] => Err(RebuildError::Event {
                session: event.session.to_string(),
                seq: event.seq,
                failure,
            }),
            [_, _, ..] => Ok(false),
        }
    }

    /// Refuses what a rebuild may not do. Otherwise `true`.
    async fn look_at_changes(&self) -> Result<bool, RebuildError> {
        let row = self
            .connection
            .client()
            .query_typed_one(TOUCHED, &[(&self.source.tables, Type::OID_ARRAY)])
            .await
            .map_err(StoreError::on("looking at what a rebuild changed"))?;
        let refusal = match (row.get("touches"), row.get("appends")) {
            (true, _) => RebuildError::Touches,
            (_, true) => RebuildError::Appends,
            (false, false) => return Ok(true),
        };
        self.connection.rollback().await;
        Err(refusal)
    }

    /// Ends a backend that does not answer, and goes on with another.
    async fn reconnect(&mut self) -> Result<(), RebuildError> {
        let fresh = Connection::open_beside(self.projection, &self.path)
            .await
            .map_err(RebuildError::Role)?;
        std::mem::replace(&mut self.connection, fresh).end().await;
        Ok(())
    }
}
