//! Workers in processes of their own: this binary's `worker` with the `stdout` adapter into /dev/null.

use std::process::Stdio;

use tokio::process::{Child, Command};

use super::{BenchError, Scratch};

/// Starts one on the scratch database; it is killed when the handle goes.
pub fn start(scratch: &Scratch) -> Result<Child, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::Spawn)?;
    Command::new(program)
        .arg("worker")
        .env("LANEKEEPER_DATABASE__URL", scratch.url())
        .env_remove("LANEKEEPER_DATABASE__URL_FILE")
        .env("LANEKEEPER_HTTP__LISTEN", "127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(BenchError::Spawn)
}

/// Fails where one has ended by itself.
pub fn all_run(workers: &mut [Child]) -> Result<(), BenchError> {
    for worker in workers {
        if let Some(status) = worker.try_wait().map_err(BenchError::Spawn)? {
            return Err(BenchError::WorkerEnded(status));
        }
    }
    Ok(())
}
