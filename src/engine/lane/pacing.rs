//! A lane before its delivery, where limits hold (I10) and breakers may be open (C8), and what is told of it
//! after. Under a limit it waits for its turn where it is, or goes back to its token until then. It never
//! burns an attempt. A stop, a lost claim, a pause of its subscription and an operator who wants it end every wait.
//!
//! Limits of the adapter's own, a chat's say, are few sends for many sessions. Lanes wait for those in the
//! bucket's line, for ten of its intervals: first come, first served, whichever worker they are with. What
//! they are about to send they read again before their turn, so that the newest version goes (G5).

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_core::bucket::Bucket;
use lanekeeper_core::event::Event;
use lanekeeper_fault::Mutation;
use lanekeeper_limit::{Admission, Answer, HORIZON, Passage, Slot};
use lanekeeper_postgres::settle::Operation;
use tokio::time::{Instant, sleep_until};

use super::{Ending, Runner, SETTLE_EVERY};
use crate::lifecycle::{self, Happening};
use crate::progress::Stop;
use crate::route::Patience;
use crate::wanted;

/// How long a lane under a limit is held before others have their turn.
const TURN: Duration = Duration::from_secs(2);
/// A lane whose turn comes late is claimed so much before it.
const TURN_AHEAD: Duration = Duration::from_millis(500);
/// A turn that is further away is asked for again: the limit may have been changed by then.
const LATEST_TURN: Duration = Duration::from_secs(60);

/// How long a lane waits in the line of a bucket of its adapter's.
const LINE_INTERVALS: u32 = 10;
const LONGEST_LINE: Duration = Duration::from_secs(30);
/// A wait that is worth another look at the log before it ends.
const LOOKS_AGAIN: Duration = Duration::from_millis(250);
/// How long before its turn it looks: a round trip to Postgres, and time to spare.
const LOOK_AHEAD: Duration = Duration::from_millis(50);

/// A lane's place in a line.
pub(super) struct Turn {
    /// When it asked first.
    since: Instant,
    slot: Option<Slot>,
    horizon: Duration,
    _patience: Option<Patience>,
}

/// How far ahead slots of this bucket are given to those who may wait for them.
fn line(bucket: &Bucket) -> Duration {
    (bucket.rate.interval() * LINE_INTERVALS).clamp(HORIZON, LONGEST_LINE)
}

impl Runner<'_> {
    /// Whether nothing is known against its destination.
    pub(super) fn is_free(&self) -> bool {
        matches!(
            self.context.limiter().passage(&self.route.place),
            Passage::Free
        )
    }

    /// Waits until limits and breaker let the head go; true: this delivery is the breaker's probe.
    pub(super) async fn clear(&mut self, buckets: &[Bucket]) -> Result<bool, Ending> {
        self.pace(buckets).await?;
        self.admit().await
    }

    /// Whether its destination may be sent to at all; true: this delivery is the probe.
    async fn admit(&self) -> Result<bool, Ending> {
        match self.context.limiter().admit(&self.route.place).await {
            Admission::Free => Ok(false),
            Admission::Probe => Ok(true),
            // Its token stays due: the route is not claimed before then.
            Admission::Shut => Err(Ending::Stopped(Stop::new(Operation::Yield))),
        }
    }

    /// Tells what the destination made of a delivery: a pause to those who share its limits, a failure
    /// or a sign of life to those who send there.
    pub(super) async fn report(
        &self,
        learned: Vec<(Bucket, Duration)>,
        verdict: &Verdict,
        buckets: &[Bucket],
        probe: bool,
    ) {
        let limiter = self.context.limiter();
        for (bucket, pause) in learned {
            limiter.pause(&[bucket], pause).await;
        }
        match verdict {
            Verdict::Throttled {
                after,
                of: Some(bucket),
                ..
            } => limiter.pause(std::slice::from_ref(bucket), *after).await,
            Verdict::Throttled { after, .. } if !buckets.is_empty() => {
                limiter.pause(buckets, *after).await;
            }
            Verdict::Retry { .. } => {
                let lane_id = self.claimed.lane_id;
                if limiter.failed(&self.route.place, lane_id, probe).await {
                    self.tell(|destination, subscription| Happening::CircuitOpened {
                        destination,
                        subscription,
                    });
                }
                return;
            }
            _ => {}
        }
        if limiter.succeeded(&self.route.place).await {
            self.tell(|destination, subscription| Happening::CircuitClosed {
                destination,
                subscription,
            });
        }
    }

    /// Tells the lifecycle feed of its destination, unless it delivers that feed itself.
    fn tell(&self, happening: impl FnOnce(String, String) -> Happening) {
        if !lifecycle::is_feed(self.route) {
            let destination = self.route.place.to_string();
            let subscription = self.route.subscription.name.to_string();
            self.context.tell(happening(destination, subscription));
        }
    }

    /// What the delivery of this event draws on: its subscription's limits, and the adapter's.
    pub(super) fn buckets(&self, event: &Event) -> Vec<Bucket> {
        let mut buckets = self.route.buckets.clone();
        buckets.extend(self.adapter.buckets(event));
        buckets
    }

    /// Waits until the limits let the head go, or says why the lane is let go instead.
    async fn pace(&mut self, buckets: &[Bucket]) -> Result<(), Ending> {
        let shut = matches!(
            self.context.limiter().passage(&self.route.place),
            Passage::Shut { .. }
        );
        if shut {
            // Before a turn is taken that would not be used.
            return Err(Ending::Stopped(Stop::new(Operation::Yield)));
        }
        if buckets.is_empty() || Mutation::TurnNotAwaited.is_on() {
            self.turn = None;
            return Ok(());
        }
        if self.turn.is_none() && self.delivered > 0 && self.claimed_at.elapsed() > TURN {
            return Err(Ending::Stopped(Stop::turn_over()));
        }
        let context = self.context;
        let stopping = &context.stopping;
        let mut turn = self.turn.take().unwrap_or_else(|| Turn {
            since: Instant::now(),
            slot: None,
            horizon: HORIZON,
            _patience: None,
        });
        loop {
            let asking = context
                .limiter()
                .ask(buckets, turn.slot.take(), turn.horizon);
            let answer = tokio::select! {
                biased;
                () = stopping.cancelled() => return Err(Ending::Stopped(Stop::new(Operation::Release))),
                answer = asking => answer,
            };
            match answer {
                Answer::Go => {
                    let waited = turn.since.elapsed().as_secs_f64();
                    context.instruments().limit_wait.record(waited, &[]);
                    if let Some(place) = &self.place {
                        place.go();
                        context.made_room();
                    }
                    return Ok(());
                }
                Answer::Wait { until, slot } => {
                    turn.slot = slot;
                    self.rest(until).await?;
                    if self.looks_again(buckets, until) {
                        self.turn = Some(turn);
                        return Err(Ending::Rests(until));
                    }
                    if let Some(stop) = self.wait(until).await {
                        return Err(Ending::Stopped(stop));
                    }
                }
                Answer::Later { after, bucket } => {
                    let own = self.route.buckets.len();
                    if bucket < own {
                        context.instruments().limit_postponed.add(1, &[]);
                        let until = until_turn(after);
                        self.route.gate.close(Instant::now() + until);
                        return Err(Ending::Stopped(Stop::turn(until)));
                    }
                    let line = buckets.get(bucket).map_or(HORIZON, line);
                    if turn.horizon < line
                        && after <= line
                        && let Some(patience) = self.route.patience()
                    {
                        turn.horizon = line;
                        turn._patience = Some(patience);
                        continue;
                    }
                    context.instruments().limit_postponed.add(1, &[]);
                    // Until there is room in the line again.
                    let after = match after.checked_sub(line) {
                        Some(until_room) => until_room.max(TURN_AHEAD * 2),
                        None => after,
                    };
                    return Err(Ending::Stopped(Stop::turn(until_turn(after))));
                }
                Answer::Elsewhere { again } => {
                    self.route.gate.close(Instant::now() + again);
                    return Err(Ending::Stopped(Stop::new(Operation::Yield)));
                }
            }
        }
    }

    /// Whether what waits is read again before its turn. A dead letter says what it said.
    fn looks_again(&self, buckets: &[Bucket], until: Instant) -> bool {
        buckets.len() > self.route.buckets.len()
            && until.saturating_duration_since(Instant::now()) > LOOKS_AGAIN
            && !self.progress.faces_letter()
            && !self.progress.has_requeued()
    }

    /// Sleeps until shortly before its turn, with nothing fetched. What it does then.
    pub(super) async fn sleep_before(&self, until: Instant) -> Stop {
        let ended = self.wait(until - LOOK_AHEAD).await;
        // There is something: its head has not been passed.
        ended.unwrap_or_else(|| Stop::new(Operation::Finish))
    }

    /// Sleeps until then; why the lane is let go instead, where the worker stops, an operator wants the lane, or the
    /// subscription is paused, removed or changed meanwhile.
    async fn wait(&self, until: Instant) -> Option<Stop> {
        tokio::select! {
            biased;
            () = self.context.stopping.cancelled() => Some(Stop::new(Operation::Release)),
            () = self.route.replacement() => Some(Stop::new(Operation::Yield)),
            () = self.context.wanted(self.claimed.lane_id) => Some(Stop::turn(wanted::MOMENT)),
            () = sleep_until(until) => None,
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

/// When a lane whose turn is that far away is claimed for it.
fn until_turn(after: Duration) -> Duration {
    after.min(LATEST_TURN).saturating_sub(TURN_AHEAD)
}
