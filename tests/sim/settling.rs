//! What a lane connection settles, marks and gives back.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_engine::decision::Stop;
use lanekeeper_postgres::settle::{self, Operation, Settled, Settlement};

use crate::ensure;
use crate::model::holding::Shadow;
use crate::model::{FROZEN_AFTER_MS, Model};
use crate::operation::How;
use crate::worker::{Connection, Holding, after_batch};
use crate::world::{Check, World, told};

/// How long a lane that an open append keeps busy is left alone.
const BUSY_DELAY: Duration = Duration::from_millis(250);

impl World {
    /// One call for all lanes of the connection that have something to settle.
    pub async fn settle(&mut self, at: usize, how: How) -> Check {
        let Some(connection) = &mut self.connections[at] else {
            return Ok(());
        };
        let process = self.workers[at / 2]
            .as_ref()
            .expect("its connection is open");
        let (mut lanes, mut shadows) = (Vec::new(), Vec::new());
        let mut given_up = Vec::new();
        for (place, holding) in &mut connection.holdings {
            let route = process.routes.get(&Model::subscription_of(*place));
            let current = route.is_some_and(|route| Arc::ptr_eq(route, &holding.route));
            let Some(stop) = asked(holding, how, current) else {
                continue;
            };
            if holding.ghost && !holding.shadow.changed {
                given_up.push(*place);
                continue;
            }
            let settlement = holding.progress.settlement(stop, false);
            check_settlement(&settlement, &holding.shadow)?;
            lanes.push((settlement, holding.entry));
            shadows.push(*place);
        }
        for place in given_up {
            connection.forget(place);
        }
        if lanes.is_empty() {
            return Ok(());
        }
        let physical = &connection.physical;
        let worker_id = process.identity.worker_id;
        let results = settle::settle(&physical.client, &physical.settle, worker_id, &lanes)
            .await
            .map_err(told)?;
        for (((settlement, _), place), result) in lanes.iter().zip(shadows).zip(results) {
            let holding = connection.holdings.get_mut(&place).expect("it was settled");
            connection
                .finished_claims
                .extend(holding.suspect_claim.take());
            let delay_ms = settlement.delay.as_millis() as i64;
            let unsettled = holding.shadow.clone();
            let expected = self
                .model
                .settle(&mut holding.shadow, settlement.operation, delay_ms);
            let what = settlement.operation;
            ensure!(
                result == expected,
                "{what:?} of lane {place} came to {result:?}, not {expected:?}"
            );
            *self.met.entry(met(what, result)).or_default() += 1;
            if result == Settled::Lost {
                self.model.forget(&unsettled);
            } else {
                holding.progress.settled();
                holding.cursor_day = settlement.cursor_day;
            }
            let stays = match (what, result) {
                (Operation::Keep, Settled::Done) => true,
                (Operation::Finish, Settled::Busy) => {
                    holding.busy = true;
                    true
                }
                (Operation::Finish, Settled::More) => {
                    holding.batch = None;
                    holding.busy = false;
                    true
                }
                _ => false,
            };
            if !stays || holding.ghost {
                connection.forget(place);
            }
        }
        Ok(())
    }

    pub async fn unlock(&mut self, at: usize) -> Check {
        let (lanes, finished) = self.let_go(at);
        match &self.connections[at] {
            Some(connection) if !lanes.is_empty() || !finished.is_empty() => {
                unlock(connection, &lanes, &finished).await
            }
            _ => Ok(()),
        }
    }

    /// What is to be given back by the connection's next statement: lanes and claims.
    pub fn let_go(&mut self, at: usize) -> (Vec<i64>, Vec<i64>) {
        let Some(connection) = &mut self.connections[at] else {
            return Default::default();
        };
        let lanes = std::mem::take(&mut connection.released);
        let finished = std::mem::take(&mut connection.finished_claims);
        let id = connection.id;
        self.model
            .claims
            .retain(|row| row.connection_id != id || !finished.contains(&row.claim_id));
        for &lane in &lanes {
            self.model.lanes[lane].holder = None;
        }
        let ids = lanes.iter().filter_map(|lane| self.lane_id(*lane));
        (ids.collect(), finished)
    }

    pub async fn mark(&mut self, at: usize) -> Check {
        let Some(connection) = &mut self.connections[at] else {
            return Ok(());
        };
        let held = connection
            .holdings
            .values_mut()
            .filter(|holding| !holding.ghost);
        let mut held: Vec<&mut Holding> = held.collect();
        let entries: Vec<_> = held
            .iter()
            .map(|holding| (holding.lane_id, holding.entry))
            .collect();
        if entries.is_empty() {
            return Ok(());
        }
        let time_out = Duration::from_millis(FROZEN_AFTER_MS as u64);
        let physical = &connection.physical;
        let marked = settle::record_in_flight(&physical.client, &physical.mark, &entries, time_out)
            .await
            .map_err(told)?;
        for (lane_id, ctid, id) in marked {
            let holding = held.iter_mut().find(|holding| holding.lane_id == lane_id);
            let holding = holding.ok_or_else(|| format!("lane {lane_id} was marked unasked"))?;
            (holding.entry.ctid, holding.entry.id, holding.marked) = (ctid, id, true);
            self.model.lanes[holding.shadow.lane].due = Some(self.model.now + FROZEN_AFTER_MS);
        }
        Ok(())
    }

    pub async fn lose_lock(&mut self, at: usize, place: usize) -> Check {
        let Some(connection) = &mut self.connections[at] else {
            return Ok(());
        };
        let Some(holding) = connection
            .holdings
            .get_mut(&place)
            .filter(|holding| !holding.ghost)
        else {
            return Ok(());
        };
        holding.ghost = true;
        let lost = "SELECT pg_advisory_unlock(lanekeeper.lane_lock($1))";
        let lost = connection
            .physical
            .client
            .query_one(lost, &[&holding.lane_id])
            .await;
        let lost: bool = lost.map_err(|error| error.to_string())?.get(0);
        ensure!(
            lost,
            "connection {at} did not have the lock of lane {place}"
        );
        self.model.lanes[place].holder = None;
        self.model.forget(&holding.shadow);
        Ok(())
    }
}

fn met(operation: Operation, result: Settled) -> &'static str {
    match (operation, result) {
        (_, Settled::Lost) => "settlements that missed",
        (_, Settled::Idle) => "lanes gone idle",
        (_, Settled::More) => "finished with more to do",
        (_, Settled::Busy) => "finished under an open append",
        (Operation::Retry, _) => "retries",
        (Operation::Park, _) => "parked",
        (Operation::Discard, _) => "spare entries discarded",
        _ => "other settlements",
    }
}

pub async fn unlock(connection: &Connection, lanes: &[i64], finished: &[i64]) -> Check {
    let physical = &connection.physical;
    settle::unlock(
        &physical.client,
        &physical.unlock,
        lanes,
        connection.id,
        finished,
    )
    .await
    .map_err(told)
}

/// What the engine asks for now, or what the list has it ask for.
fn asked(holding: &mut Holding, how: How, current: bool) -> Option<Stop> {
    let mut stop = if let Some(stop) = holding.stop.take() {
        stop
    } else if holding.ghost || holding.progress.must_settle() {
        Stop::new(Operation::Keep)
    } else {
        let letters = holding
            .progress
            .is_requeued_before(holding.letters_before());
        match how {
            How::Release => Stop::new(Operation::Release),
            How::Yield => Stop::yields(),
            How::Later if holding.busy => Stop::retry(BUSY_DELAY, None),
            _ if holding.is_through() && !letters => after_batch(&holding.progress),
            _ if holding.shadow.changed => Stop::new(Operation::Keep),
            _ => return None,
        }
    };
    let gone = stop.operation == Operation::Finish && !current;
    if gone || stop.operation == Operation::Release && holding.marked {
        stop.operation = Operation::Yield;
    }
    Some(stop)
}

fn check_settlement(settlement: &Settlement, shadow: &Shadow) -> Check {
    let found = (
        settlement.version,
        settlement.cursor,
        settlement.attempts,
        settlement.crashes,
        settlement.changed,
    );
    let expected = (
        shadow.version,
        shadow.cursor,
        shadow.attempts,
        shadow.crashes,
        shadow.changed,
    );
    let place = shadow.lane;
    ensure!(
        found == expected,
        "lane {place} is settled as {found:?}, not {expected:?}"
    );
    let seqs: Vec<i64> = settlement
        .outcomes
        .iter()
        .map(|outcome| outcome.seq)
        .collect();
    let expected: Vec<i64> = shadow.outcomes.iter().map(|(seq, _)| *seq).collect();
    ensure!(
        seqs == expected,
        "lane {place} is settled with outcomes of {seqs:?}, not {expected:?}"
    );
    Ok(())
}
