//! The lanes that a connection holds, and the claims under which it took them.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::claim::Token;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::places::LaneHold;
use crate::route::Route;

/// A lane whose lock this connection holds.
pub struct Held {
    pub token: Token,
    pub route: Arc<Route>,
    pub claim_id: i64,
    /// The claim under which a suspect head is delivered alone.
    pub suspect_claim: Option<i64>,
    /// When its token must be moved out of the claims' way.
    pub mark_at: Instant,
    pub marked: bool,
    /// Counted here and not in the lane's task, so that a lane let go makes room before the next
    /// claim is considered.
    pub hold: LaneHold,
    /// How long a delivery may take before it is marked.
    pub mark_after: Duration,
}

impl Held {
    /// When its delivery counts as slow; waiting for a limit is not delivering.
    fn slow_at(&self) -> Instant {
        match &self.hold.place {
            Some(place) => self.mark_at.max(place.busy_from() + self.mark_after),
            None => self.mark_at,
        }
    }
}

/// Keeps a claim's row until the last of its lanes is let go.
#[derive(Default)]
pub struct Holdings {
    lanes: FxHashMap<i64, Held>,
    /// Lanes still held of each claim.
    claims: FxHashMap<i64, usize>,
    finished_claims: Vec<i64>,
}

impl Holdings {
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    pub fn get(&self, lane_id: i64) -> Option<&Held> {
        self.lanes.get(&lane_id)
    }

    pub fn get_mut(&mut self, lane_id: i64) -> Option<&mut Held> {
        self.lanes.get_mut(&lane_id)
    }

    pub fn take(&mut self, lane_id: i64, held: Held) {
        *self.claims.entry(held.claim_id).or_default() += 1;
        self.lanes.insert(lane_id, held);
    }

    pub fn forget(&mut self, lane_id: i64) {
        let Some(held) = self.lanes.remove(&lane_id) else {
            return;
        };
        self.finished_claims.extend(held.suspect_claim);
        if let Some(left) = self.claims.get_mut(&held.claim_id) {
            *left -= 1;
            if *left == 0 {
                self.claims.remove(&held.claim_id);
                self.finished_claims.push(held.claim_id);
            }
        }
    }

    /// The lane's suspect head was judged: its claim of its own ends.
    pub fn end_suspicion(&mut self, lane_id: i64) {
        if let Some(held) = self.lanes.get_mut(&lane_id) {
            self.finished_claims.extend(held.suspect_claim.take());
        }
    }

    pub fn suspect(&mut self, lane_id: i64, claim_id: i64) {
        if let Some(held) = self.lanes.get_mut(&lane_id) {
            self.finished_claims
                .extend(held.suspect_claim.replace(claim_id));
        }
    }

    /// The claims of which nothing is held any more, once.
    pub fn take_finished_claims(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.finished_claims)
    }

    /// When the first lane must be marked.
    pub fn mark_at(&self) -> Option<Instant> {
        self.lanes.values().map(Held::slow_at).min()
    }

    /// Lanes whose deliveries take long by now.
    pub fn slow(&self, now: Instant) -> Vec<(i64, Token)> {
        self.lanes
            .iter()
            .filter(|(_, held)| held.slow_at() <= now)
            .map(|(lane_id, held)| (*lane_id, held.token))
            .collect()
    }
}
