//! What lanes ask of their connection: settling in groups, and what follows from each result.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_fault::CrashPoint;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Batch, Reply, Request, Session, SessionError};
#[cfg(feature = "crash-points")]
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::ErrorClass;
use lanekeeper_postgres::claim::Token;
use lanekeeper_postgres::fetch::Position;
use lanekeeper_postgres::settle::{self, Operation, Settled, Settlement};

/// Lanes in one settlement.
const SETTLE_LIMIT: usize = 1024;
/// How often other tasks have their turn before a group is settled: microseconds where none is ready.
const GATHER_TURNS: usize = 48;
/// How long a lane waits whose settlement the server refuses.
const REFUSED_DELAY: Duration = Duration::from_secs(60);

impl Session<'_> {
    /// Settles what waits in the channel.
    pub(super) async fn serve(&mut self) -> Result<(), SessionError> {
        match self.incoming.try_recv() {
            Ok(request) => self.handle(vec![request]).await,
            Err(_) => Ok(()),
        }
    }

    /// Lets lanes that are about to ask join the group: a call has a cost of its own, however few are in it.
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
        let mut routes = self.shared.routes();
        let mut lanes = Vec::with_capacity(requests.len());
        let mut replies = Vec::with_capacity(requests.len());
        for request in requests {
            match request {
                Request::Suspect {
                    lane_id,
                    version,
                    crashes,
                    reply,
                } => {
                    self.suspect(lane_id, version, crashes).await?;
                    routes = self.shared.routes();
                    // The lane may be gone by now; then nobody needs the answer.
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
                        // Paused, removed or changed: whoever claims it next goes by what is true then.
                        settlement.operation = Operation::Yield;
                    }
                    if settlement.operation == Operation::Release && held.marked {
                        // Its token is in the future: whoever comes next should not wait for it.
                        settlement.operation = Operation::Yield;
                    }
                    if punctual {
                        self.walks.expect(Instant::now() + settlement.delay);
                    }
                    lanes.push((*settlement, held.token));
                    replies.push((subscription_id, reply));
                }
            }
        }
        if lanes.is_empty() {
            return Ok(());
        }
        self.shared.idle.busy();
        CrashPoint::Settling.pass();
        let results = self.settle(&mut lanes).await?;
        CrashPoint::Settled.pass();
        self.answer(&lanes, replies, &results).await
    }

    async fn settle(
        &self,
        lanes: &mut [(Settlement, Token)],
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
                    // The lane is let go: its task must not go on with what was refused.
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
        lanes: &[(Settlement, Token)],
    ) -> Result<Vec<Settled>, SessionError> {
        let worker_id = self.shared.identity.worker_id;
        #[cfg(feature = "crash-points")]
        if Mutation::SettledElsewhere.is_on()
            && let Ok(pooled) = self.shared.pool.get().await
        {
            let statement = settle::prepare(&**pooled).await?;
            return Ok(settle::settle(&**pooled, &statement, worker_id, lanes).await?);
        }
        let asked_at = Instant::now();
        let settling = settle::settle(&self.client, &self.statements.settle, worker_id, lanes);
        let results = self.ask(asked_at, settling).await?;
        let instruments = &self.shared.instruments;
        instruments
            .settle_duration
            .record(asked_at.elapsed().as_secs_f64(), &[]);
        instruments.settle_lanes.record(lanes.len() as u64, &[]);
        Ok(results)
    }

    /// Lets go of what is done, reads on for lanes that have more, and answers the lanes.
    async fn answer(
        &mut self,
        lanes: &[(Settlement, Token)],
        replies: Vec<(i32, oneshot::Sender<Reply>)>,
        results: &[Settled],
    ) -> Result<(), SessionError> {
        let mut made_room = 0;
        let mut more = Vec::new();
        for (((settlement, _), (subscription_id, _)), result) in
            lanes.iter().zip(&replies).zip(results)
        {
            self.holdings.end_suspicion(settlement.lane_id);
            // Its token is due, and nobody rings for it.
            if settlement.operation == Operation::Yield {
                self.walks.expect(Instant::now());
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
            self.size.let_go(made_room);
            self.shared.made_room();
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
            // A lane that is gone lost its claim; the next holder delivers these events.
            let _ = reply.send(Reply {
                settled: *result,
                batch: Batch::new(events, &self.shared.budget),
            });
        }
        Ok(())
    }

    async fn suspect(
        &mut self,
        lane_id: i64,
        version: i64,
        crashes: i32,
    ) -> Result<(), SessionError> {
        let claim_id = self.next_claim_id();
        let lane = (lane_id, version, crashes);
        self.ask(
            Instant::now(),
            settle::record_suspect(&self.client, self.connection_id, claim_id, lane),
        )
        .await?;
        CrashPoint::SuspectRecorded.pass();
        self.holdings.suspect(lane_id, claim_id);
        Ok(())
    }

    /// Moves the tokens of slow lanes out of the claims' way.
    pub(super) async fn mark(&mut self, now: Instant) -> Result<(), SessionError> {
        let slow = self.holdings.slow(now);
        if slow.is_empty() {
            return Ok(());
        }
        let time_out = self.shared.settings.frozen_after;
        let tokens = self
            .ask(
                now,
                settle::mark(&self.client, &self.statements.mark, &slow, time_out),
            )
            .await?;
        CrashPoint::Marked.pass();
        for (lane_id, place, id) in tokens {
            if let Some(held) = self.holdings.get_mut(lane_id) {
                held.token.place = place;
                held.token.id = id;
                held.marked = true;
                // Again before the new token is due.
                held.mark_at = now + time_out.mul_f64(0.8);
            }
        }
        Ok(())
    }
}
