//! How many lanes a worker may hold where nobody said so: its part of the server's lock table.
//!
//! Each held lane is an entry of a table in the server's memory that all its sessions share. When it is full,
//! statements of everybody fail. So all workers together keep to a part of it, and each worker to its part of that: what it
//! may hold shrinks as others start, and grows as they end. It is looked at with every heartbeat.
//!
//! Lanes that are held are not given up for it; they go when their deliveries are done. So a worker takes no more than
//! its part at once, but takes more only when all others must have seen it, and none has come since; and as long as nobody
//! can have seen it, it takes an eighth of what is for all: workers that start together find no others.

use std::time::Duration;

use tokio::time::Instant;

/// Of the table's entries, one in so many may be a held lane. Lanes that wait for a limit are held beside them, up to a
/// quarter as many, and settlements lock the sessions of their lanes for a moment, each once: at worst 2.25 entries
/// for a lane, three quarters of the table.
const PART: u64 = 3;
/// What a worker holds at the most: two claims of the largest size.
const MOST: usize = 2_048;
/// And at the least, however many workers there are.
const LEAST: usize = 16;

/// Of what is for all workers, the part of one that has just started.
const NEWCOMERS: u64 = 8;

/// Lanes for each of `replicas` workers at a server whose table has room for `entries`.
pub fn lanes_each(entries: u64, replicas: u32) -> usize {
    let each = entries / PART / u64::from(replicas.max(1));
    usize::try_from(each).unwrap_or(MOST).clamp(LEAST, MOST)
}

/// Lanes for a worker that finds so many others when it starts.
pub fn lanes_of_newcomer(entries: u64, others: u32) -> usize {
    let first = lanes_each(entries / NEWCOMERS, 1);
    first.min(lanes_each(entries, others.saturating_add(1)))
}

/// What a worker may hold, from one heartbeat to the next.
#[derive(Debug, Default)]
pub struct Division {
    began_at: Option<Instant>,
    replicas: u32,
}

impl Division {
    /// Lanes that it may hold, which were `now_most` until `now`. `heartbeat`: within that all others look too.
    pub fn look(
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

    /// 64 × 100: as PostgreSQL comes.
    const DEFAULT: u64 = 6_400;

    #[test]
    fn workers_divide_a_third_of_the_lock_table() {
        let each = [1, 2, 4, 5].map(|replicas| lanes_each(DEFAULT, replicas));
        assert_eq!(each, [2_048, 1_066, 533, 426]);
    }

    #[test]
    fn at_worst_three_quarters_of_the_table_are_theirs() {
        for replicas in 1..=(DEFAULT / PART) as u32 / LEAST as u32 {
            let lanes = replicas as usize * lanes_each(DEFAULT, replicas);
            assert!(lanes * 9 / 4 <= DEFAULT as usize * 3 / 4, "{replicas}");
        }
    }

    #[test]
    fn no_worker_is_left_without_lanes_and_none_takes_more_than_helps_it() {
        assert_eq!(lanes_each(DEFAULT, 1_000), LEAST);
        assert_eq!(lanes_each(DEFAULT, 0), MOST);
        assert_eq!(lanes_each(u64::MAX, 1), MOST);
    }

    #[test]
    fn a_worker_takes_less_at_once_and_more_when_all_others_have_seen_it() {
        let heartbeat = Duration::from_secs(5);
        let began = Instant::now();
        let mut division = Division::default();
        let mut most = lanes_of_newcomer(DEFAULT, 0);
        let mut after = |seconds, replicas| {
            let now = began + Duration::from_secs(seconds);
            most = division.look(now, heartbeat, DEFAULT, replicas, most);
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
        // As many as have connections at a server with the default of 100.
        for others in 0..6 {
            assert!(lanes_of_newcomer(DEFAULT, others) * 6 * 9 / 4 <= DEFAULT as usize * 3 / 4);
        }
        assert_eq!(lanes_of_newcomer(DEFAULT, 99), 21);
    }
}
