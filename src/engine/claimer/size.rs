//! How many lanes a claim takes: as many as its connection lets go in some milliseconds.
//!
//! Every claim, fetch and settlement has a cost of its own, and so has each time that the worker and its backend
//! wait for one another. Where deliveries take microseconds, larger groups share it among more lanes; where they take
//! longer, lanes in a larger claim only wait longer behind each other, and others for them.

use std::time::Duration;

use tokio::time::Instant;

/// Lanes in a claim: enough to spread its cost, few enough to share a backlog fairly.
const USUAL: usize = 256;
/// And at the most: what a claim takes waits for the others in it.
const MOST: usize = 1024;
/// What is let go in this time is taken in one claim.
const SPAN: Duration = Duration::from_millis(20);
/// Over how much time the pace is measured, at the least.
const MEASURED_OVER: Duration = Duration::from_millis(5);
/// After which time what was before says nothing any more.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(100);

/// The size of a connection's next claim.
pub struct ClaimSize {
    lanes: usize,
    since: Instant,
    let_go: usize,
}

impl ClaimSize {
    pub fn new() -> Self {
        Self {
            lanes: USUAL,
            since: Instant::now(),
            let_go: 0,
        }
    }

    /// Where there is memory for an event each of `fitting` lanes, at the largest that comes with its batch; of the
    /// usual size also where there is less.
    pub fn lanes_within(&self, fitting: usize) -> usize {
        self.lanes.min(fitting.max(USUAL))
    }

    pub fn let_go(&mut self, lanes: usize) {
        self.let_go += lanes;
    }

    /// Goes by the pace since it was measured last; half of what it was before stays, for a while.
    /// `share`: of all lanes that the worker may hold, what falls to this connection.
    pub fn measure(&mut self, now: Instant, share: usize) {
        let time = now.saturating_duration_since(self.since);
        if time < MEASURED_OVER {
            return;
        }
        let pace = self.let_go as f64 * SPAN.as_secs_f64() / time.as_secs_f64();
        // In range: it is clamped.
        let pace = pace.clamp(USUAL as f64, share.clamp(USUAL, MOST) as f64) as usize;
        self.lanes = if time < FORGOTTEN_AFTER {
            usize::midpoint(self.lanes, pace)
        } else {
            pace
        };
        self.since = now;
        self.let_go = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(size: &mut ClaimSize, millis: u64, let_go: usize, share: usize) -> usize {
        size.let_go(let_go);
        let now = size.since + Duration::from_millis(millis);
        size.measure(now, share);
        size.lanes
    }

    #[test]
    fn claims_grow_with_the_pace_up_to_the_share_of_the_connection() {
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
    fn claims_are_of_the_usual_size_where_deliveries_take_their_time() {
        let mut size = ClaimSize::new();
        after(&mut size, 10, 10_000, MOST);
        assert!(size.lanes > USUAL);
        assert_eq!(after(&mut size, 1000, 5_000, MOST), USUAL);
    }

    #[test]
    fn a_moment_is_no_measure() {
        let mut size = ClaimSize::new();
        assert_eq!(after(&mut size, 1, 10_000, MOST), USUAL);
        assert!(
            after(&mut size, 100, 0, MOST) > USUAL,
            "what was let go in it counts"
        );
    }

    #[test]
    fn a_claim_brings_no_more_than_there_is_memory_for() {
        let mut size = ClaimSize::new();
        after(&mut size, 1000, 100_000, MOST);
        let within = [2 * MOST, 300, 3].map(|fitting| size.lanes_within(fitting));
        assert_eq!(within, [MOST, 300, USUAL]);
    }

    #[test]
    fn a_small_share_does_not_make_claims_smaller_than_room_does() {
        let mut size = ClaimSize::new();
        assert_eq!(after(&mut size, 10, 10_000, 9), USUAL);
    }
}
