//! How much of a limit a process may use that cannot reach Redis, and how much is left for those
//! that can (I10).
//!
//! The replicas R are counted in Postgres; those that reach Redis, k, are counted there. A process
//! is one or the other, or silent while it changes over. Of the `rate × window + burst` sends that a
//! window may have, each process on its own takes at most `own`, and those at Redis together what
//! is left when all the absent took theirs. In the long run each takes its part of the rate:
//!
//! | | spacing at least | in a window |
//! |---|---|---|
//! | on its own | R intervals | `own` |
//! | at Redis, together | R / k intervals | all but `own` for each absent |
//!
//! Where there are more replicas than sends in a window, only the first few may send on their own:
//! the others leave their lanes to them.

use std::time::Duration;

use lanekeeper_core::bucket::Bucket;
use lanekeeper_fault::Mutation;

/// What one bucket comes to when the fleet is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Sends of one process on its own in a window.
    own: u32,
    /// Processes that may send on their own.
    participants: u32,
    total: u32,
    window: Duration,
    interval: Duration,
    replicas: u32,
}

impl Share {
    pub(super) fn of(bucket: &Bucket, replicas: u32) -> Self {
        let replicas = replicas.max(1);
        let total = bucket.rate.sends().saturating_add(bucket.burst.max(1));
        let own = total / replicas;
        Self {
            own: own.max(1),
            participants: match own {
                0 => total.saturating_sub(1).max(1),
                _ => replicas,
            },
            total,
            window: bucket.rate.per(),
            interval: bucket.rate.interval(),
            replicas,
        }
    }

    /// Between two sends of the process of this rank on its own; `None`: it must not send.
    pub(super) fn alone(&self, rank: u32) -> Option<Duration> {
        if Mutation::WholeLimitAlone.is_on() {
            return Some(self.interval);
        }
        let spacing = (self.interval * self.replicas).max(part(self.window, self.own));
        (rank < self.participants).then_some(spacing)
    }

    /// Sends that the absent may take in a window, at most.
    #[cfg(test)]
    fn taken(&self, absent: u32) -> u32 {
        self.own.saturating_mul(absent.min(self.participants))
    }

    /// Between two sends of all those at Redis while so many of the replicas are not.
    #[cfg(test)]
    fn together(&self, absent: u32) -> Duration {
        let present = self.replicas.saturating_sub(absent).max(1);
        let left = self.total.saturating_sub(self.taken(absent)).max(1);
        (self.interval * self.replicas / present).max(part(self.window, left))
    }

    /// For the script, which learns only there how many are absent: sends of one of them, how many
    /// of them may send, sends of all in a window.
    pub(super) fn for_script(&self) -> [u32; 3] {
        [self.own, self.participants, self.total]
    }
}

/// So that no more than `parts` of it fit into the whole.
fn part(whole: Duration, parts: u32) -> Duration {
    whole / parts + Duration::from_nanos(1)
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::bucket::Rate;

    use super::*;

    fn bucket(rate: &str, burst: u32) -> Bucket {
        Bucket {
            key: "k".into(),
            rate: rate.parse().unwrap(),
            burst,
        }
    }

    /// Sends in a window that is open at one end, with this spacing.
    fn in_window(window: Duration, spacing: Duration) -> u128 {
        window.as_nanos().div_ceil(spacing.as_nanos())
    }

    proptest::proptest! {
        #[test]
        fn however_the_fleet_is_divided_no_window_and_no_long_run_has_more_than_the_limit(
            sends in 1_u32..200, per in 1_u64..100, burst in 1_u32..50, replicas in 1_u32..80,
            absent in 0_u32..80,
        ) {
            let absent = absent % (replicas + 1);
            let window = Duration::from_secs(per);
            let bucket = Bucket { rate: Rate::new(sends, window).unwrap(), ..bucket("1/s", burst) };
            let share = Share::of(&bucket, replicas);
            // The worst: those with the lowest ranks are the absent ones.
            let alone: Vec<_> = (0..absent).filter_map(|rank| share.alone(rank)).collect();
            let mut in_one: u128 = alone.iter().map(|spacing| in_window(window, *spacing)).sum();
            let mut steady: f64 = alone.iter().map(|spacing| 1.0 / spacing.as_secs_f64()).sum();
            if absent < replicas {
                let together = share.together(absent);
                in_one += in_window(window, together);
                steady += 1.0 / together.as_secs_f64();
            }
            proptest::prop_assert!(in_one <= u128::from(sends + burst), "{} in a window", in_one);
            let rate = f64::from(sends) / window.as_secs_f64();
            proptest::prop_assert!(steady <= rate * 1.000_001, "{} per second of {}", steady, rate);
        }
    }

    #[test]
    fn four_on_their_own_use_most_of_thirty_a_second() {
        let share = Share::of(&bucket("30/s", 1), 4);
        let used: f64 = (0..4)
            .map(|rank| 1.0 / share.alone(rank).unwrap().as_secs_f64())
            .sum();
        assert!((27.0..=30.0).contains(&used), "{used}");
    }

    #[test]
    fn with_more_replicas_than_sends_only_the_first_send_on_their_own() {
        let share = Share::of(&bucket("1/s", 1), 4);
        assert_eq!(share.alone(0), Some(Duration::from_secs(4)));
        assert_eq!(share.alone(1), None);
    }
}
