//! One event in one transaction: effect and settlement commit together (A9), a requeued dead letter's too.

use lanekeeper_core::adapter::{Delivery, Verdict};
use lanekeeper_core::envelope;
use lanekeeper_core::event::Event;
use lanekeeper_core::observed::Observed;
use lanekeeper_core::subscription::MessageStage;
use lanekeeper_fault::CrashPoint;
use tokio::time::Instant;

use super::answer::{SessionError, answer, ended};
use super::attempt::Attempt;
use super::{INLINE_BYTES, Session};
use crate::claiming::route::Route;
use crate::delivering::budget::PayloadReservation;
use crate::delivering::event::{event_of, large_payload};
use crate::delivering::handler::Destination;
use crate::delivering::progress::{Judgement, Progress, Stop};
use crate::shared::random;
use lanekeeper_postgres::claim::ClaimedLane;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::settle::{self, Operation, Settled};
use lanekeeper_postgres::{ErrorClass, requeued};
use lanekeeper_telemetry::Tracing;
use lanekeeper_telemetry::span::DeliverySpan;

impl Session<'_> {
    /// Delivers what comes before this event: a replay, then requeued dead letters, one at a time. Returns as `handle` does.
    pub(super) async fn deliver_requeued(
        &mut self,
        lane: &ClaimedLane,
        route: &Route,
        progress: &mut Progress,
        seq: i64,
    ) -> Result<Option<Stop>, SessionError> {
        while progress.is_requeued_before(seq) {
            if progress.is_replayed() {
                match self.deliver_replayed(lane, route, progress).await? {
                    None => continue,
                    stop => return Ok(stop),
                }
            }
            let reading = requeued::next(&self.client, lane.lane_id, INLINE_BYTES);
            let next = answer(self.shared, reading).await?;
            progress.set_requeued_after(next.as_ref().map(|letter| letter.after_seq));
            let Some(letter) = next.filter(|letter| letter.after_seq < seq) else {
                break;
            };
            if self.shared.stopping.is_cancelled() {
                return Ok(Some(Stop::new(Operation::Release)));
            }
            progress.begin_dead_letter(letter.dead_id);
            let stop = self.handle(lane, route, progress, letter.event).await?;
            if stop.is_some() {
                return Ok(stop);
            }
            // It is exhausted: only after that is recorded is it known which dead letter comes next.
            if progress.must_settle() {
                let keep = Stop::new(Operation::Keep);
                if self.settle(lane, progress, keep).await? != Settled::Done {
                    return Ok(Some(Stop::new(Operation::Release)));
                }
            }
        }
        Ok(None)
    }

    /// Handles one event in one transaction. `None`: the cursor passed it, and that is committed.
    pub(super) async fn handle(
        &mut self,
        lane: &ClaimedLane,
        route: &Route,
        progress: &mut Progress,
        fetched: FetchedEvent,
    ) -> Result<Option<Stop>, SessionError> {
        let subscription = &route.subscription;
        let (seq, day, created_at) = (fetched.seq, fetched.day, fetched.created_at);
        progress.begin_head(fetched.message_id);
        let max_crashes = self.shared.settings.max_crashes;
        if let Some(judgement) = progress.exhaust_if_crashed(max_crashes, seq, day, subscription) {
            return Ok(stop(judgement));
        }
        let Ok(_reservation) = self.reserve_payload(&fetched).await? else {
            return Ok(Some(Stop::new(Operation::Release)));
        };
        // A projection's transaction settles nothing but that events are passed.
        if route.is_projection() && !progress.outcomes().is_empty() {
            let keep = Stop::new(Operation::Keep);
            if self.settle(lane, progress, keep).await? != Settled::Done {
                return Ok(Some(Stop::new(Operation::Release)));
            }
        }
        if let Some(reach) = self.ahead(lane, seq)
            && let Some(done) = self.give_way(lane, progress, seq, day, reach).await?
        {
            return Ok(done);
        }
        let suspect = progress.is_suspected_poison().then(|| self.next_claim_id());
        if let Some(claim_id) = suspect {
            let charged = (lane.lane_id, progress.version, progress.crashes);
            let recording = settle::record_suspected_poison(
                &self.client,
                self.connection_id,
                claim_id,
                charged,
            );
            answer(self.shared, recording).await?;
            CrashPoint::SuspectedPoisonRecorded.pass();
        }
        let (faced, is_behind) = (progress.head_dead_letter(), progress.head_is_behind());
        let event = match self.event(lane, route, fetched, faced).await {
            Err(SessionError::Store(error)) if error.class() == ErrorClass::Permanent => {
                let error = format!("the payload cannot be read: {}", error.source);
                return Ok(stop(progress.exhaust(seq, day, error, subscription)));
            }
            event => event?,
        };
        let observed = Observed::default();
        let mut delivery = Delivery {
            event: &event,
            subscription: &subscription.name,
            attempt: progress.attempt(),
            requeued: progress.head_is_dead_letter(),
            replay_id: progress.replay_id(),
            asks_ack: false,
            trace: None,
            observed: Some(&observed),
        };
        let shared = self.shared;
        let traced = shared.settings.tracing != Tracing::Off;
        let span = traced.then(|| DeliverySpan::start(&delivery, None));
        delivery.trace = span.as_ref().map(DeliverySpan::context);
        let began = Instant::now();
        let logged_with = span.as_ref().map(DeliverySpan::logged_with);
        let attempted = match &route.destination {
            Destination::Handler(handler) => {
                let logged = logged_with.as_ref();
                self.in_lane_transaction(&**handler, lane, route, progress, &delivery, day, logged)
                    .await?
            }
            Destination::Projection(projection) => {
                let mut passed = progress.clone();
                passed.pass(seq, day);
                let event = envelope::text(&delivery);
                self.in_projection(projection, lane, route, passed, seq, &[event])
                    .await?
            }
            Destination::Adapter(_) => unreachable!("only routes of handlers are scanned here"),
        };
        let verdict: Option<Verdict> = match attempted {
            Attempt::Committed(passed) => {
                *progress = passed;
                None
            }
            Attempt::Failed(verdict) => Some(verdict),
            Attempt::Lost => {
                tracing::warn!(subscription = %subscription.name, seq, "lane lost: rolled back");
                return Ok(Some(Stop::new(Operation::Release)));
            }
            Attempt::Interrupted(reach) => {
                tracing::info!(subscription = %subscription.name, seq, "handler cancelled: rolled back");
                if let Some(claim_id) = suspect {
                    self.unlock(&[], &[claim_id]).await?;
                }
                let done = self.give_way(lane, progress, seq, day, reach).await?;
                return Ok(done.unwrap_or(Some(Stop::yields())));
            }
        };
        if let Some(claim_id) = suspect {
            self.unlock(&[], &[claim_id]).await?;
        }
        let passed = verdict.is_none();
        let verdict = verdict.unwrap_or(Verdict::Accepted);
        let took = began.elapsed().as_secs_f64();
        route.instruments.attempted(&verdict, &observed, took);
        if let Some(span) = span {
            span.end(&verdict, &observed);
        }
        if passed {
            match progress.head_is_replayed() {
                true => route.instruments.ended("replayed", 1),
                false => route.instruments.delivered(1),
            }
            route.counts.add(MessageStage::Sent, 1);
            if !is_behind {
                let clock = &shared.peers.clock;
                let latency = clock.seconds_since(created_at, Instant::now());
                route.instruments.accepted_after(latency);
            }
            return Ok(None);
        }
        let _logged = logged_with.map(opentelemetry::Context::attach);
        let failed = matches!(verdict, Verdict::Retry { .. });
        let judgement = progress.judge(seq, day, verdict, subscription, random);
        if failed && matches!(judgement, Judgement::Stopped(_)) {
            route.counts.add(MessageStage::Retried, 1);
        }
        Ok(stop(judgement))
    }

    /// Waits for memory for a payload that was not fetched. `Err(Stopping)`: the worker stops.
    async fn reserve_payload(
        &self,
        event: &FetchedEvent,
    ) -> Result<Result<Option<PayloadReservation>, Stopping>, SessionError> {
        if event.payload.is_some() {
            return Ok(Ok(None));
        }
        let size = usize::try_from(event.size).unwrap_or(0);
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => Ok(Err(Stopping)),
            reservation = self.shared.delivering.allowance.take(size) => Ok(Ok(Some(reservation))),
            // The connection holds lanes meanwhile; if it is gone, others must be able to claim them.
            () = ended(self.shared, self.backend) => Err(SessionError::Ended),
        }
    }

    async fn event(
        &self,
        lane: &ClaimedLane,
        route: &Route,
        mut fetched: FetchedEvent,
        dead_letter: Option<i64>,
    ) -> Result<Event, SessionError> {
        let payload = match fetched.payload.take() {
            Some(payload) => payload,
            None => {
                let session_id = lane.session_id;
                let reading = large_payload(&self.client, session_id, &fetched, dead_letter);
                answer(self.shared, reading).await?
            }
        };
        let stream = &route.subscription.stream;
        Ok(event_of(fetched, payload, stream, &lane.session))
    }
}

/// The worker stops: nothing more is handled.
struct Stopping;

/// A handler has no subscription to pause: it does not answer 410.
fn stop(judgement: Judgement) -> Option<Stop> {
    match judgement {
        // A handler's effect is its acknowledgement.
        Judgement::Passed | Judgement::Sent => None,
        Judgement::Stopped(stop) | Judgement::Gone { stop, .. } => Some(stop),
    }
}
