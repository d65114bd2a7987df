//! The fixture: a lane connection that claims, settles and unlocks when the test asks for it.

use std::time::Duration;

use lanekeeper_postgres::claim::{
    self, Claim, Claimed, ClaimedLane, ReadyEntry, RouteScan, ScanStart,
};
use lanekeeper_postgres::settle::{self, Operation, Settled, Settlement};
use lanekeeper_postgres::worker;
use tokio_postgres::{Client, Statement};

use crate::engine::bed::Bed;

/// A lane connection by hand.
pub struct Connection {
    pub client: Client,
    claim: Statement,
    settle: settle::Settle,
    unlock: Statement,
    pub worker_id: i64,
    pub connection_id: i64,
    pub claims: i64,
}

impl Connection {
    pub async fn open(bed: &Bed) -> Self {
        let client = bed.db.connect().await;
        let worker_id = worker::new_worker_id(&client).await.unwrap();
        Self {
            claim: claim::prepare(&client).await.unwrap(),
            settle: settle::prepare(&client).await.unwrap(),
            unlock: client.prepare(settle::UNLOCK).await.unwrap(),
            connection_id: worker::open_lane_connection(&client, worker_id)
                .await
                .unwrap(),
            client,
            worker_id,
            claims: 0,
        }
    }

    pub async fn claim(&mut self, start: ScanStart, limit: i32) -> Claimed {
        self.claim_anew(start, limit, &[], &[]).await
    }

    /// Lets go of these lanes and claims first.
    pub async fn claim_anew(
        &mut self,
        start: ScanStart,
        limit: i32,
        released: &[i64],
        finished: &[i64],
    ) -> Claimed {
        self.claims += 1;
        let scan = RouteScan {
            route: 1,
            room: limit,
            start,
        };
        let claim = Claim {
            connection_id: self.connection_id,
            claim_id: self.claims,
            scans: &[scan],
            limit,
            held: &[],
            released,
            finished,
        };
        claim::claim(&self.client, &self.claim, claim)
            .await
            .unwrap()
    }

    pub async fn yield_all(&self, lanes: &[ClaimedLane]) -> Vec<Settled> {
        let yields: Vec<_> = lanes
            .iter()
            .map(|lane| (settlement(lane, Operation::Yield), lane.entry))
            .collect();
        self.settle(&yields).await
    }

    /// The lane's first undelivered event was accepted.
    pub async fn pass_one(&self, lane: &ClaimedLane, operation: Operation) -> Vec<Settled> {
        let passed = Settlement {
            changed: true,
            cursor: lane.cursor + 1,
            ..settlement(lane, operation)
        };
        self.settle(&[(passed, lane.entry)]).await
    }

    /// All that the lanes have was accepted: one event each.
    pub async fn finish(&self, lanes: &[ClaimedLane]) -> Vec<Settled> {
        let finished: Vec<_> = lanes
            .iter()
            .map(|lane| {
                let settlement = Settlement {
                    changed: true,
                    cursor: lane.cursor + 1,
                    ..settlement(lane, Operation::Finish)
                };
                (settlement, lane.entry)
            })
            .collect();
        self.settle(&finished).await
    }

    pub async fn settle(&self, lanes: &[(Settlement, ReadyEntry)]) -> Vec<Settled> {
        settle::settle(&self.client, &self.settle, self.worker_id, lanes)
            .await
            .unwrap()
    }

    pub async fn unlock(&self, lanes: &[i64]) {
        let (id, claims) = (self.connection_id, [self.claims]);
        settle::unlock(&self.client, &self.unlock, lanes, id, &claims)
            .await
            .unwrap();
    }
}

/// Of a lane whose progress stays as it was claimed.
pub fn settlement(lane: &ClaimedLane, operation: Operation) -> Settlement {
    Settlement {
        lane_id: lane.lane_id,
        session_id: lane.session_id,
        version: lane.version,
        progress_ctid: Some(lane.progress_ctid),
        operation,
        changed: false,
        cursor: lane.cursor,
        cursor_day: lane.cursor_day,
        attempts: 0,
        crashes: 0,
        delay: Duration::ZERO,
        error: None,
        history_from: None,
        outcomes: Vec::new(),
        acks: None,
    }
}

pub fn ids(lanes: &[ClaimedLane]) -> Vec<i64> {
    lanes.iter().map(|lane| lane.lane_id).collect()
}
