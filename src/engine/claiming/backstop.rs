//! The backstop scan: finds ready entries that became visible behind the scan starts, on a connection for which no
//! claim waits (I9, I13).
//!
//! An entry can still become visible behind the scan start: its producer committed late, or a holder that was
//! passed over released the lane. So about once a second the worker asks for the first entry of each route, on
//! another connection for which no claim waits (the backstop scan). If a scan start is past that entry, it goes
//! back to it. If the backstop scan fails or takes long, one claim scan a second starts from the beginning instead.
//!
//! The backstop scan passes dead entries too, so it starts at a low-water mark: below it there was no entry when it
//! was set, and every transaction that was open then, or began later, got its transaction id when the mark's time
//! had passed. To establish that, each backstop scan draws a transaction id of its own after it has read the clock,
//! and the worker remembers both. The newest remembered id below which no transaction is open gives the mark, less
//! five seconds. (An entry's due time is read when its transaction already has its id, except for some entries of
//! survivors and settlements, whose due time is read one statement earlier.)
//!
//! A backstop scan starts from the beginning once a minute, when the server may have lost commits that deleted
//! entries (another start time, another epoch), and when its clock went back. So a held snapshot costs each
//! backstop scan the dead entries of six seconds, a few milliseconds at thousands of events a second, however old
//! the snapshot is; and once a minute one scan of all dead entries. Only a transaction that has an id and stays
//! open keeps the mark in place. Then scans take longer and run less often, every five seconds at the least
//! frequent.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::first_ready_entry::{
    FirstReadyEntries, FirstReadyEntry, first_ready_entries,
};
use tokio::time::{Instant, sleep, timeout};

use crate::claiming::route::Route;
use crate::shared::Shared;

/// Between two scans; the poll floor if that is shorter.
const INTERVAL: Duration = Duration::from_secs(1);
/// A scan takes at most this part of one connection's time, unless the pause would exceed `PAUSE_LIMIT`.
const TIME_SHARE: u32 = 20;
const PAUSE_LIMIT: Duration = Duration::from_secs(5);
/// A result is valid until the pause after it is over, and this much longer, because the next scan may take a while.
const VALID_LONGER: Duration = Duration::from_secs(3);
/// Between two scans from the beginning, and the part of the time that these take at most.
const FULL_SCAN_INTERVAL: Duration = Duration::from_secs(60);
const FULL_SCAN_TIME_SHARE: u32 = 100;
/// The time-out. On a server that needs longer, claim scans from the beginning would take as long.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time between reading the clock for an entry's due time and getting its transaction id: one statement.
const DUE_TIME_MARGIN: SignedDuration = SignedDuration::from_secs(5);
/// Transaction ids that are remembered.
const SAMPLES_MAX: usize = 64;

/// The low-water mark of each route: no entry below it exists or can appear.
#[derive(Debug, Default)]
struct LowWaterMarks {
    server: Option<String>,
    /// Transaction ids, each with a time at which it was not yet assigned. Ascending.
    samples: VecDeque<(Timestamp, i64)>,
    by_route: HashMap<i32, Timestamp>,
}

impl LowWaterMarks {
    fn of(&self, route: i32) -> Timestamp {
        self.by_route
            .get(&route)
            .copied()
            .unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Raises the marks by what a scan of these routes saw. Returns false if it was another server or its clock went
    /// back: then the marks start again, and the entries that were seen above them prove nothing.
    fn raise(&mut self, routes: &[i32], seen: &FirstReadyEntries) -> bool {
        let set_back = self
            .samples
            .back()
            .is_some_and(|(at, _)| *at > seen.asked_at);
        if set_back || seen.server.is_none() || seen.server != self.server {
            *self = Self {
                server: seen.server.clone(),
                ..Self::default()
            };
            return false;
        }
        self.samples
            .push_back((seen.asked_at, seen.own_transaction));
        // Any transaction that is open now, or begins later, had no id at that time.
        let counts = |(_, own): &(Timestamp, i64)| {
            *own <= seen.oldest_open || Mutation::OpenTransactionsForgotten.is_on()
        };
        // The newest sample that counts is kept, however long an open transaction keeps newer ones from counting.
        while self.samples.get(1).is_some_and(counts) {
            self.samples.pop_front();
        }
        if self.samples.len() > SAMPLES_MAX {
            self.samples.remove(1);
        }
        let none_before = self
            .samples
            .front()
            .filter(|sample| counts(sample))
            .and_then(|(at, _)| at.checked_sub(DUE_TIME_MARGIN).ok());
        let Some(none_before) = none_before else {
            return true;
        };
        for (route, entry) in routes.iter().zip(&seen.entries) {
            let mark = entry.map_or(none_before, |entry| entry.due_at.min(none_before));
            let before = self.by_route.entry(*route).or_insert(mark);
            *before = mark.max(*before);
        }
        true
    }
}

/// Scans until the worker stops.
pub async fn run(shared: Arc<Shared>) {
    let mut low_water_marks = LowWaterMarks::default();
    let mut full_scan_at = Instant::now();
    let mut failing = false;
    while !shared.stopping.is_cancelled() {
        let full = full_scan_at <= Instant::now();
        let mut took = Duration::ZERO;
        match timeout(TIMEOUT, scan(&shared, &mut low_water_marks, full)).await {
            Ok(Ok(time)) => {
                failing = false;
                took = time;
            }
            Ok(Err(error)) => warn_once(&mut failing, &*error),
            Err(late) => warn_once(&mut failing, &late),
        }
        if full {
            full_scan_at = Instant::now() + FULL_SCAN_INTERVAL.max(took * FULL_SCAN_TIME_SHARE);
        }
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = sleep(pause(took, full, shared.claiming.poll_floors.shortest())) => {}
        }
    }
}

/// The pause after a scan that took `took`. The duration of a full scan says nothing about the next scan.
fn pause(took: Duration, full: bool, poll_floor: Duration) -> Duration {
    let every = INTERVAL.min(poll_floor);
    match full {
        true => every,
        false => (took * TIME_SHARE).clamp(every, PAUSE_LIMIT),
    }
}

fn warn_once(failing: &mut bool, error: &(dyn std::error::Error + 'static)) {
    if !std::mem::replace(failing, true) {
        tracing::warn!(
            error,
            "the backstop scan failed; claims scan from the beginning once a second until it works again"
        );
    }
}

/// Scans once, from the low-water marks or from the beginning. Returns how long the server took.
async fn scan(
    shared: &Shared,
    low_water_marks: &mut LowWaterMarks,
    full: bool,
) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    // A route that a limit or a circuit keeps closed for longer is not scanned.
    let soon = Instant::now() + INTERVAL * 2;
    let open = |route: &&Arc<Route>| {
        route
            .opens_at(&shared.delivering.limiter)
            .is_none_or(|at| at < soon)
    };
    let routes: Vec<i32> = shared
        .claiming
        .routes()
        .iter()
        .filter(open)
        .flat_map(|route| route.entry_routes.clone())
        .collect();
    if routes.is_empty() || Mutation::NoLookBehind.is_on() {
        return Ok(Duration::ZERO);
    }
    let client = shared.pool.get().await?;
    let starts: Vec<Timestamp> = routes
        .iter()
        .map(|route| match full {
            true => Timestamp::UNIX_EPOCH,
            false => low_water_marks.of(*route),
        })
        .collect();
    let asked = Instant::now();
    let seen = first_ready_entries(&client, &routes, &starts).await?;
    let took = asked.elapsed();
    if full {
        low_water_marks
            .by_route
            .retain(|route, _| !routes.contains(route));
    }
    if !low_water_marks.raise(&routes, &seen) {
        // The next scan is the first of this server, after the usual pause: two servers that answer alternately are
        // not asked without one.
        return Ok(took);
    }
    let entries = || {
        let found = routes.iter().zip(&seen.entries);
        found.filter_map(|(route, entry)| Some((*route, (*entry)?)))
    };
    let first = entries().map(|(route, entry)| (route, entry.scan_start()));
    let valid_until =
        Instant::now() + pause(took, full, shared.claiming.poll_floors.shortest()) + VALID_LONGER;
    shared.claiming.backstop.set(
        first.collect(),
        low_water_marks.by_route.clone(),
        valid_until,
    );
    let held = shared.claiming.held_lanes();
    if !Mutation::NoPolls.is_on()
        && entries()
            .any(|(_, FirstReadyEntry { lane_id, .. })| held.binary_search(&lane_id).is_err())
    {
        shared.waking.wake_all();
    }
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: i32 = 7;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    /// A scan at `seconds` with transaction id `own`; no transaction below `oldest_open` is open.
    fn seen(seconds: i64, oldest_open: i64, own: i64, first: Option<i64>) -> FirstReadyEntries {
        FirstReadyEntries {
            entries: vec![first.map(|due| FirstReadyEntry {
                due_at: at(due),
                entry_id: 1,
                lane_id: 1,
            })],
            asked_at: at(seconds),
            oldest_open,
            own_transaction: own,
            server: Some("one".to_owned()),
        }
    }

    fn low_water_marks(looks: &[FirstReadyEntries]) -> LowWaterMarks {
        let mut low_water_marks = LowWaterMarks::default();
        // The first scan records which server it is.
        assert!(!low_water_marks.raise(&[ROUTE], &looks[0]));
        for look in looks {
            assert!(low_water_marks.raise(&[ROUTE], look));
        }
        low_water_marks
    }

    #[test]
    fn a_low_water_mark_follows_the_scans_if_no_transaction_is_open() {
        let low_water_marks =
            low_water_marks(&[seen(10, 100, 100, None), seen(20, 200, 200, None)]);
        assert_eq!(low_water_marks.of(ROUTE), at(20) - DUE_TIME_MARGIN);
    }

    #[test]
    fn a_low_water_mark_stays_below_an_existing_entry() {
        let low_water_marks =
            low_water_marks(&[seen(10, 100, 100, Some(3)), seen(20, 200, 200, Some(4))]);
        assert_eq!(low_water_marks.of(ROUTE), at(4));
    }

    #[test]
    fn a_low_water_mark_stays_below_entries_that_an_open_transaction_may_insert() {
        // 150 began between the scans at 10 and 20, and is still open at 30.
        let low_water_marks = low_water_marks(&[
            seen(10, 100, 100, None),
            seen(20, 150, 200, None),
            seen(30, 150, 300, None),
        ]);
        assert_eq!(low_water_marks.of(ROUTE), at(10) - DUE_TIME_MARGIN);
    }

    #[test]
    fn a_low_water_mark_never_goes_back_and_advances_after_the_transaction_ends() {
        let mut low_water_marks =
            low_water_marks(&[seen(10, 100, 100, None), seen(20, 90, 200, None)]);
        assert_eq!(low_water_marks.of(ROUTE), at(10) - DUE_TIME_MARGIN);
        low_water_marks.raise(&[ROUTE], &seen(30, 250, 300, None));
        assert_eq!(low_water_marks.of(ROUTE), at(20) - DUE_TIME_MARGIN);
    }

    #[test]
    fn a_low_water_mark_stays_in_place_while_a_transaction_is_open() {
        let mut low_water_marks = low_water_marks(&[seen(10, 100, 100, None)]);
        for second in 11..1000 {
            assert!(low_water_marks.raise(&[ROUTE], &seen(second, 101, 100 + second, None)));
        }
        assert_eq!(low_water_marks.of(ROUTE), at(10) - DUE_TIME_MARGIN);
        low_water_marks.raise(&[ROUTE], &seen(1000, 1100, 1100, None));
        assert_eq!(low_water_marks.of(ROUTE), at(1000) - DUE_TIME_MARGIN);
    }

    #[test]
    fn a_clock_that_goes_back_resets_the_low_water_marks() {
        let mut low_water_marks = low_water_marks(&[seen(100, 100, 100, None)]);
        let back = seen(40, 200, 200, None);
        assert!(!low_water_marks.raise(&[ROUTE], &back));
        assert_eq!(low_water_marks.of(ROUTE), Timestamp::UNIX_EPOCH);
        assert!(low_water_marks.raise(&[ROUTE], &back));
        assert_eq!(low_water_marks.of(ROUTE), at(40) - DUE_TIME_MARGIN);
    }

    #[test]
    fn another_server_resets_the_low_water_marks() {
        let mut low_water_marks = low_water_marks(&[seen(10, 100, 100, None)]);
        let other = FirstReadyEntries {
            server: Some("two".to_owned()),
            ..seen(20, 200, 200, None)
        };
        assert!(!low_water_marks.raise(&[ROUTE], &other));
        assert_eq!(low_water_marks.of(ROUTE), Timestamp::UNIX_EPOCH);
        // A server that cannot be identified counts as another one each time.
        let unknown = FirstReadyEntries {
            server: None,
            ..seen(30, 300, 300, None)
        };
        assert!(!low_water_marks.raise(&[ROUTE], &unknown));
        assert!(!low_water_marks.raise(&[ROUTE], &unknown));
        assert_eq!(low_water_marks.of(ROUTE), Timestamp::UNIX_EPOCH);
    }
}
