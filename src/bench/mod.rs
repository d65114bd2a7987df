//! Measurements that anybody can repeat: each one runs beside what it is compared with, in the same
//! run and turn by turn, so that a busy machine weighs on both.
//!
//! What is compared: draining with a row queue that keeps no order at all (`row_queue`), appending
//! with the bare INSERT of the same columns (`bare`), waking with a bare NOTIFY. Everything happens
//! in a database of its own (`scratch`), made anew for each run of a drain, never analysed by hand.
//! A result is printed by whoever calls; nothing here writes to standard output.

mod backlog;
mod bare;
mod blocked;
mod cost;
mod drain;
mod enqueue;
mod environment;
mod error;
mod latency;
mod measure;
mod memory;
mod report;
mod row_queue;
mod scratch;
mod sink;

use tokio_postgres::{Client, Statement};

use crate::engine::WorkerSettings;

pub use error::BenchError;
pub use report::{Comparison, Distribution, Line, Size};
pub use scratch::{Scratch, holds_events};

/// What is measured and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// The median of this many is reported.
    pub runs: usize,
    /// How long one run of an enqueue measurement takes.
    pub seconds: f64,
    /// Sessions and events per session of the drain, instead of its own cases.
    pub drain: Option<Backlog>,
    /// Lanes delivered at once, as the subscription says.
    pub concurrency: u32,
    /// The blocked lanes and what each holds.
    pub blocked: Backlog,
    /// What the worker process drains while its memory is watched.
    pub memory: Backlog,
    /// Events of the latency measurement.
    pub samples: usize,
    pub worker: WorkerSettings,
}

/// Sessions, and the events that each of them holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    pub sessions: usize,
    pub events: usize,
}

impl Backlog {
    pub fn total(self) -> usize {
        self.sessions * self.events
    }
}

impl std::fmt::Display for Backlog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {}", self.sessions, self.events)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Ordered delivery of a backlog, against a row queue without order
    Drain,
    /// One event per transaction and in bulk, against the bare INSERT
    Enqueue,
    /// From an enqueue to the start of its delivery by an idle worker
    Latency,
    /// A drain beside many blocked lanes, against one without them
    BlockedBacklog,
    /// The most memory that a worker process takes while it drains
    Memory,
}

impl Workload {
    pub const ALL: [Self; 5] = [
        Self::Drain,
        Self::Enqueue,
        Self::Latency,
        Self::BlockedBacklog,
        Self::Memory,
    ];
}

/// The circumstances of all that follows.
///
/// # Errors
/// Where the server does not answer.
pub async fn environment(scratch: &Scratch, options: &Options) -> Result<Line, BenchError> {
    environment::read(scratch, options).await
}

/// Runs one workload; its lines come one by one, as they are ready.
///
/// # Errors
/// The first failure ends the workload.
pub async fn run<E: From<BenchError>>(
    workload: Workload,
    scratch: &Scratch,
    options: &Options,
    mut emit: impl FnMut(Line) -> Result<(), E>,
) -> Result<(), E> {
    match workload {
        Workload::Drain => {
            for backlog in drain::cases(options) {
                for line in drain::measure(scratch, options, backlog).await? {
                    emit(line)?;
                }
            }
        }
        Workload::Enqueue => {
            for case in enqueue::CASES {
                emit(enqueue::measure(scratch, options, case).await?)?;
            }
        }
        Workload::Latency => {
            for line in latency::measure(scratch, options).await? {
                emit(line)?;
            }
        }
        Workload::BlockedBacklog => emit(blocked::measure(scratch, options).await?)?,
        Workload::Memory => emit(memory::measure(scratch, options).await?)?,
    }
    Ok(())
}

/// Long work says on standard error where it is.
fn progress(text: &str) {
    eprintln!("bench: {text}");
}

async fn prepare(client: &Client, sql: &str) -> Result<Statement, BenchError> {
    client
        .prepare(sql)
        .await
        .map_err(BenchError::on("preparing a measured statement"))
}
