//! Claims on record, and what survivors make of them.

use super::{FROZEN_AFTER_MS, Model, STEPS};

#[derive(Clone, Debug)]
pub struct Registered {
    pub connection_id: i64,
    pub worker_id: i64,
    pub alive: bool,
}

/// A row of `claim`: lanes with their versions, and their crashes unless they were suspects.
#[derive(Clone, Debug)]
pub struct Claim {
    pub connection_id: i64,
    pub claim_id: i64,
    pub lanes: Vec<(usize, i64, Option<i32>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken {
    pub worker_id: i64,
    pub connections: i64,
    pub lanes: i64,
    pub charged: i64,
}

impl Model {
    pub fn take_over(&mut self, own_worker_id: i64) -> Vec<Taken> {
        let mut workers: Vec<i64> = self.registered.iter().map(|row| row.worker_id).collect();
        workers.sort_unstable();
        workers.dedup();
        workers
            .into_iter()
            .filter_map(|worker_id| self.take_over_from(worker_id, own_worker_id))
            .collect()
    }

    fn take_over_from(&mut self, worker_id: i64, own_worker_id: i64) -> Option<Taken> {
        let rows = self
            .registered
            .iter()
            .filter(|row| row.worker_id == worker_id);
        let all = rows.clone().all(|row| !row.alive);
        let gone: Vec<i64> = rows
            .filter(|row| !row.alive)
            .map(|row| row.connection_id)
            .collect();
        if gone.is_empty() {
            return None;
        }
        let mut charges = false;
        if worker_id != own_worker_id {
            let known = self.workers.iter().flatten().chain(&self.dead_workers);
            let worker = known
                .clone()
                .find(|worker| worker.worker_id == worker_id)
                .expect("who has rows is known");
            charges = !worker.alive;
            let fresh = worker.beat_at > self.now - FROZEN_AFTER_MS;
            if charges && !all || !charges && fresh {
                return None;
            }
        }
        let (mut locked, mut busy) = (Vec::new(), Vec::new());
        for (lane, ..) in self
            .claims
            .iter()
            .filter(|row| gone.contains(&row.connection_id))
            .flat_map(|row| &row.lanes)
        {
            let list = if self.lanes[*lane].holder.is_none() {
                &mut locked
            } else {
                &mut busy
            };
            if !list.contains(lane) {
                list.push(*lane);
            }
        }
        let charged: Vec<usize> = locked
            .iter()
            .copied()
            .filter(|lane| charges && self.is_chargeable(*lane, &gone))
            .collect();
        for lane in &charged {
            self.lanes[*lane].skip_version();
            self.lanes[*lane].crashes += 1;
        }
        for lane in &locked {
            self.lanes[*lane].wake(self.now);
        }
        self.claims.retain_mut(|row| {
            if gone.contains(&row.connection_id) {
                row.lanes.retain(|(lane, ..)| busy.contains(lane));
                row.claim_id = -row.claim_id;
            }
            !row.lanes.is_empty()
        });
        if busy.is_empty() {
            self.registered
                .retain(|row| !gone.contains(&row.connection_id));
        }
        (!locked.is_empty() || busy.is_empty()).then_some(Taken {
            worker_id,
            connections: gone.len() as i64,
            lanes: locked.len() as i64,
            charged: charged.len() as i64,
        })
    }

    /// Nothing but other charges happened to the head since one of the claims, and it is not beyond
    /// suspicion among others.
    fn is_chargeable(&self, at: usize, gone: &[i64]) -> bool {
        let lane = &self.lanes[at];
        let has_head = lane.requeued_after().is_some() || self.has_newer(at, lane.cursor);
        let rows = self
            .claims
            .iter()
            .filter(|row| gone.contains(&row.connection_id));
        let mut claimed = rows
            .flat_map(|row| &row.lanes)
            .filter(|(other, ..)| *other == at);
        !lane.parked
            && has_head
            && claimed.any(|(_, version, crashes)| {
                crashes.is_some_and(|crashes| {
                    lane.version - version == STEPS * i64::from(lane.crashes - crashes)
                        && (lane.crashes < 2 || crashes >= 2)
                })
            })
    }
}
