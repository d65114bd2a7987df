//! How long an idle worker may go without a scan: the least of what the streams say that it delivers.
//!
//! One scan serves all routes of a connection, so a stream with a short poll floor has the others scanned as often. The two
//! kinds of connections scan for themselves. A stream without a poll floor has the worker's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::claiming::kind::Kind;

pub struct PollFloors {
    workers: Duration,
    adapters: AtomicU64,
    handlers: AtomicU64,
}

impl PollFloors {
    /// Those of a worker that delivers nothing yet.
    pub fn new(workers: Duration) -> Self {
        let floors = Self {
            workers,
            adapters: AtomicU64::default(),
            handlers: AtomicU64::default(),
        };
        floors.set([]);
        floors
    }

    /// The longest time between two scans of idle connections of this kind.
    pub fn of(&self, kind: Kind) -> Duration {
        Duration::from_millis(self.millis(kind).load(Ordering::Relaxed))
    }

    /// The shorter one of the two kinds.
    pub fn shortest(&self) -> Duration {
        self.of(Kind::Adapters).min(self.of(Kind::Handlers))
    }

    /// Takes what the streams of the routes say; `None`: they say nothing. Returns whether idle connections are to scan
    /// sooner than before.
    pub fn set(&self, streams: impl IntoIterator<Item = (Kind, Option<Duration>)>) -> bool {
        let mut floors = [None::<Duration>; 2];
        for (kind, floor) in streams {
            let floor = floor.unwrap_or(self.workers);
            let least = &mut floors[usize::from(kind == Kind::Handlers)];
            *least = Some(least.map_or(floor, |least| least.min(floor)));
        }
        let mut is_sooner = false;
        for (kind, floor) in [Kind::Adapters, Kind::Handlers].into_iter().zip(floors) {
            // A worker that delivers nothing of this kind scans for nothing.
            let floor = millis(floor.unwrap_or(self.workers));
            is_sooner |= floor < self.millis(kind).swap(floor, Ordering::Relaxed);
        }
        is_sooner
    }

    fn millis(&self, kind: Kind) -> &AtomicU64 {
        match kind {
            Kind::Adapters => &self.adapters,
            Kind::Handlers => &self.handlers,
        }
    }
}

fn millis(floor: Duration) -> u64 {
    u64::try_from(floor.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: Duration = Duration::from_secs(1);
    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_least_poll_floor_of_the_streams_that_are_delivered_holds_for_their_kind_of_connection() {
        let floors = PollFloors::new(WORKERS);
        let of = |floors: &PollFloors| (floors.of(Kind::Adapters), floors.of(Kind::Handlers));
        assert_eq!(of(&floors), (WORKERS, WORKERS));
        let runs = (Kind::Adapters, Some(SHORT));
        let hooks = (Kind::Adapters, Some(LONG));
        let plain = (Kind::Adapters, None);
        assert!(floors.set([hooks, runs, plain]), "sooner than before");
        assert_eq!(of(&floors), (SHORT, WORKERS));
        assert_eq!(floors.shortest(), SHORT);
        assert!(!floors.set([hooks, plain]));
        assert_eq!(of(&floors), (WORKERS, WORKERS));
        // What a stream says stands over the worker's, in both directions.
        assert!(!floors.set([hooks, (Kind::Handlers, Some(LONG))]));
        assert_eq!(of(&floors), (LONG, LONG));
        assert!(floors.set([]));
        assert_eq!(of(&floors), (WORKERS, WORKERS));
    }
}
