//! Claims lanes and fetches their first events.
//!
//! # Claiming
//!
//! `lanekeeper.claim` is one statement on one lane connection. It first releases the locks of lanes that the
//! connection has let go since its last claim, and deletes its claim rows of which nothing is held any more. (A
//! transaction of its own for that would make the server walk all locks of the session once more at its end. If
//! nothing is claimed, the locks are released before the next wait.) Then:
//!
//! 1. **Scan and lock.** It scans due ready entries route by route, highest priority first, and tries the lock of
//!    each entry's lane until it has enough. In the first round every route gets its share; then routes with more
//!    entries get the rest. `OFFSET 0` keeps the lock function above the scan in any plan, and `LIMIT` stops the
//!    scan, so that no lock is taken that is not returned. The rows of ready entries are not locked: that would be
//!    a write each. So an entry may have been replaced since the scan's snapshot, by a holder that released its
//!    lane before its lock was tried.
//! 2. **Read progress in a new statement**, whose snapshot is taken after the locks. It reads the newest progress
//!    of the locked lanes and records them in `claim`.
//!
//! Nothing else is written. The ready entry stays where it is; a crash at any point leaves it there.
//!
//! **Finding progress by ctid.** Most progress rows are where they were when the ready entry was made. The entry
//! stores that ctid, and a row found there that belongs to the lane is its newest, because a lane has one row that
//! is not dead. All ctids are read in one scan, which returns the rows in physical order, each with its lane id;
//! the worker matches them by id. A sum over hashes of the ids tells the claim whether these are the lanes that it
//! locked. The worker goes by the ids: it would release the lock of a lane of which it learned nothing, whatever
//! the sum says.
//!
//! **Checking that the entries still exist.** The rows at the ctids of the scanned ready entries are counted in one
//! scan. The claim's snapshot is older than its scan, so none of those positions can have another entry yet. If an
//! entry is gone, or progress has moved, lanes are looked up by key, each with its entry. A lane whose entry is
//! gone is released. (The settlement that removed it may have left no other trace: a lane that yields or waits
//! without a change keeps its version, because otherwise survivors could not charge the death of an earlier holder
//! to its head.)
//!
//! The ready entry also has the lane's session and its name, if the writer of the entry knew them; otherwise they
//! are looked up.
//!
//! # Fetching and starting lanes
//!
//! The connection fetches the next events of all claimed lanes in one query, and starts their tasks. 32 lanes share
//! a task, or an eighth of a large claim: a task per lane, and waking it from another thread, would cost a lane
//! more than a quick delivery.
//!
//! A lane starts as soon as its rows have arrived, while the server still reads those of other lanes. This relies
//! on no order of rows. Seqs have no gaps, so the events that follow on the cursor one by one are the next ones,
//! and a row that arrives later lies behind them. If the log before a lane's next event is gone, the lane waits for
//! all rows.
//!
//! Settlements wait until the fetch is over, since a connection does one thing at a time. If the connection ends
//! meanwhile, lanes that have started are dropped where they are and the others never start; both are held by this
//! connection alone.
//!
//! A fetch over the recent partitions calls `require_recent` with the oldest day among its lanes. The function
//! refuses if that day is before the recent partitions. The worker then learns the day from which it may ask, and
//! uses a second statement, on the whole log, for older lanes.

use std::sync::Arc;

use lanekeeper_fault::CrashPoint;
use tokio::time::Instant;

use super::held::Held;
use super::{Session, SessionError};
use crate::claiming::kind::Kind;
use crate::claiming::request::{Batch, INLINE_BYTES};
use crate::claiming::route::RouteTable;
use crate::claiming::slots::Slots;
use crate::delivering::adapter_lane::{self, Lane, LaneContext};
use crate::delivering::budget::Budget;
use crate::shared::random;
#[cfg(feature = "crash-points")]
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::claim::{self, Claim, Claimed, ClaimedLane, RouteScan};
use lanekeeper_postgres::fetch::{self, FetchedEvent, Position};
use lanekeeper_telemetry::span::{self, RoundTrip};

/// The smallest number of lanes that share a task. If a delivery takes microseconds, a task per lane and waking it
/// from another thread would cost more than the delivery.
const LANES_PER_TASK: usize = 32;
/// How many tasks a large claim is split into.
const TASKS_PER_CLAIM: usize = 8;

impl Session<'_> {
    /// How many lanes may be claimed now.
    pub(super) fn room(&self) -> usize {
        let lanes = self.shared.claiming.room(Kind::Adapters);
        match self.shared.delivering.budget.room() {
            0 => 0,
            // Each lane fetches at least one event, whatever memory is left.
            room => {
                let fitting = room / usize::try_from(INLINE_BYTES).unwrap_or(0);
                lanes.min(self.size.lanes_within(fitting))
            }
        }
    }

    /// Whether there is room for a claim. If not, asks to be woken when there is.
    pub(super) fn finds_room(&self) -> bool {
        if self.room() == 0 {
            self.shared.claiming.wait_for_room(Kind::Adapters);
        }
        // Checked again: room may have appeared before the request.
        self.room() > 0
    }

    /// Claims lanes that are due, and hands them to tasks with their first events.
    pub(super) async fn claim(&mut self, now: Instant) -> Result<(), SessionError> {
        let share = self.shared.claiming.max_lanes() / self.shared.settings.lane_connections.max(1);
        self.size.measure(now, share);
        let routes = self.shared.claiming.routes();
        let takes: Vec<_> = routes
            .iter()
            .filter(|route| self.scans.serves(route))
            .cloned()
            .collect();
        let wanted = takes.len();
        let slots = self.shared.claiming.reserve(
            Kind::Adapters,
            self.room(),
            takes.into_iter(),
            &self.shared.delivering.limiter,
        );
        let scans = self
            .scans
            .plan(&slots, self.shared.claiming.backstop.latest(), now);
        let full = scans.len() < wanted;
        if full {
            self.shared.claiming.wait_for_room(Kind::Adapters);
        }
        if scans.is_empty() {
            let is_notified = self.shared.waking.idle.is_notified();
            self.scans.no_route(now, is_notified, random());
            if !full {
                self.shared.waking.idle.enter(self.connection_id);
            }
            self.expect_gates(&routes);
            return Ok(());
        }
        let rooms: usize = slots.routes().map(|(_, slots)| slots).sum();
        let limit = slots.total().min(rooms);
        let claim_id = self.next_claim_id();
        let claimed = self.scan(now, claim_id, &scans, limit).await?;
        self.expect_gates(&routes);
        if claimed.lanes.is_empty() {
            self.shared.waking.idle.enter(self.connection_id);
            return Ok(());
        }
        self.shared.waking.idle.found(self.connection_id);
        if claimed.lanes.len() == limit {
            // More lanes are due than this connection took.
            self.shared.waking.lane_connections.notify_one();
        }
        if !claimed.locked_twice.is_empty() {
            self.ask(Instant::now(), self.unlock(&claimed.locked_twice, &[]))
                .await?;
        }
        self.hand_out(claim_id, claimed, &routes, slots).await
    }

    /// Schedules a scan for when the first route opens that a limit or a circuit keeps closed now.
    fn expect_gates(&mut self, routes: &RouteTable) {
        let now = Instant::now();
        let gates = routes.iter().filter(|route| self.scans.serves(route));
        let first = gates
            .filter_map(|route| route.opens_at(&self.shared.delivering.limiter))
            .filter(|at| *at > now)
            .min();
        if let Some(at) = first {
            self.scans.schedule(at);
        }
    }

    async fn scan(
        &mut self,
        now: Instant,
        claim_id: i64,
        scans: &[RouteScan],
        limit: usize,
    ) -> Result<Claimed, SessionError> {
        // The lanes of this connection among them, with in-flight records or not: a spare entry of theirs may be due,
        // and session locks are re-entrant.
        let held = self.shared.claiming.held_lanes();
        let released = std::mem::take(&mut self.released);
        let finished = self.holdings.take_finished_claims();
        let claim = Claim {
            connection_id: self.connection_id,
            claim_id,
            scans,
            limit: i32::try_from(limit).unwrap_or(i32::MAX),
            held: &held,
            released: &released,
            finished: &finished,
        };
        let began = self.traced();
        let claiming = claim::claim(&self.client, &self.statements.claim, claim);
        let claimed = self.ask(now, claiming).await?;
        if !released.is_empty() {
            CrashPoint::Unlocked.pass();
        }
        let taken = claimed.lanes.len();
        let instruments = &self.shared.instruments;
        instruments.claimed(now.elapsed().as_secs_f64(), taken);
        // Claims that find nothing are counted, and are no news.
        if let Some(began) = began.filter(|_| taken > 0) {
            span::round_trip(RoundTrip::Claim, began, taken);
        }
        let (is_notified, random) = (self.shared.waking.idle.is_notified(), random());
        self.scans
            .finished(&claimed.routes, taken, limit, now, is_notified, random);
        Ok(claimed)
    }

    async fn hand_out(
        &mut self,
        claim_id: i64,
        claimed: Claimed,
        routes: &RouteTable,
        mut slots: Slots,
    ) -> Result<(), SessionError> {
        let positions: Vec<Position> = claimed
            .lanes
            .iter()
            .map(|lane| Position {
                session_id: lane.session_id,
                cursor: lane.cursor,
                cursor_day: lane.cursor_day,
                subscription_id: lane.entry.route,
            })
            .collect();
        let lanes = self.take(claim_id, claimed, routes, &mut slots);
        // The slots that no lane took are free again.
        drop(slots);
        CrashPoint::Claimed.pass();
        let mut starting = Starting::new(lanes, &self.context, &self.shared.delivering.budget);
        self.fetch_each(&positions, |at, events| starting.has_events(at, events))
            .await?;
        #[cfg(feature = "crash-points")]
        if Mutation::TransactionHeld.is_on() {
            let begun = self.client.batch_execute("BEGIN").await;
            begun.map_err(lanekeeper_postgres::StoreError::on("holding a transaction"))?;
        }
        starting.start();
        Ok(())
    }

    /// Records the claimed lanes as held, before their events are fetched: from now on the claims of other connections
    /// skip them.
    fn take(
        &mut self,
        claim_id: i64,
        claimed: Claimed,
        routes: &RouteTable,
        slots: &mut Slots,
    ) -> Vec<Option<Lane>> {
        let in_flight_after = self.shared.settings.mark_after;
        let in_flight_at = Instant::now() + in_flight_after;
        let take = |claimed: ClaimedLane| {
            let Some(route) = routes.get(claimed.entry.route) else {
                unreachable!("only active routes are scanned")
            };
            let hold = slots.hold(claimed.lane_id, route);
            let slot = hold.slot.clone();
            self.holdings.take(
                claimed.lane_id,
                Held {
                    entry: claimed.entry,
                    route: Arc::clone(route),
                    claim_id,
                    suspect_claim: None,
                    in_flight_at,
                    is_in_flight: false,
                    hold,
                    in_flight_after,
                },
            );
            Some(Lane {
                claimed,
                route: Arc::clone(route),
                slot,
            })
        };
        claimed.lanes.into_iter().map(take).collect()
    }

    /// Fetches the next events of held lanes.
    pub(super) async fn fetch(
        &self,
        positions: &[Position],
    ) -> Result<Vec<Vec<FetchedEvent>>, SessionError> {
        let mut batches: Vec<Vec<FetchedEvent>> = positions.iter().map(|_| Vec::new()).collect();
        self.fetch_each(positions, |at, events| batches[at] = events)
            .await?;
        Ok(batches)
    }

    /// The same; each lane's events are passed on as soon as they have arrived.
    async fn fetch_each(
        &self,
        positions: &[Position],
        give: impl FnMut(usize, Vec<FetchedEvent>),
    ) -> Result<(), SessionError> {
        let rows = i64::try_from(self.rows_per_lane(positions.len())).unwrap_or(i64::MAX);
        let asked_at = Instant::now();
        let (client, statement) = (&self.client, &self.statements.fetch);
        let fetching = fetch::fetch_each(client, statement, positions, rows, INLINE_BYTES, give);
        self.ask(asked_at, fetching).await?;
        let took = asked_at.elapsed().as_secs_f64();
        self.shared.instruments.fetch_duration.record(took, &[]);
        Ok(())
    }

    /// How many events to fetch per lane so that even payloads of the largest inline size fit the memory that is left.
    /// At least one, or a lane would never advance.
    fn rows_per_lane(&self, lanes: usize) -> usize {
        let inline = usize::try_from(INLINE_BYTES).unwrap_or(0);
        let fitting = self.shared.delivering.budget.room() / inline / lanes.max(1);
        // Most events are small: fetch four times as many. One fetch may exceed the limit.
        (fitting * 4).clamp(1, self.shared.settings.batch)
    }
}

/// Claimed lanes whose events are arriving. Lanes that have their events start in groups. A lane that is dropped
/// before it starts is held by its connection only.
struct Starting<'a> {
    lanes: Vec<Option<Lane>>,
    group: Vec<(Lane, Batch)>,
    group_size: usize,
    context: &'a Arc<LaneContext>,
    budget: &'a Arc<Budget>,
}

impl<'a> Starting<'a> {
    fn new(
        lanes: Vec<Option<Lane>>,
        context: &'a Arc<LaneContext>,
        budget: &'a Arc<Budget>,
    ) -> Self {
        let group_size = LANES_PER_TASK.max(lanes.len() / TASKS_PER_CLAIM);
        Self {
            lanes,
            group: Vec::with_capacity(group_size),
            group_size,
            context,
            budget,
        }
    }

    fn has_events(&mut self, at: usize, events: Vec<FetchedEvent>) {
        let lane = self.lanes[at].take().expect("events are given once");
        if self.group.len() == self.group_size {
            self.start();
        }
        self.group.push((lane, Batch::new(events, self.budget)));
    }

    fn start(&mut self) {
        if !self.group.is_empty() {
            CrashPoint::Fetched.pass();
            let group = std::mem::replace(&mut self.group, Vec::with_capacity(self.group_size));
            tokio::spawn(adapter_lane::run(group, Arc::clone(self.context)));
        }
    }
}
