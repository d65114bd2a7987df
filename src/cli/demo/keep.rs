//! `demo --keep`: runs the demo in the background, and shows its output until it has a verdict.

use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::pin::Pin;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::super::Failure;
use super::super::output;
use super::Args;

const OUTPUT: &str = "demo.log";
const VERDICT: &str = "verdict";
const HOLDS: &str = "holds";
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Starts the demo in the background, with its folder in `dir`, and returns when it has its verdict.
pub(super) async fn start(
    args: &Args,
    dir: &Path,
    told: Pin<&mut impl Future<Output = u8>>,
) -> Result<ExitCode, Failure> {
    let path = dir.join(OUTPUT);
    let log = OpenOptions::new().create(true).append(true).open(&path);
    let log = log.map_err(Failure::failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(Failure::failed)?);
    command.args(["demo", "--kept-in"]).arg(dir);
    command.args(["--fail-every", &args.fail_every.to_string()]);
    for (option, value) in [
        ("--input", &args.input),
        ("--postgres-bin", &args.postgres_bin),
    ] {
        if let Some(value) = value {
            command.arg(option).arg(value);
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(Failure::failed)?)
        .stderr(log)
        // A terminal's Ctrl-C ends the showing only while there is no verdict; later it is not meant.
        .process_group(0);
    let mut child = command.spawn().map_err(Failure::failed)?;
    let mut from = File::open(&path).map_err(Failure::failed)?;
    let shown = async {
        loop {
            // Asked before its output is read, so that nothing that it said is missed.
            let verdict = std::fs::read_to_string(dir.join(VERDICT)).ok();
            let ended = child.try_wait().map_err(Failure::failed)?;
            show(&mut from)?;
            if let Some(verdict) = verdict {
                return Ok::<_, Failure>(Shown::Verdict(verdict));
            }
            if let Some(status) = ended {
                return Ok(Shown::Ended(status));
            }
            sleep(LOOK_AGAIN).await;
        }
    };
    let shown = tokio::select! {
        shown = shown => shown?,
        code = told => {
            stop(&mut child).await?;
            return Ok(ExitCode::from(code));
        }
    };
    match shown {
        Shown::Ended(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
        }
        Shown::Verdict(verdict) => {
            let pid = child.id().unwrap_or_default();
            output::line(format!(
                "everything is left running; stop it with: kill {pid}"
            ))?;
            Ok(match verdict.as_str() {
                HOLDS => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            })
        }
    }
}

/// How the showing ended.
enum Shown {
    Verdict(String),
    /// Without one.
    Ended(ExitStatus),
}

/// Says that everything was said.
pub(super) fn finish(dir: &Path, holds: bool) -> Result<(), Failure> {
    let unfinished = dir.join("verdict.new");
    let verdict = match holds {
        true => HOLDS,
        false => "does not hold",
    };
    // Complete before it is seen.
    std::fs::write(&unfinished, verdict).map_err(Failure::failed)?;
    std::fs::rename(&unfinished, dir.join(VERDICT)).map_err(Failure::failed)
}

fn show(from: &mut File) -> Result<(), Failure> {
    let mut text = Vec::new();
    from.read_to_end(&mut text).map_err(Failure::failed)?;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&text).map_err(Failure::failed)?;
    stdout.flush().map_err(Failure::failed)
}

async fn stop(child: &mut Child) -> Result<(), Failure> {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        kill_process(pid, Signal::TERM).map_err(Failure::failed)?;
    }
    child.wait().await.map_err(Failure::failed)?;
    Ok(())
}
