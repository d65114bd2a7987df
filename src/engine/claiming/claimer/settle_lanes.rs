//! Settles what lanes report, in groups, and acts on each result.
//!
//! Lane tasks send their results to their connection. Whatever waits in the channel is settled in one call, so
//! settlements group themselves under load.
//!
//! 1. For lanes that finished, the append lock is tried in shared mode.
//! 2. In one statement whose snapshot is taken after that, progress is updated where it has the version and step
//!    that were read: at its ctid if all lanes of the group finish and no head has attempts or crashes, and by its
//!    key in every other case. If no row matches, another process settled the lane: nothing is written for it and
//!    its task ends. A lane that yields or waits without a change keeps its progress row as it is.
//! 3. A lane that finished, whose append lock was granted, and that has no newer event in that snapshot goes idle:
//!    its ready entry is deleted. In all other cases the entry is kept, replaced by a later one (retry) or by one
//!    due now (yield), or deleted (park, spare).
//! 4. Outcomes, dead letters and history are written.
//! 5. Locks are released after the commit.
//!
//! **The fast case.** Nearly all groups consist of lanes that finish and of which nothing else is to be recorded.
//! `lanekeeper.finish` settles those: fewer arrays, and an answer only for lanes that did not go idle. Lanes that
//! it does not find at their ctid, or that begin before the recent partitions, it passes to `lanekeeper.settle`,
//! which has the same steps for every other group. A change of one is a change of both.
//!
//! **Deleting entries.** A ready entry is deleted by its ctid and id, without a search: entries are never updated,
//! so a ctid is an entry's until it is deleted. If the table was rewritten (`VACUUM FULL`), the ctid is wrong, the
//! entry stays, and the next claim finds it to be spare. If all lanes of a group go idle, their entries are deleted
//! in one scan of their ctids, which looks for an id among all ids of the group: an entry with one of them must go,
//! wherever it is.
//!
//! **Going idle while a producer is open.** A holder tries the append lock without waiting, and again six times
//! over about 60 ms. A producer that keeps its transaction open longer costs the lane one claim every 250 ms and
//! nothing else. What is committed is fetched even while an open producer has the append lock; only going idle
//! needs that lock. The log is read with and without the lock, so an event that was committed before does not wait
//! for the open producer.
//!
//! **Limits of one holding.** A lane delivers up to 1,000 events in one holding, then yields. While it goes on, it
//! settles every 100 ms, so that a crash repeats little.
//!
//! **Refused settlements.** If the server refuses a settlement for good, the lanes are settled one by one. The one
//! at fault waits a minute and its error is logged.
//!
//! **Durability.** Settlements use `synchronous_commit = off`, except those that dead-letter or drop. A settlement
//! lost with the server is a redelivery. A lost outcome would be worse: the event's successor may be delivered
//! already, and the event would then be delivered behind it.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_fault::CrashPoint;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Batch, Reply, Request, Session, SessionError};
use crate::claiming::kind::Kind;
#[cfg(feature = "crash-points")]
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::ErrorClass;
use lanekeeper_postgres::claim::ReadyEntry;
use lanekeeper_postgres::fetch::Position;
use lanekeeper_postgres::settle::{self, Operation, Settled, Settlement};
use lanekeeper_telemetry::span::{self, RoundTrip};

/// The most lanes in one settlement.
const SETTLE_LIMIT: usize = 1024;
/// How often the task yields to others before it settles a group: microseconds if no other task is ready.
const GATHER_TURNS: usize = 48;
/// How long a lane waits whose settlement the server refused.
const REFUSED_DELAY: Duration = Duration::from_secs(60);

impl Session<'_> {
    /// Settles the requests that wait in the channel.
    pub(super) async fn serve(&mut self) -> Result<(), SessionError> {
        match self.incoming.try_recv() {
            Ok(request) => self.handle(vec![request]).await,
            Err(_) => Ok(()),
        }
    }

    /// Lets lanes that are about to settle join the group: a call has a fixed cost.
    async fn gather(&mut self, requests: &mut Vec<Request>) {
        for _ in 0..GATHER_TURNS {
            while requests.len() < SETTLE_LIMIT {
                let Ok(request) = self.incoming.try_recv() else {
                    break;
                };
                requests.push(request);
            }
            if requests.len() >= self.holdings.len().min(SETTLE_LIMIT) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn handle(&mut self, mut requests: Vec<Request>) -> Result<(), SessionError> {
        self.gather(&mut requests).await;
        let mut routes = self.shared.claiming.routes();
        let mut lanes = Vec::with_capacity(requests.len());
        let mut replies = Vec::with_capacity(requests.len());
        for request in requests {
            match request {
                Request::SuspectedPoison {
                    lane_id,
                    version,
                    crashes,
                    reply,
                } => {
                    self.record_suspected_poison(lane_id, version, crashes)
                        .await?;
                    routes = self.shared.claiming.routes();
                    // The lane may be gone by now; then nothing needs the answer.
                    let _ = reply.send(true);
                }
                Request::Settle {
                    mut settlement,
                    subscription_id,
                    punctual,
                    reply,
                } => {
                    let Some(held) = self.holdings.get(settlement.lane_id) else {
                        continue;
                    };
                    let current = routes.get(subscription_id);
                    if settlement.operation == Operation::Finish
                        && !current.is_some_and(|route| Arc::ptr_eq(route, &held.route))
                    {
                        // Paused, removed or changed: the next holder uses the new version.
                        settlement.operation = Operation::Yield;
                    }
                    if settlement.operation == Operation::Release && held.is_in_flight {
                        // Its in-flight record is due in the future: the next holder should not wait for it.
                        settlement.operation = Operation::Yield;
                    }
                    if punctual {
                        self.scans.schedule(Instant::now() + settlement.delay);
                    }
                    lanes.push((*settlement, held.entry));
                    replies.push((subscription_id, reply));
                }
            }
        }
        if lanes.is_empty() {
            return Ok(());
        }
        self.shared.waking.idle.busy();
        CrashPoint::Settling.pass();
        let results = self.settle(&mut lanes).await?;
        CrashPoint::Settled.pass();
        self.answer(&lanes, replies, &results).await
    }

    async fn settle(
        &self,
        lanes: &mut [(Settlement, ReadyEntry)],
    ) -> Result<Vec<Settled>, SessionError> {
        let error = match self.try_settle(lanes).await {
            Err(SessionError::Store(error)) if error.class() != ErrorClass::ConnectionLost => error,
            result => return result,
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            lanes = lanes.len(),
            "settlement refused; settling lane by lane"
        );
        let mut results = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let lane = std::slice::from_mut(lane);
            let one = match self.try_settle(lane).await {
                Err(SessionError::Store(error)) if error.class() != ErrorClass::ConnectionLost => {
                    let (settlement, _) = &mut lane[0];
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        lane_id = settlement.lane_id,
                        "this lane cannot be settled; its events are delivered again in a minute"
                    );
                    settlement.operation = Operation::Retry;
                    settlement.delay = REFUSED_DELAY;
                    settlement.changed = false;
                    settlement.outcomes.clear();
                    settlement.history_from = None;
                    self.try_settle(lane).await?;
                    // The lane is released: its task must not continue from a refused settlement.
                    vec![Settled::Lost]
                }
                result => result?,
            };
            results.extend(one);
        }
        Ok(results)
    }

    async fn try_settle(
        &self,
        lanes: &[(Settlement, ReadyEntry)],
    ) -> Result<Vec<Settled>, SessionError> {
        let worker_id = self.shared.peers.worker_id();
        #[cfg(feature = "crash-points")]
        if Mutation::SettledElsewhere.is_on()
            && let Ok(pooled) = self.shared.pool.get().await
        {
            let statement = settle::prepare(&**pooled).await?;
            return Ok(settle::settle(&**pooled, &statement, worker_id, lanes).await?);
        }
        let began = self.traced();
        let asked_at = Instant::now();
        let settling = settle::settle(&self.client, &self.statements.settle, worker_id, lanes);
        let results = self.ask(asked_at, settling).await?;
        let instruments = &self.shared.instruments;
        instruments
            .settle_duration
            .record(asked_at.elapsed().as_secs_f64(), &[]);
        instruments.settle_lanes.record(lanes.len() as u64, &[]);
        if let Some(began) = began {
            span::round_trip(RoundTrip::Settle, began, lanes.len());
        }
        Ok(results)
    }

    /// Releases lanes that are done, fetches for lanes that have more events, and answers the lanes.
    async fn answer(
        &mut self,
        lanes: &[(Settlement, ReadyEntry)],
        replies: Vec<(i32, oneshot::Sender<Reply>)>,
        results: &[Settled],
    ) -> Result<(), SessionError> {
        let mut made_room = 0;
        let mut more = Vec::new();
        for (((settlement, _), (subscription_id, _)), result) in
            lanes.iter().zip(&replies).zip(results)
        {
            self.holdings.end_suspicion(settlement.lane_id);
            // Its entry is due now, and no notification says so.
            if settlement.operation == Operation::Yield {
                self.scans.schedule(Instant::now());
            }
            let stays = match (settlement.operation, result) {
                (Operation::Keep, Settled::Done) => true,
                (Operation::Finish, Settled::Busy) => true,
                (Operation::Finish, Settled::More) => {
                    more.push(Position {
                        session_id: settlement.session_id,
                        cursor: settlement.cursor,
                        cursor_day: settlement.cursor_day,
                        subscription_id: *subscription_id,
                    });
                    true
                }
                _ => false,
            };
            if !stays {
                self.holdings.forget(settlement.lane_id);
                self.released.push(settlement.lane_id);
                made_room += 1;
            }
        }
        if made_room > 0 {
            self.size.released(made_room);
            self.shared.claiming.made_room(Kind::Adapters);
        }
        let mut batches = if more.is_empty() {
            Vec::new()
        } else {
            self.fetch(&more).await?
        }
        .into_iter();
        for ((_, reply), result) in replies.into_iter().zip(results) {
            let events = match result {
                Settled::More => batches.next().unwrap_or_default(),
                _ => Vec::new(),
            };
            // A lane task that is gone lost its claim; the next holder delivers these events.
            let _ = reply.send(Reply {
                settled: *result,
                batch: Batch::new(events, &self.shared.delivering.budget),
            });
        }
        Ok(())
    }

    async fn record_suspected_poison(
        &mut self,
        lane_id: i64,
        version: i64,
        crashes: i32,
    ) -> Result<(), SessionError> {
        let claim_id = self.next_claim_id();
        let lane = (lane_id, version, crashes);
        self.ask(
            Instant::now(),
            settle::record_suspected_poison(&self.client, self.connection_id, claim_id, lane),
        )
        .await?;
        CrashPoint::SuspectedPoisonRecorded.pass();
        self.holdings.set_suspected_poison(lane_id, claim_id);
        Ok(())
    }

    /// Replaces the ready entries of slow lanes by in-flight records, so that claims need not step over them.
    pub(super) async fn record_in_flight(&mut self, now: Instant) -> Result<(), SessionError> {
        let slow = self.holdings.slow(now);
        if slow.is_empty() {
            return Ok(());
        }
        let time_out = self.shared.settings.frozen_after;
        let entries = self
            .ask(
                now,
                settle::record_in_flight(&self.client, &self.statements.in_flight, &slow, time_out),
            )
            .await?;
        CrashPoint::Marked.pass();
        for (lane_id, ctid, id) in entries {
            if let Some(held) = self.holdings.get_mut(lane_id) {
                held.entry.ctid = ctid;
                held.entry.id = id;
                held.is_in_flight = true;
                // Renewed before the record is due.
                held.in_flight_at = now + time_out.mul_f64(0.8);
            }
        }
        Ok(())
    }
}
