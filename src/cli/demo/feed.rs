//! Makes hook calls as agent CLIs do: one process for each call, one call of a session after the other, many sessions
//! at the same time.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use super::super::Failure;
use super::input::{Input, Line, Session};
use super::programs::Launcher;

/// Sessions that call at the same time.
const SESSIONS_AT_ONCE: usize = 4;

/// What the calls took.
pub(super) struct Fed {
    pub(super) calls: usize,
    pub(super) took: Duration,
    pub(super) median: Duration,
}

/// Tells when half of the calls were made.
#[derive(Default)]
pub(super) struct Halfway {
    made: AtomicUsize,
    reached: Notify,
}

impl Halfway {
    pub(super) async fn reached(&self) {
        self.reached.notified().await;
    }

    fn count(&self, all: usize) {
        if self.made.fetch_add(1, Ordering::Relaxed) + 1 == all.div_ceil(2) {
            self.reached.notify_one();
        }
    }
}

pub(super) async fn run(
    launcher: &Launcher,
    input: &Input,
    halfway: &Halfway,
) -> Result<Fed, Failure> {
    let calls = input.all_calls();
    let start = Instant::now();
    let mut times: Vec<Duration> = stream::iter(&input.sessions)
        .map(|session| feed(launcher, session, calls, halfway))
        .buffer_unordered(SESSIONS_AT_ONCE)
        .try_concat()
        .await
        .map_err(Failure::failed)?;
    let took = start.elapsed();
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(Fed {
        calls,
        took,
        median,
    })
}

async fn feed(
    launcher: &Launcher,
    session: &Session,
    calls: usize,
    halfway: &Halfway,
) -> Result<Vec<Duration>, std::io::Error> {
    let mut times = Vec::with_capacity(session.calls.len());
    for line in &session.calls {
        let start = Instant::now();
        call(launcher, line).await?;
        times.push(start.elapsed());
        halfway.count(calls);
    }
    Ok(times)
}

async fn call(launcher: &Launcher, line: &Line) -> Result<(), std::io::Error> {
    let mut hook = launcher.command(&["hook", "--cli", &line.cli], "hook")?;
    // Codex's legacy notify hands the payload over as the last argument.
    let by_argument = line.cli == "codex-notify";
    if by_argument {
        hook.arg(line.payload.get());
    } else {
        hook.stdin(Stdio::piped());
    }
    let mut hook = hook.spawn()?;
    if let Some(mut stdin) = hook.stdin.take() {
        stdin.write_all(line.payload.get().as_bytes()).await?;
    }
    let status = hook.wait().await?;
    if status.success() {
        Ok(())
    } else {
        Err(std::io::Error::other(format!(
            "lanekeeper hook --cli {} ended with {status}",
            line.cli
        )))
    }
}
