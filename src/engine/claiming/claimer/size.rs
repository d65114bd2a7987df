//! How many lanes a claim takes: as many as its connection released in the last milliseconds.
//!
//! Each claim, fetch and settlement has a fixed cost, and so has each time that the worker and its backend wait for
//! one another. If deliveries take microseconds, larger groups spread that cost over more lanes. If they take
//! longer, a larger claim only makes its lanes wait for each other, and keeps them from other workers.

use std::time::Duration;

use tokio::time::Instant;

/// Lanes in a usual claim: enough to spread its cost, few enough to share a backlog fairly.
const USUAL: usize = 256;
/// The most lanes in a claim: the lanes of one claim wait for each other.
const MOST: usize = 1024;
/// A claim takes as many lanes as were released in this time.
const SPAN: Duration = Duration::from_millis(20);
/// The shortest time over which the release rate is measured.
const MEASURED_OVER: Duration = Duration::from_millis(5);
/// After this time an older measurement no longer counts.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(100);

/// The size of a connection's next claim.
pub struct ClaimSize {
    lanes: usize,
    since: Instant,
    released: usize,
}

impl ClaimSize {
    pub fn new() -> Self {
        Self {
            lanes: USUAL,
            since: Instant::now(),
            released: 0,
        }
    }

    /// The size of the next claim if memory is left for one event of the largest inline size for each of `fitting`
    /// lanes. The usual size is allowed even with less memory.
    pub fn lanes_within(&self, fitting: usize) -> usize {
        self.lanes.min(fitting.max(USUAL))
    }

    pub fn released(&mut self, lanes: usize) {
        self.released += lanes;
    }

    /// Adapts the size to the release rate since the last measurement; for a while the old size counts for half.
    /// `share` is this connection's part of the lanes that the worker may hold.
    pub fn measure(&mut self, now: Instant, share: usize) {
        let time = now.saturating_duration_since(self.since);
        if time < MEASURED_OVER {
            return;
        }
        let pace = self.released as f64 * SPAN.as_secs_f64() / time.as_secs_f64();
        // In range, because it is clamped.
        let pace = pace.clamp(USUAL as f64, share.clamp(USUAL, MOST) as f64) as usize;
        self.lanes = if time < FORGOTTEN_AFTER {
            usize::midpoint(self.lanes, pace)
        } else {
            pace
        };
        self.since = now;
        self.released = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(size: &mut ClaimSize, millis: u64, released: usize, share: usize) -> usize {
        size.released(released);
        let now = size.since + Duration::from_millis(millis);
        size.measure(now, share);
        size.lanes
    }

    #[test]
    fn claims_grow_with_the_release_rate_up_to_the_connections_share() {
        let mut size = ClaimSize::new();
        assert_eq!(size.lanes, USUAL);
        assert_eq!(after(&mut size, 10, 250, 700), 378, "half way to 500");
        for _ in 0..20 {
            after(&mut size, 10, 10_000, 700);
        }
        assert_eq!(size.lanes, 699);
    }

    #[test]
    fn claims_shrink_when_others_take_their_share() {
        let mut size = ClaimSize::new();
        for _ in 0..20 {
            after(&mut size, 10, 10_000, MOST);
        }
        assert_eq!(size.lanes, MOST - 1);
        for _ in 0..20 {
            after(&mut size, 10, 10_000, 300);
        }
        assert_eq!(size.lanes, 300);
    }

    #[test]
    fn claims_have_the_usual_size_if_deliveries_are_slow() {
        let mut size = ClaimSize::new();
        after(&mut size, 10, 10_000, MOST);
        assert!(size.lanes > USUAL);
        assert_eq!(after(&mut size, 1000, 5_000, MOST), USUAL);
    }

    #[test]
    fn a_very_short_time_is_not_measured() {
        let mut size = ClaimSize::new();
        assert_eq!(after(&mut size, 1, 10_000, MOST), USUAL);
        assert!(
            after(&mut size, 100, 0, MOST) > USUAL,
            "lanes released in it count"
        );
    }

    #[test]
    fn a_claim_is_limited_by_memory() {
        let mut size = ClaimSize::new();
        after(&mut size, 1000, 100_000, MOST);
        let within = [2 * MOST, 300, 3].map(|fitting| size.lanes_within(fitting));
        assert_eq!(within, [MOST, 300, USUAL]);
    }

    #[test]
    fn a_small_share_does_not_reduce_a_claim_below_the_usual_size() {
        let mut size = ClaimSize::new();
        assert_eq!(after(&mut size, 10, 10_000, 9), USUAL);
    }
}
