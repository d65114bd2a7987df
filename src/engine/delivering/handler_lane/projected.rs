//! Events of a projection: its function is called on a connection of its role, which settles with a permit (A9, I5).
//!
//! Events of a lane that wait together are handed to the function in one transaction. If that fails they come again one by
//! one, each in its own: so one that is refused does not keep those before it.

use std::time::Duration;

use lanekeeper_core::adapter::{Delivery, Verdict};
use lanekeeper_core::envelope;
use lanekeeper_core::observed::Observed;
use lanekeeper_core::subscription::MessageStage;
use lanekeeper_fault::CrashPoint;
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::claim::ClaimedLane;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::projection::{Connection, Failure, Passed, Projection};
use lanekeeper_postgres::settle::Operation;
use lanekeeper_telemetry::Tracing;
use tokio::time::{Instant, timeout};

use super::Session;
use super::answer::{SessionError, answer, ended};
use super::attempt::Attempt;
use super::projections::SWITCHING_DELAY;
use crate::claiming::route::Route;
use crate::delivering::coalesce::Step;
use crate::delivering::event::event_of;
use crate::delivering::handler::Destination;
use crate::delivering::progress::{Judgement, Progress, Stop};
use crate::shared::random;

/// How long the lanes of a projection wait whose function cannot be called at all. No attempt of theirs.
const UNAVAILABLE_DELAY: Duration = Duration::from_secs(5);

/// How the call of a function ended.
enum Called {
    Answered(Result<(), Option<Failure>>),
    /// The lane's connection is gone.
    Ended,
    Interrupted(crate::waking::interruptions::Reach),
}

impl Session<'_> {
    /// Hands events to the function and settles, in one transaction. `passed`: the lane's progress if that succeeds.
    pub(super) async fn in_projection(
        &mut self,
        projection: &Projection,
        lane: &ClaimedLane,
        route: &Route,
        mut passed: Progress,
        seq: i64,
        events: &[String],
    ) -> Result<Attempt, SessionError> {
        let shared = self.shared;
        if self.projections.is_left_alone(route) {
            return Ok(Attempt::Failed(verdict(route, Failure::Switching)));
        }
        let connection = match self.projections.take(route) {
            Some(connection) => connection,
            None => match Connection::open(projection, route.id()).await {
                Ok(connection) => connection,
                Err(failure) => return Ok(Attempt::Failed(verdict(route, failure))),
            },
        };
        CrashPoint::Delivering.pass();
        let interruptions = &shared.waking.interruptions;
        let called = tokio::select! {
            biased;
            called = connection.call(events) => Called::Answered(called),
            () = ended(shared, self.backend) => Called::Ended,
            reach = interruptions.wait(lane.session_id, seq, self.claimed_at) => Called::Interrupted(reach),
        };
        match called {
            Called::Answered(Ok(())) => {}
            Called::Answered(Err(Some(failure))) => {
                if failure == Failure::Switching {
                    self.projections.leave_alone(route);
                }
                // A connection on which the function could not be called may itself be the reason.
                let may_be_the_reason = matches!(failure, Failure::Unavailable(_));
                if !may_be_the_reason && connection.rollback().await {
                    self.projections.keep(route, connection);
                } else {
                    connection.abandon();
                }
                return Ok(Attempt::Failed(verdict(route, failure)));
            }
            Called::Answered(Err(None)) => {
                let failure = connection.unanswered();
                connection.abandon();
                return Ok(Attempt::Failed(verdict(route, failure)));
            }
            Called::Ended => {
                connection.abandon();
                return Err(SessionError::Ended);
            }
            Called::Interrupted(reach) => {
                connection.abandon();
                return Ok(Attempt::Interrupted(reach));
            }
        }
        CrashPoint::Delivered.pass();
        let settlement = passed.settlement(Stop::new(Operation::Keep), route.subscription.history);
        let settlement = Passed::of(&settlement);
        CrashPoint::Judged.pass();
        let permitting = settlement.permit(&self.client, &projection.role);
        let permit = match answer(shared, permitting).await {
            Ok(permit) => permit,
            Err(error) => {
                connection.abandon();
                return Err(error);
            }
        };
        CrashPoint::Settling.pass();
        let limit = shared.settings.frozen_after;
        let settling = connection.settle(shared.peers.worker_id(), &settlement, &permit);
        match timeout(limit, settling).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => {
                if connection.rollback().await {
                    self.projections.keep(route, connection);
                } else {
                    connection.abandon();
                }
                return Ok(Attempt::Lost);
            }
            Ok(Err(failure)) => {
                connection.abandon();
                return Ok(Attempt::Failed(verdict(route, failure)));
            }
            Err(_) => {
                connection.abandon();
                return Err(SessionError::Silent(limit));
            }
        }
        CrashPoint::Committing.pass();
        match timeout(limit, connection.commit()).await {
            Ok(Ok(())) => {}
            // Whether it was committed is not known here: whoever claims the lane next reads it.
            Ok(Err(error)) => {
                connection.abandon();
                return Err(StoreError::on("committing a projection")(error).into());
            }
            Err(_) => {
                connection.abandon();
                return Err(SessionError::Silent(limit));
            }
        }
        CrashPoint::Settled.pass();
        self.projections.keep(route, connection);
        passed.settled();
        Ok(Attempt::Committed(passed))
    }

    /// Hands the first events of a lane to a projection together. Returns why the lane stops; `None`: the events that
    /// progress has not passed are handled one by one.
    pub(super) async fn project_together(
        &mut self,
        lane: &ClaimedLane,
        route: &Route,
        progress: &mut Progress,
        events: &[FetchedEvent],
        steps: &[Step],
    ) -> Result<Option<Stop>, SessionError> {
        let Destination::Projection(projection) = &route.destination else {
            return Ok(None);
        };
        let subscription = &route.subscription;
        let has_history = progress.attempts > 0 || progress.crashes > 0 || progress.has_requeued();
        // A span is of one event.
        let traced = self.shared.settings.tracing != Tracing::Off;
        if has_history || traced || subscription.leaves_out() {
            return Ok(None);
        }
        let observed = Observed::default();
        let mut passed = progress.clone();
        let mut bodies = Vec::new();
        let mut handled = Vec::new();
        for (fetched, step) in events.iter().zip(steps) {
            match (step, &fetched.payload) {
                (Step::Filtered, _) => {}
                (Step::Deliver, Some(payload)) if self.ahead(lane, fetched.seq).is_none() => {
                    let stream = &subscription.stream;
                    let event = event_of(fetched.clone(), payload.clone(), stream, &lane.session);
                    bodies.push(envelope::text(&Delivery {
                        event: &event,
                        subscription: &subscription.name,
                        attempt: 1,
                        requeued: false,
                        replay_id: None,
                        asks_ack: false,
                        trace: None,
                        observed: Some(&observed),
                    }));
                    handled.push(fetched);
                }
                _ => break,
            }
            passed.pass(fetched.seq, fetched.day);
        }
        let [first, _, ..] = handled.as_slice() else {
            return Ok(None);
        };
        let filtered = usize::try_from(passed.next_seq() - progress.next_seq()).unwrap_or(0);
        let filtered = filtered.saturating_sub(handled.len());
        let began = Instant::now();
        progress.begin_head(first.message_id);
        let attempted = self
            .in_projection(projection, lane, route, passed, first.seq, &bodies)
            .await?;
        match attempted {
            Attempt::Committed(passed) => *progress = passed,
            Attempt::Failed(Verdict::Retry { .. }) | Attempt::Interrupted(_) => return Ok(None),
            Attempt::Failed(verdict) => {
                let judged = progress.judge(first.seq, first.day, verdict, subscription, random);
                return Ok(match judged {
                    Judgement::Stopped(stop) => Some(stop),
                    _ => None,
                });
            }
            Attempt::Lost => return Ok(Some(Stop::new(Operation::Release))),
        }
        let clock = &self.shared.peers.clock;
        let now = Instant::now();
        let each = began.elapsed().as_secs_f64() / handled.len() as f64;
        for event in &handled {
            route
                .instruments
                .attempted(&Verdict::Accepted, &observed, each);
            route
                .instruments
                .accepted_after(clock.seconds_since(event.created_at, now));
        }
        let count = handled.len() as u64;
        route.instruments.delivered(count);
        route.counts.add(MessageStage::Sent, count);
        if filtered > 0 {
            route.instruments.ended("filtered", filtered as u64);
        }
        Ok(None)
    }
}

/// What a failure means for the head. One that says nothing of it is logged when it begins, and burns no attempt.
fn verdict(route: &Route, failure: Failure) -> Verdict {
    match failure {
        Failure::Raised(error) => Verdict::Retry { error, after: None },
        Failure::Switching => Verdict::Throttled {
            reason: failure.to_string(),
            after: SWITCHING_DELAY.mul_f64(0.5 + random()),
            of: None,
        },
        Failure::Unavailable(reason) => {
            if route.last_failure().as_ref() != Some(&reason) {
                tracing::error!(
                    subscription = %route.subscription.name, reason,
                    "the projection cannot be fed; its events wait, and it is tried again every few seconds"
                );
                route.failed(&reason);
            }
            let after = UNAVAILABLE_DELAY.mul_f64(0.5 + random());
            Verdict::Throttled {
                reason,
                after,
                of: None,
            }
        }
    }
}
