//! The most resident memory of a worker process of its own while it drains a large backlog.
//!
//! The adapters of a real worker and their buffers count, the measurement's own memory does not.

use std::time::Duration;

use tokio::process::Child;
use tokio::time::sleep;

use super::measure::median;
use super::report::{Line, Size};
use super::{BenchError, Options, Scratch, backlog, progress, worker_process};

const TARGET_MIB: f64 = 60.0;
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Line, BenchError> {
    let mut values = Vec::new();
    for run in 1..=options.runs() {
        progress(&format!(
            "memory, {}, run {run} of {}",
            options.memory,
            options.runs()
        ));
        values.push(peak_mib(scratch, options).await?);
    }
    let mib = median(&values);
    Ok(Line::Size(Size {
        met: mib < TARGET_MIB,
        bench: "memory".to_owned(),
        case: format!("peak of a worker that drains {}", options.memory),
        mib,
        target_mib: TARGET_MIB,
        values,
    }))
}

async fn peak_mib(scratch: &Scratch, options: &Options) -> Result<f64, BenchError> {
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    backlog::load(scratch, "s", options.memory).await?;
    let client = scratch.connect().await?;
    let mut worker = worker_process::start(scratch)?;
    let mut peak = 0.0_f64;
    // A token of every lane is there from the start, so rest means that all is delivered.
    loop {
        sleep(LOOK_EVERY).await;
        if let Some(status) = worker.try_wait().map_err(BenchError::Spawn)? {
            return Err(BenchError::WorkerEnded(status));
        }
        peak = peak.max(high_water_mib(&worker)?);
        if backlog::at_rest(&client).await? {
            break;
        }
    }
    worker.kill().await.map_err(BenchError::Spawn)?;
    backlog::check_drained(
        &client,
        options.memory.total() as u64,
        options.memory.total(),
    )
    .await?;
    Ok(peak)
}

/// VmHWM: the kernel's own record of the most that was ever resident.
fn high_water_mib(worker: &Child) -> Result<f64, BenchError> {
    let pid = worker.id().unwrap_or_default();
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(BenchError::NoProc)?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<f64>().ok());
    // A process that has just ended has no memory any more; the next look says that it ended.
    Ok(kib.unwrap_or(0.0) / 1024.0)
}
