//! Taking lanes: what there is room for, in one claim and one fetch. Lanes whose events have come start while
//! the server reads those of the others.

use std::sync::Arc;

use lanekeeper_fault::CrashPoint;
use tokio::time::Instant;

use super::held::Held;
use super::{Session, SessionError};
use crate::budget::Budget;
use crate::claimer::{Batch, LaneContext};
use crate::lane::{self, Lane};
use crate::places::Places;
use crate::route::RouteTable;
#[cfg(feature = "crash-points")]
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::claim::{self, Claim, Claimed, ClaimedLane, RouteWalk};
use lanekeeper_postgres::fetch::{self, FetchedEvent, Position};

/// Payloads up to this come with their batch; larger ones are read when it is their turn.
pub(crate) const INLINE_BYTES: i32 = 4096;

/// Lanes that share a task, at the least. Where a delivery takes microseconds, a task of its own and waking it from
/// another thread cost a lane more than the delivery.
const LANES_PER_TASK: usize = 32;
/// Tasks that a large claim is split into.
const TASKS_PER_CLAIM: usize = 8;

impl Session<'_> {
    /// Lanes that may be taken now.
    pub(super) fn room(&self) -> usize {
        let lanes = self.shared.most_held().saturating_sub(self.shared.held());
        match self.shared.budget.room() {
            0 => 0,
            // Each lane brings an event at the least, whatever is left.
            room => {
                let fitting = room / usize::try_from(INLINE_BYTES).unwrap_or(0);
                lanes.min(self.size.lanes_within(fitting))
            }
        }
    }

    /// Looks for room, and asks to be woken when there is none.
    pub(super) fn finds_room(&self) -> bool {
        if self.room() == 0 {
            self.shared.wait_for_room();
        }
        // Again, for it may have come before that was asked.
        self.room() > 0
    }

    /// Claims lanes where any are due, and hands each to a task with its first events.
    pub(super) async fn claim(&mut self, now: Instant) -> Result<(), SessionError> {
        let share = self.shared.most_held() / self.shared.settings.lane_connections.max(1);
        self.size.measure(now, share);
        let routes = self.shared.routes();
        let takes: Vec<_> = routes
            .iter()
            .filter(|route| self.walks.takes(route))
            .cloned()
            .collect();
        let wanted = takes.len();
        let places = self.shared.reserve(self.room(), takes.into_iter());
        let walks = self.walks.start(&places, self.shared.behind.seen(), now);
        let full = walks.len() < wanted;
        if full {
            self.shared.wait_for_room();
        }
        if walks.is_empty() {
            let is_told = self.shared.idle.is_told();
            self.walks.nothing(now, is_told, self.shared.random());
            if !full {
                self.shared.idle.enter(self.connection_id);
            }
            self.expect_gates(&routes);
            return Ok(());
        }
        let rooms: usize = places.routes().map(|(_, places)| places).sum();
        let limit = places.total().min(rooms);
        let claim_id = self.next_claim_id();
        let claimed = self.walk(now, claim_id, &walks, limit).await?;
        self.expect_gates(&routes);
        if claimed.lanes.is_empty() {
            self.shared.idle.enter(self.connection_id);
            return Ok(());
        }
        self.shared.idle.found(self.connection_id);
        if claimed.lanes.len() == limit {
            // There is more than this connection took.
            self.shared.wake.notify_one();
        }
        if !claimed.locked_twice.is_empty() {
            self.ask(Instant::now(), self.unlock(&claimed.locked_twice, &[]))
                .await?;
        }
        self.hand_out(claim_id, claimed, &routes, places).await
    }

    /// Routes that a limit or a breaker keeps from being claimed now are claimed when their turn comes.
    fn expect_gates(&mut self, routes: &RouteTable) {
        let now = Instant::now();
        let gates = routes.iter().filter(|route| self.walks.takes(route));
        let first = gates
            .filter_map(|route| route.opens_at(&self.shared.limiter))
            .filter(|at| *at > now)
            .min();
        if let Some(at) = first {
            self.walks.expect(at);
        }
    }

    async fn walk(
        &mut self,
        now: Instant,
        claim_id: i64,
        walks: &[RouteWalk],
        limit: usize,
    ) -> Result<Claimed, SessionError> {
        // This connection's among them, marked ones too: a spare token of theirs may be due, and
        // session locks are re-entrant.
        let held = self.shared.held_lanes();
        let released = std::mem::take(&mut self.released);
        let finished = self.holdings.take_finished_claims();
        let claim = Claim {
            connection_id: self.connection_id,
            claim_id,
            walks,
            limit: i32::try_from(limit).unwrap_or(i32::MAX),
            held: &held,
            released: &released,
            finished: &finished,
        };
        let claiming = claim::claim(&self.client, &self.statements.claim, claim);
        let claimed = self.ask(now, claiming).await?;
        if !released.is_empty() {
            CrashPoint::Unlocked.pass();
        }
        let taken = claimed.lanes.len();
        let instruments = &self.shared.instruments;
        instruments
            .claim_duration
            .record(now.elapsed().as_secs_f64(), &[]);
        instruments.claim_lanes.record(taken as u64, &[]);
        let (is_told, random) = (self.shared.idle.is_told(), self.shared.random());
        self.walks
            .finished(&claimed.routes, taken, limit, now, is_told, random);
        Ok(claimed)
    }

    async fn hand_out(
        &mut self,
        claim_id: i64,
        claimed: Claimed,
        routes: &RouteTable,
        mut places: Places,
    ) -> Result<(), SessionError> {
        let positions: Vec<Position> = claimed
            .lanes
            .iter()
            .map(|lane| Position {
                session_id: lane.session_id,
                cursor: lane.cursor,
                cursor_day: lane.cursor_day,
                subscription_id: lane.token.route,
            })
            .collect();
        let lanes = self.take(claim_id, claimed, routes, &mut places);
        // Nothing claims with what is left of them.
        drop(places);
        CrashPoint::Claimed.pass();
        let mut starting = Starting::new(lanes, &self.context, &self.shared.budget);
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

    /// Enters what was claimed as held. Before its events are fetched: the claims of other connections pass it
    /// over from now on.
    fn take(
        &mut self,
        claim_id: i64,
        claimed: Claimed,
        routes: &RouteTable,
        places: &mut Places,
    ) -> Vec<Option<Lane>> {
        let mark_after = self.shared.settings.mark_after;
        let mark_at = Instant::now() + mark_after;
        let take = |claimed: ClaimedLane| {
            let Some(route) = routes.get(claimed.token.route) else {
                unreachable!("only active routes are walked")
            };
            let hold = places.hold(claimed.lane_id, route);
            let place = hold.place.clone();
            self.holdings.take(
                claimed.lane_id,
                Held {
                    token: claimed.token,
                    route: Arc::clone(route),
                    claim_id,
                    suspect_claim: None,
                    mark_at,
                    marked: false,
                    hold,
                    mark_after,
                },
            );
            Some(Lane {
                claimed,
                route: Arc::clone(route),
                place,
            })
        };
        claimed.lanes.into_iter().map(take).collect()
    }

    /// The next events of lanes that are held.
    pub(super) async fn fetch(
        &self,
        positions: &[Position],
    ) -> Result<Vec<Vec<FetchedEvent>>, SessionError> {
        let mut batches: Vec<Vec<FetchedEvent>> = positions.iter().map(|_| Vec::new()).collect();
        self.fetch_each(positions, |at, events| batches[at] = events)
            .await?;
        Ok(batches)
    }

    /// The same, each lane's as soon as they are there.
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

    /// Events to fetch per lane so that even payloads of the largest inline size fit what memory is
    /// left; one at the least, or a lane would never come on.
    fn rows_per_lane(&self, lanes: usize) -> usize {
        let inline = usize::try_from(INLINE_BYTES).unwrap_or(0);
        let fitting = self.shared.budget.room() / inline / lanes.max(1);
        // Small events are the rule: four times as many, and one fetch may pass the bound.
        (fitting * 4).clamp(1, self.shared.settings.batch)
    }
}

/// Claimed lanes whose events are on their way. Those that have them start in groups, and what is dropped before it
/// started is held by nothing but its connection.
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
            tokio::spawn(lane::run(group, Arc::clone(self.context)));
        }
    }
}
