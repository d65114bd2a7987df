//! How many lanes of a route under a rate limit are claimed, and how lanes count while they wait for the limit
//! (I10, G2).
//!
//! The engine claims no faster than a limit allows: for a limited route there is room for half a second of sends,
//! divided by the fleet, and none while all wait. (If each waiting lane held a reservation however long it waits, a
//! lane that is told to wait for minutes would be claimed, settled and claimed again; ten thousand of them would be
//! a load. So reservations reach a second ahead, and a lane without one stays a due ready entry that nobody scans.)
//! A lane that waits in memory holds its lock and its place in the subscription's `concurrency`, but no slot of
//! `worker.max_lanes`; up to a quarter of that number may wait beside it. After two seconds a lane lets others have
//! their turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lanekeeper_core::bucket::Bucket;
use tokio::time::Instant;

use crate::claiming::kind::Kind;
use crate::claiming::reserve::reserve;

/// Lanes are claimed for this much time ahead of the limit.
const CLAIM_AHEAD: Duration = Duration::from_millis(500);

/// Decides how many lanes of a limited route may be claimed. Shared by all versions of the subscription.
#[derive(Debug, Default)]
pub struct Gate {
    /// Claimed lanes that wait for the limit.
    waiting: AtomicUsize,
    closed_until: Mutex<Option<Instant>>,
}

impl Gate {
    /// How many lanes may be claimed now.
    pub fn room(&self, buckets: &[Bucket], replicas: u32, now: Instant) -> usize {
        if self.opens_at().is_some_and(|at| at > now) {
            return 0;
        }
        let wanted = buckets.iter().map(|bucket| {
            let ahead = CLAIM_AHEAD.as_secs_f64() / bucket.rate.interval().as_secs_f64();
            let all = ahead + f64::from(bucket.burst);
            // In range, because rate and burst are.
            (all / f64::from(replicas.max(1))).ceil() as usize + 1
        });
        let wanted = wanted.min().unwrap_or(usize::MAX);
        let waiting = self.waiting.load(Ordering::Relaxed);
        // In steps: lanes wait again for their next event, so one that goes is no reason to claim another.
        if waiting >= wanted.div_ceil(2) {
            0
        } else {
            wanted - waiting
        }
    }

    /// Lets no lane be claimed until then.
    pub fn close(&self, until: Instant) {
        let mut closed = self.closed();
        *closed = (*closed).max(Some(until));
    }

    pub fn opens_at(&self) -> Option<Instant> {
        *self.closed()
    }

    fn closed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.closed_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counts over all slots of a worker.
#[derive(Debug)]
pub struct Counts {
    /// Slots of adapters in use: held lanes that have not lent their slot.
    pub held: AtomicUsize,
    /// Slots of handlers in use.
    pub held_by_handlers: AtomicUsize,
    /// How many lanes may be held.
    pub most: AtomicUsize,
    /// Lanes that wait for a limit and lent their slot.
    slots_lent: AtomicUsize,
}

impl Counts {
    pub fn new(most: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            held_by_handlers: AtomicUsize::new(0),
            most: AtomicUsize::new(most),
            slots_lent: AtomicUsize::new(0),
        }
    }

    /// Slots in use by connections of this kind.
    pub fn of(&self, kind: Kind) -> &AtomicUsize {
        match kind {
            Kind::Adapters => &self.held,
            Kind::Handlers => &self.held_by_handlers,
        }
    }
}

/// How many lanes a worker may hold beyond `max_lanes` because they wait for a limit.
pub fn most_waiting(max_lanes: usize) -> usize {
    max_lanes.div_ceil(4)
}

/// The slot of a held lane under a limit. A lane that waits lends it to others.
#[derive(Debug)]
pub struct LaneSlot {
    counts: Arc<Counts>,
    gate: Arc<Gate>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Counted as waiting at the gate.
    at_gate: bool,
    /// Not counted among the held lanes.
    slot_lent: bool,
    gone: bool,
    /// When the current delivery began; in the future while the lane waits.
    busy_from: Instant,
}

impl LaneSlot {
    /// The slot of a lane that was claimed and is counted as held.
    pub fn new(counts: Arc<Counts>, gate: Arc<Gate>) -> Self {
        gate.waiting.fetch_add(1, Ordering::Relaxed);
        Self {
            counts,
            gate,
            state: Mutex::new(State {
                at_gate: true,
                slot_lent: false,
                gone: false,
                busy_from: Instant::now(),
            }),
        }
    }

    /// The lane waits. Returns whether that freed a slot for others.
    pub fn wait(&self, until: Instant) -> bool {
        let mut state = self.state();
        if state.gone {
            return false;
        }
        state.busy_from = until;
        if !state.at_gate {
            state.at_gate = true;
            self.gate.waiting.fetch_add(1, Ordering::Relaxed);
        }
        let counts = &self.counts;
        let most = most_waiting(counts.most.load(Ordering::Relaxed));
        if state.slot_lent || reserve(&counts.slots_lent, most, 1) == 0 {
            return false;
        }
        state.slot_lent = true;
        counts.held.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// The lane delivers.
    pub fn go(&self) {
        let mut state = self.state();
        if state.gone {
            return;
        }
        state.busy_from = Instant::now();
        if std::mem::take(&mut state.at_gate) {
            self.gate.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if std::mem::take(&mut state.slot_lent) {
            self.counts.held.fetch_add(1, Ordering::Relaxed);
            self.counts.slots_lent.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// When the current delivery began; in the future while the lane waits.
    pub fn busy_from(&self) -> Instant {
        self.state().busy_from
    }

    /// The lane was released: it is counted nowhere from now on.
    pub fn leave(&self) {
        self.go();
        let mut state = self.state();
        if !std::mem::replace(&mut state.gone, true) {
            self.counts.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(rate: &str) -> Bucket {
        Bucket {
            key: "k".into(),
            rate: rate.parse().unwrap(),
            burst: 1,
        }
    }

    #[tokio::test]
    async fn a_limited_route_is_claimed_half_a_second_ahead() {
        let gate = Arc::new(Gate::default());
        let now = Instant::now();
        let room = |rate: &str| gate.room(&[bucket(rate)], 4, now);
        assert_eq!(room("20/s"), 4);
        assert_eq!(room("20/min"), 2);
        assert_eq!(gate.room(&[bucket("20/s"), bucket("20/min")], 4, now), 2);
        let counts = Arc::new(Counts::new(100));
        let slots: Vec<_> = (0..2)
            .map(|_| LaneSlot::new(Arc::clone(&counts), Arc::clone(&gate)))
            .collect();
        assert_eq!(room("20/s"), 0, "enough lanes wait");
        slots[0].go();
        assert_eq!(room("20/s"), 3);
        gate.close(now + Duration::from_secs(1));
        assert_eq!(room("20/s"), 0);
    }

    #[tokio::test]
    async fn a_waiting_lane_lends_its_slot_up_to_a_limit() {
        let gate = Arc::new(Gate::default());
        let counts = Arc::new(Counts::new(4));
        counts.held.store(2, Ordering::Relaxed);
        let slots = [(); 2].map(|()| LaneSlot::new(Arc::clone(&counts), Arc::clone(&gate)));
        let held = || counts.held.load(Ordering::Relaxed);
        let until = Instant::now();
        assert!(slots[0].wait(until) && !slots[0].wait(until));
        assert!(
            !slots[1].wait(until),
            "a quarter of the lanes may lend their slot"
        );
        assert_eq!(held(), 1);
        slots[0].go();
        assert_eq!(held(), 2);
        for place in &slots {
            place.leave();
            place.leave();
            place.go();
            assert!(!place.wait(until));
        }
        assert_eq!((held(), gate.waiting.load(Ordering::Relaxed)), (0, 0));
    }
}
