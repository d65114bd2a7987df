//! Makes hook calls as agent CLIs do: one process each, one call of a session after the other,
//! many sessions at the same time.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Where the CLIs put the session's id.
const SESSION_POINTERS: [&str; 7] = [
    "/session_id",
    "/conversation_id",
    "/thread-id",
    "/sessionID",
    "/properties/sessionID",
    "/event/properties/sessionID",
    "/properties/info/id",
];

#[derive(clap::Args)]
pub struct Args {
    /// The program to call
    #[arg(long)]
    lanekeeper: PathBuf,
    /// The folder with *.jsonl of `{"cli", "payload"}`
    #[arg(long)]
    input: PathBuf,
    /// Sessions that call at the same time
    #[arg(long, default_value_t = 8)]
    sessions: usize,
}

#[derive(Deserialize)]
struct Line {
    cli: String,
    payload: Box<RawValue>,
}

pub async fn run(args: Args) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let sessions = read(&args.input)?;
    let calls: usize = sessions.iter().map(Vec::len).sum();
    if calls == 0 {
        return Err(format!("{} has no *.jsonl with hook calls", args.input.display()).into());
    }
    eprintln!("feeding {calls} hook calls of {} sessions", sessions.len());
    let start = Instant::now();
    let mut times: Vec<Duration> = stream::iter(sessions)
        .map(|lines| session(&args.lanekeeper, lines))
        .buffer_unordered(args.sessions)
        .try_concat()
        .await?;
    let total = start.elapsed();
    times.sort();
    println!(
        "{calls} hook calls in {:.1} s ({:.0} per second); one takes {:.0} ms, the slowest {:.0} ms",
        total.as_secs_f64(),
        calls as f64 / total.as_secs_f64(),
        times[calls / 2].as_secs_f64() * 1e3,
        times[calls - 1].as_secs_f64() * 1e3,
    );
    Ok(ExitCode::SUCCESS)
}

/// The calls of each session, in the order of their lines.
fn read(folder: &Path) -> Result<Vec<Vec<Line>>, Box<dyn std::error::Error>> {
    let describe = |error| format!("{}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(describe)? {
        let path = entry.map_err(describe)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            files.push(path);
        }
    }
    files.sort();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut sessions: Vec<Vec<Line>> = Vec::new();
    for path in files {
        for (number, text) in BufReader::new(std::fs::File::open(&path)?)
            .lines()
            .enumerate()
        {
            let at = |error: &dyn std::error::Error| {
                format!("{}:{}: {error}", path.display(), number + 1)
            };
            let text = text.map_err(|error| at(&error))?;
            if text.trim().is_empty() {
                continue;
            }
            let line: Line = serde_json::from_str(&text).map_err(|error| at(&error))?;
            let payload: Value =
                serde_json::from_str(line.payload.get()).map_err(|error| at(&error))?;
            // Calls without an id are one session per file: their order is kept too.
            let id = SESSION_POINTERS
                .iter()
                .find_map(|pointer| payload.pointer(pointer)?.as_str())
                .map_or_else(
                    || path.display().to_string(),
                    |id| format!("{} {id}", line.cli),
                );
            let place = *places.entry(id).or_insert(sessions.len());
            if place == sessions.len() {
                sessions.push(Vec::new());
            }
            sessions[place].push(line);
        }
    }
    Ok(sessions)
}

async fn session(lanekeeper: &Path, lines: Vec<Line>) -> Result<Vec<Duration>, std::io::Error> {
    let mut times = Vec::with_capacity(lines.len());
    for line in lines {
        let start = Instant::now();
        call(lanekeeper, &line).await?;
        times.push(start.elapsed());
    }
    Ok(times)
}

async fn call(lanekeeper: &Path, line: &Line) -> Result<(), std::io::Error> {
    let mut hook = Command::new(lanekeeper);
    hook.args(["hook", "--cli", &line.cli])
        .stdout(Stdio::null())
        .kill_on_drop(true);
    // Codex's legacy notify hands the payload over as the last argument.
    let by_argument = line.cli == "codex-notify";
    if by_argument {
        hook.arg(line.payload.get()).stdin(Stdio::null());
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
