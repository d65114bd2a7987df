//! Runs a list of operations against the database and the model, and compares after each.

use std::collections::{BTreeMap, HashMap};

use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::append::{AppendError, Enqueued};
use tokio::task::JoinHandle;

use crate::ground::Ground;
use crate::model::Model;
use crate::operation::{CONNECTIONS, DAY, Operation, PRODUCERS, WORKERS};
use crate::worker::{Connection, Holding, Process};

pub type Check<T = ()> = Result<T, String>;

/// Returns with a message unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}

/// A call that a producer is at.
pub type Pending = JoinHandle<Result<Vec<Enqueued>, AppendError>>;

pub struct World {
    pub ground: Ground,
    pub model: Model,
    pub pending: [Option<Pending>; PRODUCERS],
    pub workers: [Option<Process>; WORKERS],
    pub connections: [Option<Connection>; CONNECTIONS],
    /// Of each lane, where its session exists.
    pub lane_ids: HashMap<i64, usize>,
    /// How often the lists came to what they are for.
    pub met: BTreeMap<&'static str, usize>,
    /// The last operation did nothing.
    pub idle: bool,
    runs: usize,
}

/// What became of a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ran {
    /// Those that were possible.
    pub operations: usize,
    pub delivered: usize,
}

impl World {
    pub async fn new() -> Self {
        Self {
            ground: Ground::new().await,
            model: Model::new(),
            pending: Default::default(),
            workers: Default::default(),
            connections: Default::default(),
            lane_ids: HashMap::new(),
            met: BTreeMap::new(),
            idle: false,
            runs: 0,
        }
    }

    /// Runs a list from an empty database to its end, and lets everything drain after it.
    pub async fn run(&mut self, operations: &[Operation]) -> Check<Ran> {
        self.begin().await;
        let result = self.steps(operations).await;
        Ok(Ran {
            operations: result?,
            delivered: self
                .model
                .lanes
                .iter()
                .map(|lane| lane.accepted.len() + lane.redelivered.len())
                .sum(),
        })
    }

    async fn begin(&mut self) {
        let busy = std::array::from_fn(|producer| self.pending[producer].take().is_some());
        let connections = self.connections.iter_mut().filter_map(Option::take);
        self.ground
            .spare
            .extend(connections.map(|connection| connection.physical));
        self.ground.spare.extend(
            self.workers
                .iter_mut()
                .filter_map(Option::take)
                .map(|process| process.control),
        );
        self.ground.reset(busy).await;
        self.runs += 1;
        if self.runs.is_multiple_of(16) {
            self.ground.vacuum().await;
        }
        self.model = Model::new();
        self.lane_ids.clear();
    }

    async fn steps(&mut self, operations: &[Operation]) -> Check<usize> {
        for connection in [0, 1, 2] {
            self.open(connection).await?;
        }
        let mut done = 0;
        for (at, operation) in operations.iter().enumerate() {
            let step = async {
                self.idle = false;
                self.step(operation).await?;
                self.idle &= !matches!(operation, Operation::Crash { .. });
                if self.idle {
                    Ok(())
                } else {
                    self.compare(at % 8 == 7).await
                }
            };
            step.await
                .map_err(|error| format!("operation {at}, {operation:?}: {error}"))?;
            done += usize::from(!self.idle);
        }
        self.drain()
            .await
            .map_err(|error| format!("draining: {error}"))?;
        Ok(done)
    }

    pub async fn step(&mut self, operation: &Operation) -> Check {
        match operation.clone() {
            Operation::Begin {
                producer,
                repeatable_read,
            } => self.begin_transaction(producer, repeatable_read).await,
            Operation::Enqueue { producer, event } => {
                self.enqueue(producer, vec![event], false).await
            }
            Operation::EnqueueMany { producer, events } => {
                self.enqueue(producer, events, true).await
            }
            Operation::Savepoint { nth } => match self.transaction(nth) {
                Some(producer) => self.savepoint(producer).await,
                None => self.nothing(),
            },
            Operation::RollbackTo { nth } => match self.transaction(nth) {
                Some(producer) => self.roll_back_to_savepoint(producer).await,
                None => self.nothing(),
            },
            Operation::Commit { nth } => match self.transaction(nth) {
                Some(producer) => self.end_transaction(producer, true).await,
                None => self.nothing(),
            },
            Operation::Rollback { nth } => match self.transaction(nth) {
                Some(producer) => self.end_transaction(producer, false).await,
                None => self.nothing(),
            },
            Operation::Work { connection, answer } => self.work(connection, answer).await,
            Operation::Claim {
                connection,
                limit,
                full,
            } => self.claim(connection, limit, full).await,
            Operation::Fetch { nth, rows } => match self.holding(nth, Holding::wants_events) {
                Some((connection, _)) => self.fetch(connection, rows).await,
                None => self.nothing(),
            },
            Operation::Deliver { nth, answer } => match self.holding(nth, Holding::can_deliver) {
                Some((connection, lane)) => self.deliver(connection, lane, answer).await,
                None => self.nothing(),
            },
            Operation::Settle { nth, how } => match self.holding(nth, |_| true) {
                Some((connection, _)) => self.settle(connection, how).await,
                None => self.nothing(),
            },
            Operation::Unlock { nth } => match self.releasing(nth) {
                Some(connection) => self.unlock(connection).await,
                None => self.nothing(),
            },
            Operation::Mark { nth } => match self.holding(nth, |holding| !holding.ghost) {
                Some((connection, _)) => self.mark(connection).await,
                None => self.nothing(),
            },
            Operation::Refresh { worker } => self.refresh(worker).await,
            Operation::Beat { worker } => self.heartbeat(worker).await,
            Operation::Open { connection } => self.open(connection).await,
            Operation::Cut { connection } => self.cut(connection).await,
            Operation::Kill { worker } => self.kill(worker).await,
            Operation::LoseLock { nth } => match self.holding(nth, |holding| !holding.ghost) {
                Some((connection, lane)) => self.lose_lock(connection, lane).await,
                None => self.nothing(),
            },
            Operation::Crash { worker } => self.crash(worker).await,
            Operation::Usurp { nth, answer } => {
                match self.holding(nth, |holding| !holding.ghost && holding.shadow.changed) {
                    Some((connection, lane)) => {
                        self.lose_lock(connection, lane).await?;
                        self.work((connection + 2) % CONNECTIONS, answer).await
                    }
                    None => self.nothing(),
                }
            }
            Operation::TakeOver { worker } => self.take_over(worker).await,
            Operation::EndFrozen { worker } => self.end_frozen(worker).await,
            Operation::Operate { lane, action } => self.operate(lane, action).await,
            Operation::Requeue { nth, at_end } => self.requeue(nth, at_end).await,
            Operation::DropLetter { nth } => self.drop_letter(nth).await,
            Operation::Pause { subscription } => self.pause(subscription, true).await,
            Operation::Resume { subscription } => self.pause(subscription, false).await,
            Operation::Apply { filter, policy } => self.apply(filter, policy).await,
            Operation::FinishChanges => self.finish_changes().await.map(drop),
            Operation::KeepHouse => self.maintain_log().await,
            Operation::Pass { ms } => self.pass(ms).await,
        }
    }

    pub async fn pass(&mut self, ms: i64) -> Check {
        // Partitions are made for as many days.
        if ms < DAY || self.model.today() < 3 {
            self.model.now += ms;
            self.ground.set_clock(self.model.now).await;
        }
        Ok(())
    }

    /// The n-th held lane of which that is true, with its connection.
    fn holding(&self, n: usize, is: impl Fn(&Holding) -> bool) -> Option<(usize, usize)> {
        let connections = self.connections.iter().enumerate();
        let holdings = connections.filter_map(|(at, connection)| Some((at, connection.as_ref()?)));
        let holdings = holdings.flat_map(|(at, connection)| {
            connection
                .holdings
                .iter()
                .map(move |(lane, holding)| (at, *lane, holding))
        });
        nth(n, holdings.filter(|(.., holding)| is(holding))).map(|(at, lane, _)| (at, lane))
    }

    /// The n-th connection with lanes that it let go and did not unlock.
    fn releasing(&self, n: usize) -> Option<usize> {
        let released = |at: &usize| {
            self.connections[*at]
                .as_ref()
                .is_some_and(|connection| !connection.released.is_empty())
        };
        nth(n, (0..CONNECTIONS).filter(released))
    }

    /// The operation is not possible now, and was not tried.
    pub fn nothing(&mut self) -> Check {
        self.idle = true;
        Ok(())
    }

    pub fn lane_id(&self, lane: usize) -> Option<i64> {
        self.lane_ids
            .iter()
            .find(|(_, at)| **at == lane)
            .map(|(id, _)| *id)
    }
}

/// The n-th, round and round.
pub fn nth<T>(n: usize, of: impl Iterator<Item = T>) -> Option<T> {
    let mut all: Vec<T> = of.collect();
    if all.is_empty() {
        None
    } else {
        Some(all.swap_remove(n % all.len()))
    }
}

/// A StoreError with its causes.
pub fn told(error: StoreError) -> String {
    format!("{error}: {}", error.source)
}
