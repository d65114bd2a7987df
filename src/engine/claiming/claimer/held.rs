//! The lanes that a connection holds, and the claims under which it took them.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::claim::ReadyEntry;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::claiming::route::Route;
use crate::claiming::slots::LaneHold;

/// A lane whose lock this connection holds.
pub struct Held {
    pub entry: ReadyEntry,
    pub route: Arc<Route>,
    pub claim_id: i64,
    /// The claim under which a suspected poison event is delivered alone.
    pub suspect_claim: Option<i64>,
    /// When its ready entry must be replaced by an in-flight record.
    pub in_flight_at: Instant,
    pub is_in_flight: bool,
    /// Counted here and not in the lane's task, so that a released lane makes room before the next claim.
    pub hold: LaneHold,
    /// How long a delivery may take before it gets an in-flight record.
    pub in_flight_after: Duration,
}

impl Held {
    /// When its delivery counts as slow. Time that it waits for a limit does not count.
    fn slow_at(&self) -> Instant {
        match &self.hold.slot {
            Some(slot) => self
                .in_flight_at
                .max(slot.busy_from() + self.in_flight_after),
            None => self.in_flight_at,
        }
    }
}

/// The lanes of a connection. Keeps a claim's row until the last of its lanes is released.
#[derive(Default)]
pub struct Holdings {
    lanes: FxHashMap<i64, Held>,
    /// How many lanes of each claim are still held.
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

    /// The lane's suspected poison event has a verdict: the claim of its own ends.
    pub fn end_suspicion(&mut self, lane_id: i64) {
        if let Some(held) = self.lanes.get_mut(&lane_id) {
            self.finished_claims.extend(held.suspect_claim.take());
        }
    }

    pub fn set_suspected_poison(&mut self, lane_id: i64, claim_id: i64) {
        if let Some(held) = self.lanes.get_mut(&lane_id) {
            self.finished_claims
                .extend(held.suspect_claim.replace(claim_id));
        }
    }

    /// The claims of which no lane is held any more. Each is returned once.
    pub fn take_finished_claims(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.finished_claims)
    }

    /// When the first lane needs an in-flight record.
    pub fn in_flight_at(&self) -> Option<Instant> {
        self.lanes.values().map(Held::slow_at).min()
    }

    /// Lanes whose deliveries have become slow.
    pub fn slow(&self, now: Instant) -> Vec<(i64, ReadyEntry)> {
        self.lanes
            .iter()
            .filter(|(_, held)| held.slow_at() <= now)
            .map(|(lane_id, held)| (*lane_id, held.entry))
            .collect()
    }
}
