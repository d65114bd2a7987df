//! A lane before its delivery, where limits hold (I10): it waits for its turn where it is, or goes back
//! to its token until then. It never burns an attempt, and a stop or a lost claim ends every wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Ending, Runner, SETTLE_EVERY};
use crate::engine::progress::Stop;
use crate::event::Event;
use crate::limit::{Answer, Bucket};
use crate::store::settle::Operation;

/// How long a lane under a limit is held before others have their turn.
const TURN: Duration = Duration::from_secs(2);
/// A lane whose turn comes late is claimed so much before it.
const TURN_AHEAD: Duration = Duration::from_millis(500);

impl Runner {
    /// What the delivery of this event draws on: its subscription's limits, and the adapter's.
    pub(super) fn buckets(&self, event: &Event) -> Vec<Bucket> {
        let mut buckets = self.route.buckets.clone();
        buckets.extend(self.adapter.buckets(event));
        buckets
    }

    /// Waits until the limits let the head go, or says why the lane is let go instead.
    pub(super) async fn pace(&mut self, buckets: &[Bucket]) -> Result<(), Ending> {
        if buckets.is_empty() {
            return Ok(());
        }
        if self.delivered > 0 && self.claimed_at.elapsed() > TURN {
            return Err(Ending::Stopped(Stop::turn_over()));
        }
        let context = Arc::clone(&self.context);
        let stopping = &context.stopping;
        let mut slot = None;
        loop {
            let answer = tokio::select! {
                biased;
                () = stopping.cancelled() => return Err(Ending::Stopped(Stop::new(Operation::Release))),
                answer = context.limiter().ask(buckets, slot.take()) => answer,
            };
            match answer {
                Answer::Go => {
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
                    let turn = after.saturating_sub(TURN_AHEAD);
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
