//! Measurements that anybody can repeat: each one runs beside what it is compared with, in the same
//! run and turn by turn, so that a busy machine weighs on both.
//!
//! What is compared: draining with a row queue that keeps no order at all (`row_queue`), appending
//! with the bare INSERT of the same columns (`bare`), waking with a bare NOTIFY, and whatever is to make
//! no difference with the same without it (`beside`, `partitions`, `held_snapshot`, `replicas`); a second delivery with
//! the first (`replay`), and an acknowledged one with one that is not (`acks`). Everything
//! happens in a database of its own (`scratch`), made anew for each run of a drain, never analysed by hand.
//! A result is printed by whoever calls; nothing here writes to standard output.

mod acks;
mod aggregates;
mod backlog;
mod bare;
mod beside;
mod busy;
mod cost;
mod documents;
mod drain;
mod enqueue;
mod environment;
mod error;
mod held_snapshot;
mod latency;
mod measure;
mod memory;
mod options;
mod paced;
mod partitions;
mod projections;
mod replay;
mod replicas;
mod report;
pub mod results;
mod row_queue;
mod scratch;
mod series;
mod sink;
mod steady;
mod steps;
pub mod table;
mod text;
mod worker_process;

pub use error::BenchError;
pub use options::{Backlog, Options, Workload};
pub use report::{Comparison, Distribution, Line, Size};
pub use scratch::{Scratch, holds_events};

use steps::{prepare, progress};

/// The circumstances of all that follows.
///
/// # Errors
/// Where the server does not answer.
pub async fn environment(scratch: &Scratch, options: &Options) -> Result<Line, BenchError> {
    let environment = environment::read(scratch, options).await?;
    Ok(Line::Environment(environment))
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
            for case in drain::cases(options) {
                for line in drain::measure(scratch, options, case).await? {
                    emit(line)?;
                }
            }
        }
        Workload::Sessions | Workload::Backlog => {
            let cases = match workload {
                Workload::Sessions => series::sessions(options),
                _ => series::backlogs(options),
            };
            for case in cases {
                for line in series::measure(scratch, options, case).await? {
                    emit(line)?;
                }
            }
        }
        Workload::Enqueue => {
            for case in enqueue::CASES {
                emit(enqueue::measure(scratch, options, case).await?)?;
            }
            for clients in busy::CLIENTS {
                emit(busy::measure(scratch, options, clients).await?)?;
            }
        }
        Workload::Documents => {
            for case in documents::CASES {
                emit(documents::measure(scratch, options, case).await?)?;
            }
        }
        Workload::Aggregates => {
            for line in aggregates::measure(scratch, options).await? {
                emit(line)?;
            }
        }
        Workload::Acks => {
            for line in acks::measure(scratch, options).await? {
                emit(line)?;
            }
        }
        Workload::Projections => emit(projections::measure(scratch, options).await?)?,
        Workload::Latency => {
            for line in latency::measure(scratch, options).await? {
                emit(line)?;
            }
        }
        Workload::Steady => {
            for line in steady::measure(scratch, options).await? {
                emit(line)?;
            }
        }
        Workload::HeldSnapshot => emit(held_snapshot::measure(scratch, options).await?)?,
        Workload::BlockedBacklog => {
            for blocked in &options.blocked {
                emit(beside::blocked(scratch, options, *blocked).await?)?;
            }
        }
        Workload::Resting => emit(beside::resting(scratch, options).await?)?,
        Workload::Partitions => {
            for line in partitions::measure(scratch, options).await? {
                emit(line)?;
            }
        }
        Workload::Replicas => {
            for line in replicas::measure(scratch, options).await? {
                emit(line)?;
            }
        }
        Workload::Replay => {
            for line in replay::measure(scratch, options).await? {
                emit(line)?;
            }
        }
        Workload::Memory => emit(memory::measure(scratch, options).await?)?,
    }
    Ok(())
}
