//! A lane before its delivery, where limits hold (I10) and breakers may be open (C8), and what is told of it
//! after. Under a limit it waits for its turn where it is, or goes back to its token until then. It never
//! burns an attempt, and a stop or a lost claim ends every wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Ending, Runner, SETTLE_EVERY};
use crate::adapter::Verdict;
use crate::engine::progress::Stop;
use crate::event::Event;
use crate::limit::{Admission, Answer, Bucket, Passage};
use crate::mutation::Mutation;
use crate::store::settle::Operation;

/// How long a lane under a limit is held before others have their turn.
const TURN: Duration = Duration::from_secs(2);
/// A lane whose turn comes late is claimed so much before it.
const TURN_AHEAD: Duration = Duration::from_millis(500);
/// A turn that is further away is asked for again: the limit may have been changed by then.
const LATEST_TURN: Duration = Duration::from_secs(60);

impl Runner {
    /// Whether its destination may be sent to at all; true: this delivery is the probe.
    pub(super) async fn admit(&self) -> Result<bool, Ending> {
        match self.context.limiter().admit(&self.route.place).await {
            Admission::Free => Ok(false),
            Admission::Probe => Ok(true),
            // Its token stays due: the route is not claimed before then.
            Admission::Shut => Err(Ending::Stopped(Stop::new(Operation::Yield))),
        }
    }

    /// Tells what the destination made of a delivery: a pause to those who share its limits, a failure
    /// or a sign of life to those who send there.
    pub(super) async fn report(&self, verdict: &Verdict, buckets: &[Bucket], probe: bool) {
        let limiter = self.context.limiter();
        match verdict {
            Verdict::Throttled { after, .. } if !buckets.is_empty() => {
                limiter.pause(buckets, *after).await;
            }
            Verdict::Retry { .. } => {
                let lane_id = self.claimed.lane_id;
                return limiter.failed(&self.route.place, lane_id, probe).await;
            }
            _ => {}
        }
        limiter.succeeded(&self.route.place).await;
    }

    /// What the delivery of this event draws on: its subscription's limits, and the adapter's.
    pub(super) fn buckets(&self, event: &Event) -> Vec<Bucket> {
        let mut buckets = self.route.buckets.clone();
        buckets.extend(self.adapter.buckets(event));
        buckets
    }

    /// Waits until the limits let the head go, or says why the lane is let go instead.
    pub(super) async fn pace(&mut self, buckets: &[Bucket]) -> Result<(), Ending> {
        let shut = matches!(
            self.context.limiter().passage(&self.route.place),
            Passage::Shut { .. }
        );
        if shut {
            // Before a turn is taken that would not be used.
            return Err(Ending::Stopped(Stop::new(Operation::Yield)));
        }
        if buckets.is_empty() || Mutation::TurnNotAwaited.is_on() {
            return Ok(());
        }
        if self.delivered > 0 && self.claimed_at.elapsed() > TURN {
            return Err(Ending::Stopped(Stop::turn_over()));
        }
        let context = Arc::clone(&self.context);
        let stopping = &context.stopping;
        let asked_at = Instant::now();
        let mut slot = None;
        loop {
            let answer = tokio::select! {
                biased;
                () = stopping.cancelled() => return Err(Ending::Stopped(Stop::new(Operation::Release))),
                answer = context.limiter().ask(buckets, slot.take()) => answer,
            };
            match answer {
                Answer::Go => {
                    let waited = asked_at.elapsed().as_secs_f64();
                    context.instruments().limit_wait.record(waited, &[]);
                    if let Some(place) = &self.place {
                        place.go();
                        context.made_room();
                    }
                    return Ok(());
                }
                Answer::Wait { until, slot: given } => {
                    slot = given;
                    self.rest(until).await?;
                    tokio::select! {
                        biased;
                        () = stopping.cancelled() => {
                            return Err(Ending::Stopped(Stop::new(Operation::Release)));
                        }
                        () = sleep_until(until) => {}
                    }
                }
                Answer::Later { after, bucket } => {
                    context.instruments().limit_postponed.add(1, &[]);
                    let turn = after.min(LATEST_TURN).saturating_sub(TURN_AHEAD);
                    if bucket < self.route.buckets.len() {
                        self.route.gate.close(Instant::now() + turn);
                    }
                    return Err(Ending::Stopped(Stop::turn(turn)));
                }
                Answer::Elsewhere { again } => {
                    self.route.gate.close(Instant::now() + again);
                    return Err(Ending::Stopped(Stop::new(Operation::Yield)));
                }
            }
        }
    }

    /// What is done before a wait: others get the place, and a crash repeats nothing.
    async fn rest(&mut self, until: Instant) -> Result<(), Ending> {
        if self.place.as_ref().is_some_and(|place| place.wait(until)) {
            self.context.made_room();
        }
        if self.progress.is_unsettled()
            && until.saturating_duration_since(Instant::now()) > SETTLE_EVERY
        {
            self.keep().await?;
        }
        Ok(())
    }
}
