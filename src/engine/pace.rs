//! How a worker bears limits: what it claims of a limited subscription, and what a lane is while it
//! waits for its turn (I10, G2).
//!
//! Lanes are claimed no faster than their limit lets them go: some that wait, so that no turn is missed,
//! and no more. The rest stay where they are, as due tokens, and cost nothing. A lane that waits in
//! memory gives its place among the worker's lanes to others; one that would wait for longer goes back,
//! with its turn as its token's due time, and nothing more is claimed until then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lanekeeper_core::bucket::Bucket;
use tokio::time::Instant;

use super::reserve::reserve;

/// What is claimed ahead of the limit.
const AHEAD: Duration = Duration::from_millis(500);

/// What stands between a limited route and its claims; shared by all versions of the subscription.
#[derive(Debug, Default)]
pub struct Gate {
    /// Lanes that were claimed and wait for their turn.
    waiting: AtomicUsize,
    closed_until: Mutex<Option<Instant>>,
}

impl Gate {
    /// Lanes that may be claimed now.
    pub fn room(&self, buckets: &[Bucket], replicas: u32, now: Instant) -> usize {
        if self.opens_at().is_some_and(|at| at > now) {
            return 0;
        }
        let wanted = buckets.iter().map(|bucket| {
            let ahead = AHEAD.as_secs_f64() / bucket.rate.interval().as_secs_f64();
            let all = ahead + f64::from(bucket.burst);
            // Bounded by the bounds of rate and burst.
            (all / f64::from(replicas.max(1))).ceil() as usize + 1
        });
        let wanted = wanted.min().unwrap_or(usize::MAX);
        let waiting = self.waiting.load(Ordering::Relaxed);
        // In steps: lanes come back to wait, and each that goes is no reason to claim another.
        if waiting >= wanted.div_ceil(2) {
            0
        } else {
            wanted - waiting
        }
    }

    /// Nothing is claimed until then.
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

/// What all places of a worker count in.
#[derive(Debug)]
pub struct Counts {
    /// Lanes that are held and do not rest.
    pub held: AtomicUsize,
    /// How many may be held.
    pub most: AtomicUsize,
    /// Lanes that wait for their turn and gave their place to others.
    resting: AtomicUsize,
}

impl Counts {
    pub fn new(most: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            most: AtomicUsize::new(most),
            resting: AtomicUsize::new(0),
        }
    }
}

/// Lanes that a worker may hold beyond its bound, because they wait for a limit.
pub fn most_resting(max_lanes: usize) -> usize {
    max_lanes.div_ceil(4)
}

/// The place of a limited lane while it is held.
#[derive(Debug)]
pub struct Place {
    counts: Arc<Counts>,
    gate: Arc<Gate>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Counted at the gate.
    waits: bool,
    /// Not counted among the held lanes.
    rests: bool,
    gone: bool,
    /// Since when it delivers, or from when on.
    busy_from: Instant,
}

impl Place {
    /// The place of a lane that was claimed, and is counted as held.
    pub fn new(counts: Arc<Counts>, gate: Arc<Gate>) -> Self {
        gate.waiting.fetch_add(1, Ordering::Relaxed);
        Self {
            counts,
            gate,
            state: Mutex::new(State {
                waits: true,
                rests: false,
                gone: false,
                busy_from: Instant::now(),
            }),
        }
    }

    /// The lane waits. Returns whether others have more room by that.
    pub fn wait(&self, until: Instant) -> bool {
        let mut state = self.state();
        if state.gone {
            return false;
        }
        state.busy_from = until;
        if !state.waits {
            state.waits = true;
            self.gate.waiting.fetch_add(1, Ordering::Relaxed);
        }
        let counts = &self.counts;
        let most = most_resting(counts.most.load(Ordering::Relaxed));
        if state.rests || reserve(&counts.resting, most, 1) == 0 {
            return false;
        }
        state.rests = true;
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
        if std::mem::take(&mut state.waits) {
            self.gate.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if std::mem::take(&mut state.rests) {
            self.counts.held.fetch_add(1, Ordering::Relaxed);
            self.counts.resting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Since when it delivers; in the future while it waits.
    pub fn busy_from(&self) -> Instant {
        self.state().busy_from
    }

    /// The lane was let go: it counts nowhere any more.
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
    async fn a_route_is_claimed_a_little_ahead_of_its_limit_and_not_further() {
        let gate = Arc::new(Gate::default());
        let now = Instant::now();
        let room = |rate: &str| gate.room(&[bucket(rate)], 4, now);
        assert_eq!(room("20/s"), 4);
        assert_eq!(room("20/min"), 2);
        assert_eq!(gate.room(&[bucket("20/s"), bucket("20/min")], 4, now), 2);
        let counts = Arc::new(Counts::new(100));
        let places: Vec<_> = (0..2)
            .map(|_| Place::new(Arc::clone(&counts), Arc::clone(&gate)))
            .collect();
        assert_eq!(room("20/s"), 0, "enough of them wait");
        places[0].go();
        assert_eq!(room("20/s"), 3);
        gate.close(now + Duration::from_secs(1));
        assert_eq!(room("20/s"), 0);
    }

    #[tokio::test]
    async fn a_waiting_lane_gives_its_place_to_others_up_to_a_bound() {
        let gate = Arc::new(Gate::default());
        let counts = Arc::new(Counts::new(4));
        counts.held.store(2, Ordering::Relaxed);
        let places = [(); 2].map(|()| Place::new(Arc::clone(&counts), Arc::clone(&gate)));
        let held = || counts.held.load(Ordering::Relaxed);
        let until = Instant::now();
        assert!(places[0].wait(until) && !places[0].wait(until));
        assert!(!places[1].wait(until), "a quarter of the lanes may rest");
        assert_eq!(held(), 1);
        places[0].go();
        assert_eq!(held(), 2);
        for place in &places {
            place.leave();
            place.leave();
            place.go();
            assert!(!place.wait(until));
        }
        assert_eq!((held(), gate.waiting.load(Ordering::Relaxed)), (0, 0));
    }
}
