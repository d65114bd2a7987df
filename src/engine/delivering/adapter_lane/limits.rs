//! What a lane does before a delivery where rate limits (I10) and circuits (C8) apply, and what it reports
//! afterwards.
//!
//! Under a limit it waits for its turn while it is held, or is released with an entry that is due shortly before
//! its reservation. Waiting costs no attempt. The wait ends early if the worker stops, the claim is lost, the
//! subscription is paused, or an operator requests the lane.
//!
//! **Queues of chats.** A chat's limit is few sends for many sessions: a group of twenty a minute is shared by all
//! that speak there. Lanes that were told to come back would race for each turn, and some would never win. So they
//! wait in the bucket's queue, with reservations that reach ten intervals ahead: first come, first served, at Redis
//! and therefore over all workers. A reservation is for the lane, not for its content: shortly before it the lane
//! drops what it fetched and fetches anew, so that progress output is coalesced to the newest then (G5). The stored
//! queue only grows, so a lane that asks for a near reservation cannot overtake lanes with far ones.

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_core::bucket::Bucket;
use lanekeeper_core::event::Event;
use lanekeeper_fault::Mutation;
use lanekeeper_limit::{Admission, Answer, HORIZON, Passage, Slot};
use lanekeeper_postgres::settle::Operation;
use tokio::time::{Instant, sleep_until};

use super::{Ending, Runner, SETTLE_EVERY};
use crate::claiming::kind::Kind;
use crate::claiming::route::LongWait;
use crate::delivering::pauses;
use crate::delivering::progress::Stop;
use crate::maintenance::lifecycle::{self, LifecycleEvent};
use crate::waking::operator_request;

/// How long a lane under a limit is held before others have their turn.
const HOLD_LIMIT: Duration = Duration::from_secs(2);
/// A lane with a late reservation is claimed this long before it.
const CLAIM_AHEAD: Duration = Duration::from_millis(500);
/// A reservation that is further away is requested again: the limit may have changed by then.
const RESERVATION_MAX: Duration = Duration::from_secs(60);

/// How many intervals a lane waits in the queue of a bucket of its adapter.
const QUEUE_INTERVALS: u32 = 10;
const QUEUE_MAX: Duration = Duration::from_secs(30);
/// A lane that waits longer than this fetches anew before its reservation.
const REFETCH_IF_LONGER: Duration = Duration::from_millis(250);
/// How long before its reservation it fetches: a round trip to Postgres, with time to spare.
const REFETCH_AHEAD: Duration = Duration::from_millis(50);

/// A lane's position in a queue.
pub(super) struct QueuePosition {
    /// When the lane asked first.
    since: Instant,
    slot: Option<Slot>,
    horizon: Duration,
    _long_wait: Option<LongWait>,
}

/// How far ahead this bucket gives reservations to lanes that may wait long.
fn queue(bucket: &Bucket) -> Duration {
    (bucket.rate.interval() * QUEUE_INTERVALS).clamp(HORIZON, QUEUE_MAX)
}

impl Runner<'_> {
    /// Whether no circuit of its destination is open or half open.
    fn is_free(&self) -> bool {
        matches!(
            self.context.limiter().passage(&self.route.destination_name),
            Passage::Free
        )
    }

    /// Waits, where there is anything to wait for, until limits and circuit let the head go. Returns true if this
    /// delivery is the circuit's probe.
    pub(super) async fn pass_limits(&mut self, buckets: &[Bucket]) -> Result<bool, Ending> {
        if buckets.is_empty() && self.is_free() {
            self.queue_position = None;
            return Ok(false);
        }
        Box::pin(self.wait_for_limits(buckets)).await
    }

    /// Reports the result of a delivery where it is news to anybody.
    pub(super) async fn report_verdict(&self, verdict: &Verdict, buckets: &[Bucket], probe: bool) {
        // Before anything else: other lanes are about to send.
        let learned = self.adapter.learned();
        let is_taken = matches!(verdict, Verdict::Accepted | Verdict::Sent);
        let news = !is_taken || !self.context.limiter().all_is_well();
        if news || !learned.is_empty() {
            Box::pin(self.report(learned, verdict, buckets, probe)).await;
        }
    }

    /// Waits until limits and circuit let the head go. Returns true if this delivery is the circuit's probe.
    async fn wait_for_limits(&mut self, buckets: &[Bucket]) -> Result<bool, Ending> {
        self.take_turn(buckets).await?;
        self.admit().await
    }

    /// Whether the circuit lets anything through. Returns true if this delivery is the probe.
    async fn admit(&self) -> Result<bool, Ending> {
        match self
            .context
            .limiter()
            .admit(&self.route.destination_name)
            .await
        {
            Admission::Free => Ok(false),
            Admission::Probe => Ok(true),
            // Its entry stays due: the route is not claimed before the circuit lets it.
            Admission::Shut => Err(Ending::Stopped(Stop::new(Operation::Yield))),
        }
    }

    /// Reports the result of a delivery: a pause to those who share the limits, a failure or a success to those who
    /// send to the destination.
    async fn report(
        &self,
        learned: Vec<(Bucket, Duration)>,
        verdict: &Verdict,
        buckets: &[Bucket],
        probe: bool,
    ) {
        let limiter = self.context.limiter();
        for (bucket, pause) in learned {
            pauses::pause(&self.context.shared, &[bucket], pause).await;
        }
        match verdict {
            Verdict::Throttled {
                after,
                of: Some(bucket),
                ..
            } => {
                let bucket = std::slice::from_ref(bucket);
                pauses::pause(&self.context.shared, bucket, *after).await;
            }
            Verdict::Throttled { after, .. } if !buckets.is_empty() => {
                pauses::pause(&self.context.shared, buckets, *after).await;
            }
            // It says nothing of the destination, good or bad.
            Verdict::NotSent { .. } => return,
            Verdict::Retry { error, .. } => {
                self.route.failed(error);
                if !self.adapter.is_one_place() {
                    return;
                }
                let lane_id = self.claimed.lane_id;
                if limiter
                    .failed(&self.route.destination_name, lane_id, probe)
                    .await
                {
                    let subscription = &self.route.subscription;
                    tracing::warn!(
                        subscription = %subscription.name, stream = %subscription.stream,
                        destination = %self.route.destination_name,
                        lanes = self.context.shared.settings.breaker.lanes,
                        "circuit opened: the destination failed so many sessions in a row. Its events wait, no \
                         attempt is burnt, and one of them tries it from time to time"
                    );
                    self.publish(|destination, subscription| LifecycleEvent::CircuitOpened {
                        destination,
                        subscription,
                    });
                }
                return;
            }
            _ => {}
        }
        if limiter.succeeded(&self.route.destination_name).await {
            let subscription = &self.route.subscription;
            tracing::info!(
                subscription = %subscription.name, stream = %subscription.stream,
                destination = %self.route.destination_name,
                "circuit closed: the destination answers again"
            );
            self.publish(|destination, subscription| LifecycleEvent::CircuitClosed {
                destination,
                subscription,
            });
        }
    }

    /// Publishes an event about its destination on the lifecycle feed, unless this route delivers that feed.
    fn publish(&self, event: impl FnOnce(String, String) -> LifecycleEvent) {
        if !lifecycle::is_feed(self.route) {
            let destination = self.route.destination_name.to_string();
            let subscription = self.route.subscription.name.to_string();
            self.context.publish(event(destination, subscription));
        }
    }

    /// The buckets of this delivery: those of the subscription's limits, then the adapter's.
    pub(super) fn buckets(&self, event: &Event) -> Vec<Bucket> {
        let mut buckets = self.route.buckets.clone();
        buckets.extend(self.adapter.buckets(event));
        buckets
    }

    /// Waits until the limits let the head go, or returns why the lane is released instead.
    async fn take_turn(&mut self, buckets: &[Bucket]) -> Result<(), Ending> {
        let shut = matches!(
            self.context.limiter().passage(&self.route.destination_name),
            Passage::Shut { .. }
        );
        if shut {
            // Before a reservation is made that would not be used.
            return Err(Ending::Stopped(Stop::new(Operation::Yield)));
        }
        if buckets.is_empty() || Mutation::TurnNotAwaited.is_on() {
            self.queue_position = None;
            return Ok(());
        }
        if self.queue_position.is_none()
            && self.delivered > 0
            && self.claimed_at.elapsed() > HOLD_LIMIT
        {
            return Err(Ending::Stopped(Stop::yields()));
        }
        let context = self.context;
        let mut position = self.queue_position.take().unwrap_or_else(|| QueuePosition {
            since: Instant::now(),
            slot: None,
            horizon: HORIZON,
            _long_wait: None,
        });
        loop {
            let asking = context
                .limiter()
                .ask(buckets, position.slot.take(), position.horizon);
            let answer = tokio::select! {
                biased;
                () = context.stopping() => return Err(Ending::Stopped(Stop::new(Operation::Release))),
                answer = asking => answer,
            };
            match answer {
                Answer::Go => {
                    let waited = position.since.elapsed().as_secs_f64();
                    self.route.instruments.waited_for_limit(waited);
                    if let Some(slot) = &self.slot {
                        slot.go();
                        context.shared.claiming.made_room(Kind::Adapters);
                    }
                    return Ok(());
                }
                Answer::Wait { until, slot } => {
                    position.slot = slot;
                    self.prepare_to_wait(until).await?;
                    if self.refetches(buckets, until) {
                        self.queue_position = Some(position);
                        return Err(Ending::WaitsUntil(until));
                    }
                    if let Some(stop) = self.wait(until).await {
                        return Err(Ending::Stopped(stop));
                    }
                }
                Answer::Later { after, bucket } => {
                    let own = self.route.buckets.len();
                    if bucket < own {
                        self.route.instruments.postponed_by_limit();
                        let until = until_claim(after);
                        self.route.gate.close(Instant::now() + until);
                        return Err(Ending::Stopped(Stop::at_reservation(until)));
                    }
                    let queue = buckets.get(bucket).map_or(HORIZON, queue);
                    if position.horizon < queue
                        && after <= queue
                        && let Some(long_wait) = self.route.long_wait()
                    {
                        position.horizon = queue;
                        position._long_wait = Some(long_wait);
                        continue;
                    }
                    self.route.instruments.postponed_by_limit();
                    // Until there is room in the queue again.
                    let after = match after.checked_sub(queue) {
                        Some(until_room) => until_room.max(CLAIM_AHEAD * 2),
                        None => after,
                    };
                    return Err(Ending::Stopped(Stop::at_reservation(until_claim(after))));
                }
                Answer::Elsewhere { again } => {
                    self.route.gate.close(Instant::now() + again);
                    return Err(Ending::Stopped(Stop::new(Operation::Yield)));
                }
            }
        }
    }

    /// Whether the lane fetches anew before its reservation. What is behind the cursor never changes.
    fn refetches(&self, buckets: &[Bucket], until: Instant) -> bool {
        buckets.len() > self.route.buckets.len()
            && until.saturating_duration_since(Instant::now()) > REFETCH_IF_LONGER
            && !self.progress.head_is_behind()
            && !self.progress.has_requeued()
    }

    /// Sleeps until shortly before the reservation, with nothing fetched. Returns how the lane continues.
    pub(super) async fn sleep_before(&self, until: Instant) -> Stop {
        let ended = self.wait(until - REFETCH_AHEAD).await;
        // `Finish` fetches anew: the head has not been passed.
        ended.unwrap_or_else(|| Stop::new(Operation::Finish))
    }

    /// Sleeps until then. Returns why the lane is released instead, if the worker stops, an operator requests the
    /// lane, its session is closed or interrupted, or the subscription is paused, removed or changed meanwhile.
    async fn wait(&self, until: Instant) -> Option<Stop> {
        tokio::select! {
            biased;
            () = self.context.stopping() => Some(Stop::new(Operation::Release)),
            () = self.route.until_replaced() => Some(Stop::new(Operation::Yield)),
            () = self.context.shared.waking.operator_requests.wait(self.claimed.lane_id) => {
                Some(Stop::at_reservation(operator_request::SEEN_FOR))
            },
            _ = self.context.shared.waking.interruptions.wait(self.claimed.session_id, self.progress.next_seq(), self.claimed_at) => {
                Some(Stop::yields())
            }
            () = sleep_until(until) => None,
        }
    }

    /// Before a wait: lends the slot to others, and settles so that a crash repeats nothing.
    async fn prepare_to_wait(&mut self, until: Instant) -> Result<(), Ending> {
        if self.slot.as_ref().is_some_and(|slot| slot.wait(until)) {
            self.context.shared.claiming.made_room(Kind::Adapters);
        }
        if self.progress.is_unsettled()
            && until.saturating_duration_since(Instant::now()) > SETTLE_EVERY
        {
            self.settle_and_keep().await?;
        }
        Ok(())
    }
}

/// When a lane whose reservation is `after` away is claimed for it.
fn until_claim(after: Duration) -> Duration {
    after.min(RESERVATION_MAX).saturating_sub(CLAIM_AHEAD)
}
