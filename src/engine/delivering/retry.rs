//! When a failed head is tried again.

use std::time::Duration;

/// The delay after failure number `attempts`, counted from 1: the schedule's entry; the last entry repeats.
///
/// Up to a tenth is added at random, so that lanes that failed together do not return together. The delay is never
/// shorter than the schedule says.
pub fn delay(schedule: &[Duration], attempts: u32, random: f64) -> Duration {
    let index = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    let base = schedule
        .get(index)
        .or(schedule.last())
        .copied()
        .unwrap_or(Duration::from_secs(1));
    base + base.mul_f64(0.1 * random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entry_of_the_schedule_repeats() {
        let schedule = [1, 2, 4].map(Duration::from_secs);
        let delays: Vec<u64> = (1..=5)
            .map(|n| delay(&schedule, n, 0.0).as_secs())
            .collect();
        assert_eq!(delays, [1, 2, 4, 4, 4]);
    }

    #[test]
    fn jitter_only_lengthens_and_by_a_tenth_at_most() {
        let schedule = [Duration::from_secs(10)];
        for step in 0..=10 {
            let delay = delay(&schedule, 1, f64::from(step) / 10.0);
            assert!(delay >= Duration::from_secs(10) && delay <= Duration::from_secs(11));
        }
    }
}
