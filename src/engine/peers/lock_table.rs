//! How many lanes a worker may hold if `worker.max_lanes` is not set: its part of the server's lock table.
//!
//! Each held lane is an entry of a table in the server's memory that all its sessions share. When it is full,
//! statements of all sessions fail. If `worker.max_lanes` is not set, workers share a third of the server's lock
//! table, divided by the number of live workers and of databases that have any, up to 2,048 lanes each. A worker
//! that has just started takes an eighth of the third at most, until all others have seen it in a heartbeat.
//!
//! The division is computed with every heartbeat. Held lanes are not released for it: they go when their deliveries
//! are done. A worker reduces its part at once. It increases it only if no worker has started since, and only after
//! all others must have seen its own heartbeat. Until then workers that start together do not see each other, hence
//! the eighth.

use std::time::Duration;

use tokio::time::Instant;

/// One in so many of the table's entries may be a held lane. Up to a quarter as many lanes are held besides while they
/// wait for a limit, and settlements lock the sessions of their lanes for a moment, each once: at worst 2.25 entries
/// for a lane, three quarters of the table.
const PART: u64 = 3;
/// The most that a worker holds: two claims of the largest size.
const MOST: usize = 2_048;
/// The least, however many workers there are.
const LEAST: usize = 16;

/// A worker that has just started takes one in so many of the lanes of all workers.
const NEWCOMERS: u64 = 8;

/// Lanes for each of `replicas` workers at a server whose table has room for `entries`.
pub fn lanes_each(entries: u64, replicas: u32) -> usize {
    let each = entries / PART / u64::from(replicas.max(1));
    usize::try_from(each).unwrap_or(MOST).clamp(LEAST, MOST)
}

/// Lanes for a worker that finds `others` workers when it starts.
pub fn lanes_of_newcomer(entries: u64, others: u32) -> usize {
    let first = lanes_each(entries / NEWCOMERS, 1);
    first.min(lanes_each(entries, others.saturating_add(1)))
}

/// How many lanes a worker may hold, from one heartbeat to the next.
#[derive(Debug, Default)]
pub struct Division {
    began_at: Option<Instant>,
    replicas: u32,
}

impl Division {
    /// The lanes that it may hold from `now` on; before, they were `now_most`. All other workers compute theirs within
    /// `heartbeat`.
    pub fn update(
        &mut self,
        now: Instant,
        heartbeat: Duration,
        entries: u64,
        replicas: u32,
        now_most: usize,
    ) -> usize {
        let began_at = *self.began_at.get_or_insert(now);
        let came = replicas > std::mem::replace(&mut self.replicas, replicas);
        let part = lanes_each(entries, replicas);
        if came || now < began_at + heartbeat {
            part.min(now_most)
        } else {
            part
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 × 100: PostgreSQL's default settings.
    const DEFAULT: u64 = 6_400;

    #[test]
    fn workers_divide_a_third_of_the_lock_table() {
        let each = [1, 2, 4, 5].map(|replicas| lanes_each(DEFAULT, replicas));
        assert_eq!(each, [2_048, 1_066, 533, 426]);
    }

    #[test]
    fn workers_fill_at_most_three_quarters_of_the_lock_table() {
        for replicas in 1..=(DEFAULT / PART) as u32 / LEAST as u32 {
            let lanes = replicas as usize * lanes_each(DEFAULT, replicas);
            assert!(lanes * 9 / 4 <= DEFAULT as usize * 3 / 4, "{replicas}");
        }
    }

    #[test]
    fn a_workers_part_has_a_lower_and_an_upper_limit() {
        assert_eq!(lanes_each(DEFAULT, 1_000), LEAST);
        assert_eq!(lanes_each(DEFAULT, 0), MOST);
        assert_eq!(lanes_each(u64::MAX, 1), MOST);
    }

    #[test]
    fn a_worker_reduces_its_part_at_once_and_increases_it_when_all_others_have_seen_it() {
        let heartbeat = Duration::from_secs(5);
        let began = Instant::now();
        let mut division = Division::default();
        let mut most = lanes_of_newcomer(DEFAULT, 0);
        let mut after = |seconds, replicas| {
            let now = began + Duration::from_secs(seconds);
            most = division.update(now, heartbeat, DEFAULT, replicas, most);
            most
        };
        assert_eq!(after(0, 1), 266);
        assert_eq!(after(1, 1), 266);
        assert_eq!(after(5, 1), 2_048);
        assert_eq!(after(10, 10), 213, "at once");
        assert_eq!(after(15, 4), 533);
        assert_eq!(after(20, 5), 426);
        assert_eq!(after(25, 2), 1_066);
        assert_eq!(after(30, 3), 711, "less, though others came");
    }

    #[test]
    fn workers_that_start_together_leave_room_for_others() {
        // The number of workers whose connections fit the default `max_connections` of 100.
        for others in 0..6 {
            assert!(lanes_of_newcomer(DEFAULT, others) * 6 * 9 / 4 <= DEFAULT as usize * 3 / 4);
        }
        assert_eq!(lanes_of_newcomer(DEFAULT, 99), 21);
    }
}
