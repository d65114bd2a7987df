//! Divides a limit between the processes that reach Redis and those that do not (I10).
//!
//! Postgres counts the replicas, R. Redis counts the processes that reach it, k. A process uses Redis, or its local
//! quota, or sends nothing while it changes from one to the other. A window allows `rate × window + burst` sends. A
//! process without Redis sends at most `own` of them. The processes at Redis share the rest, as if every absent process
//! used its whole quota. Over a long time, each process gets an equal part of the rate:
//!
//! | | spacing at least | in a window |
//! |---|---|---|
//! | without Redis, each | R intervals | `own` |
//! | at Redis, together | R / k intervals | all but `own` for each absent |
//!
//! If there are more replicas than sends in a window, only the first few replicas may send without Redis. The others
//! send nothing, and leave their lanes to them.

use std::time::Duration;

use lanekeeper_core::bucket::Bucket;
use lanekeeper_fault::Mutation;

/// The local quota of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The most sends of one process without Redis in a window.
    own: u32,
    /// How many processes may send without Redis.
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

    /// The time between two sends of the process of this rank without Redis. `None`: it must not send.
    pub(super) fn alone(&self, rank: u32) -> Option<Duration> {
        if Mutation::WholeLimitAlone.is_on() {
            return Some(self.interval);
        }
        let spacing = (self.interval * self.replicas).max(part(self.window, self.own));
        (rank < self.participants).then_some(spacing)
    }

    /// The most sends in a window by the processes that do not reach Redis.
    #[cfg(test)]
    fn taken(&self, absent: u32) -> u32 {
        self.own.saturating_mul(absent.min(self.participants))
    }

    /// The time between two sends of all processes at Redis together, while `absent` replicas do not reach it.
    #[cfg(test)]
    fn together(&self, absent: u32) -> Duration {
        let present = self.replicas.saturating_sub(absent).max(1);
        let left = self.total.saturating_sub(self.taken(absent)).max(1);
        (self.interval * self.replicas / present).max(part(self.window, left))
    }

    /// Arguments for the script, which alone knows how many processes are absent: the most sends of one of them in a
    /// window, how many of them may send, and the sends of all processes in a window.
    pub(super) fn for_script(&self) -> [u32; 3] {
        [self.own, self.participants, self.total]
    }
}

/// A spacing of which at most `parts` fit into the whole.
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
