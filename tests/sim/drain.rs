//! The end of every list: producers commit, workers live, destinations accept. Then everything must come to
//! rest, within so many rounds.

use crate::ensure;
use crate::ground::LIMIT;
use crate::operation::{
    Action, Answer, CONNECTIONS, How, LANES, PRODUCERS, SUBSCRIPTIONS, WORKERS,
};
use crate::world::{Check, World};
use tokio::time::{Duration, Instant, sleep};

/// Three workers' deaths, two attempts and an operator's doing each take a round.
const ROUNDS: usize = 30;
/// Longer than any wait that a destination asked for, and than a marked lane's.
const ROUND_MS: i64 = 31_000;

impl World {
    pub async fn drain(&mut self) -> Check {
        // Whoever waits goes on when those that it waits for have ended.
        for _ in 0..PRODUCERS {
            for producer in 0..PRODUCERS {
                self.end_transaction(producer, true).await?;
            }
        }
        ensure!(
            self.pending.iter().all(Option::is_none),
            "a producer waits for nobody"
        );
        self.finish_all_changes().await?;
        for round in 0..ROUNDS {
            self.compare(false)
                .await
                .map_err(|error| format!("round {round}: {error}"))?;
            if self.is_at_rest().await? {
                return self.compare_end().await;
            }
            self.round(round)
                .await
                .map_err(|error| format!("round {round}: {error}"))?;
        }
        Err(format!("not at rest after {ROUNDS} rounds"))
    }

    /// Housekeeping waits for snapshots; others than ours are short.
    async fn finish_all_changes(&mut self) -> Check {
        let deadline = Instant::now() + LIMIT;
        while !self.finish_changes().await? {
            ensure!(
                Instant::now() < deadline,
                "a change of subscriptions is not finished"
            );
            self.pass(1_000).await?;
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    async fn is_at_rest(&self) -> Check<bool> {
        let work = (0..LANES).any(|lane| self.model.front(lane).is_some());
        let held = self.model.lanes.iter().any(|lane| lane.holder.is_some());
        let believed = self
            .connections
            .iter()
            .flatten()
            .any(|connection| !connection.holdings.is_empty());
        let rows =
            "SELECT EXISTS (SELECT FROM lanekeeper.ready) OR EXISTS (SELECT FROM lanekeeper.claim)";
        let row = self
            .ground
            .admin
            .query_one(rows, &[])
            .await
            .map_err(|error| format!("{error:?}"))?;
        let registered = self.model.registered.iter().any(|row| !row.alive);
        Ok(!work && !held && !believed && !registered && !row.get::<_, bool>(0))
    }

    async fn round(&mut self, round: usize) -> Check {
        self.pass(ROUND_MS).await?;
        for subscription in 0..SUBSCRIPTIONS.len() {
            if self.model.subscriptions[subscription].paused {
                self.pause(subscription, false).await?;
            }
        }
        for worker in 0..WORKERS {
            self.open(worker * 2).await?;
            // In the first round it may know an older state of them, later one that a destination paused.
            let known = self.workers[worker]
                .as_ref()
                .map_or(0, |process| process.routes.len());
            if round == 0 || known < SUBSCRIPTIONS.len() {
                self.refresh(worker).await?;
            }
            if self.model.registered.iter().any(|row| !row.alive) {
                self.heartbeat(worker).await?;
                self.take_over(worker).await?;
            }
        }
        for lane in 0..LANES {
            if self.model.lanes[lane].parked && self.model.lanes[lane].holder.is_none() {
                self.operate(lane, Action::Unpark).await?;
            }
        }
        for at in 0..CONNECTIONS {
            if self.connections[at].is_some() {
                self.finish(at).await?;
            }
        }
        Ok(())
    }

    /// One connection works until it holds nothing, or a while.
    async fn finish(&mut self, at: usize) -> Check {
        self.claim(at, 8, true).await?;
        for _ in 0..8 {
            if self.connections[at]
                .as_ref()
                .is_none_or(|connection| connection.holdings.is_empty())
            {
                break;
            }
            self.fetch(at, 20).await?;
            for lane in 0..LANES {
                for _ in 0..21 {
                    self.deliver(at, lane, Answer::Accepted).await?;
                }
            }
            self.settle(at, How::Natural).await?;
        }
        self.unlock(at).await
    }
}
