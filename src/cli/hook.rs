//! `lanekeeper hook`: reports one hook call of an agent CLI.
//!
//! It runs inside the agent's turn and must never disturb it: it exits with 0 whatever happens, writes nothing to
//! standard output (several CLIs parse it), and ends within a bounded time. Messages for people go to standard error,
//! in one line. This also holds for wrong usage, an unreadable configuration and a panic.
//!
//! Agents end their hooks when their turn ends: SIGTERM, SIGINT and SIGHUP change nothing, and a call
//! is in the spool before anything else is done with it.

pub mod wiring;

use std::any::Any;
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use lanekeeper_config::Config;
use lanekeeper_core::error::chain;
use lanekeeper_producer::spool::{Appended, Spool, SpoolError};
use lanekeeper_streams::hooks::SPOOLED;
use lanekeeper_streams::hooks::call::Call;
use lanekeeper_streams::hooks::config::HookConfig;
use lanekeeper_streams::hooks::double_fire::cursor_reports_itself;
use lanekeeper_streams::hooks::emit::{Emitted, Emitter};
use lanekeeper_streams::hooks::origin::Origin;
use lanekeeper_streams::hooks::shape::AgentCli;
use lanekeeper_streams::hooks::transcript;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::output;

/// Report one hook call of an agent CLI; always exits 0.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  \
    In .claude/settings.json: {\"hooks\":{\"Stop\":[{\"hooks\":[{\"type\":\"command\",\
    \"command\":\"lanekeeper hook --cli claude-code\"}]}]}}\n  \
    In ~/.codex/config.toml:  notify = [\"lanekeeper\", \"hook\", \"--cli\", \"codex-notify\"]",
    args_conflicts_with_subcommands = true
)]
pub struct Args {
    // People's: the agent's way has none.
    #[command(subcommand)]
    pub wiring: Option<wiring::Command>,
    /// claude-code, codex, codex-notify, gemini, cursor, opencode or qwen
    // Not parsed by clap: its refusal would exit 2, which blocks the agent.
    #[arg(long)]
    pub cli: Option<String>,
    /// The payload where the CLI passes it as an argument; otherwise it is read from stdin
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub payload: Vec<OsString>,
}

/// Runs the command outside of any runtime. `unusable`: what of the configuration does not count.
pub fn run(args: &Args, config: &Config, unusable: Vec<String>) -> ExitCode {
    let origin = Origin::now();
    let mut said = Said::default();
    for text in unusable {
        said.add(format!("not taken from the configuration: {text}"));
    }
    let report = catch_unwind(AssertUnwindSafe(|| hook(args, config, &origin, &mut said)));
    if let Err(panic) = report {
        said.add(format!(
            "the event may be lost: {}",
            panic_message(panic.as_ref())
        ));
    }
    said.tell();
    ExitCode::SUCCESS
}

fn hook(args: &Args, config: &Config, origin: &Origin, said: &mut Said) {
    let runtime = runtime().map_err(|error| {
        said.add(format!("signals end this call: {error}"));
        error
    });
    let cli = match args.cli.as_deref().map(str::parse::<AgentCli>) {
        Some(Ok(cli)) => cli,
        Some(Err(error)) => return said.add(format!("nothing is recorded: {error}")),
        None => return said.add("nothing is recorded: --cli is missing"),
    };
    let Some((bytes, whole)) = payload(args, &config.hook) else {
        return said.add("nothing is recorded: the payload is expected on standard input");
    };
    let mut call = Call::read(cli, &bytes, whole, origin, &config.hook);
    if !config.hook.allows(&call.record.event_type) {
        return;
    }
    let home = std::env::var_os("HOME");
    if call.through_claude_code
        && cursor_reports_itself(&call.fields, home.as_deref().map(Path::new))
    {
        return;
    }
    if let Some(note) = &call.note {
        said.add(note);
    }
    let started = Instant::now();
    let spool = Spool::new(&config.spool, SPOOLED);
    // Half of the budget, for a lock that a stopped process holds.
    let patience = (config.hook.timeout() / 2).min(Duration::from_secs(1));
    let (spool, mut kept) = match spool {
        Ok(spool) => {
            let kept = spool.append(&call.record, patience);
            (Some(spool), kept)
        }
        Err(error) => (None, Err(error)),
    };
    if look_for_transcript(&mut call, &config.hook)
        && let Some(spool) = &spool
    {
        kept = kept.map(|first| spool.amend(first, &call.record, patience));
    }
    let budget = config.hook.timeout().saturating_sub(started.elapsed());
    let way = super::way(config).unwrap_or_else(|error| {
        said.add(chain(&error));
        None
    });
    let emitter = Emitter {
        way: way.as_ref(),
        spool: spool.as_ref(),
        budget,
    };
    match emit(&emitter, &call, kept, runtime.ok()) {
        Emitted::Stored => {}
        Emitted::StoredWithoutSpool { because } => said.add(format!("stored, but {because}")),
        Emitted::Spooled { because } => said.add(format!("kept in the spool: {because}")),
        Emitted::Unsynced { because } => said.add(format!(
            "kept in the spool: {because}. The disk did not confirm it in time: only a power loss would lose it"
        )),
        Emitted::Rejected { because, kept_in } => said.add(format!(
            "refused, kept in {}: {because}. See `lanekeeper spool --rejected`.",
            kept_in.display()
        )),
        Emitted::Lost { because } => said.add(format!("the event is LOST: {because}")),
    }
}

/// One thread: a hook process lives for some milliseconds. With its handlers the signals by which
/// agents end their hooks do nothing, for as long as the process lives.
fn runtime() -> std::io::Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        // The handler stays when its receiver goes.
        drop(signal(kind)?);
    }
    drop(entered);
    Ok(runtime)
}

/// Whether there is more to say of the call now.
fn look_for_transcript(call: &mut Call, config: &HookConfig) -> bool {
    let home = transcript::codex_home(std::env::var_os("CODEX_HOME"), std::env::var_os("HOME"));
    let (Some(home), Some(session)) = (home, call.lacks_transcript()) else {
        return false;
    };
    let patience = transcript::PATIENCE.min(config.timeout() / 4);
    let found = transcript::find_within(patience, home, session.to_owned());
    let Some(path) = found.as_deref().and_then(Path::to_str) else {
        return false;
    };
    call.set_transcript(path, config);
    true
}

fn emit(
    emitter: &Emitter<'_>,
    call: &Call,
    kept: Result<Appended, SpoolError>,
    runtime: Option<Runtime>,
) -> Emitted {
    let Some(runtime) = runtime else {
        return match kept {
            Ok(kept) => synced(kept, emitter.budget),
            Err(error) => Emitted::Lost {
                because: error.to_string(),
            },
        };
    };
    let emitted = runtime.block_on(emitter.emit(&call.record, kept));
    // Not to wait for a name lookup that hangs in the runtime's blocking pool.
    runtime.shutdown_background();
    emitted
}

/// What becomes of a record that nothing can be sent of.
fn synced(kept: Appended, budget: Duration) -> Emitted {
    let because = "nothing could be sent".to_owned();
    let (sender, result) = sync_channel(1);
    // Not joined: it may hang for as long as the disk does.
    thread::spawn(move || {
        // Nobody listens any more where it took longer than the budget.
        let _ = sender.send(kept.sync());
    });
    match result.recv_timeout(budget) {
        Ok(Ok(())) => Emitted::Spooled { because },
        Ok(Err(error)) => Emitted::Lost {
            because: error.to_string(),
        },
        Err(_) => Emitted::Unsynced { because },
    }
}

/// The payload, and whether it is all of it; none where it would come from a terminal.
fn payload(args: &Args, config: &HookConfig) -> Option<(Vec<u8>, bool)> {
    if let Some(argument) = args.payload.last() {
        return Some((argument.as_encoded_bytes().to_vec(), true));
    }
    if std::io::stdin().is_terminal() {
        return None;
    }
    Some(read_stdin(config.max_input_bytes, config.stdin_timeout()))
}

/// Reads to the end, up to `max` bytes, and no longer than `patience` without a byte.
fn read_stdin(max: usize, patience: Duration) -> (Vec<u8>, bool) {
    let (sender, chunks) = sync_channel(4);
    // Not joined: it may hang in a read for ever. It ends with the process.
    thread::spawn(move || pump(std::io::stdin().lock(), &sender));
    let mut bytes = Vec::new();
    loop {
        match chunks.recv_timeout(patience) {
            Ok(chunk) => {
                let room = max - bytes.len();
                if chunk.len() > room {
                    bytes.extend(&chunk[..room]);
                    // Read on, so that the CLI does not meet a closed pipe.
                    while chunks.recv_timeout(patience).is_ok() {}
                    return (bytes, false);
                }
                bytes.extend(chunk);
            }
            Err(RecvTimeoutError::Disconnected) => return (bytes, true),
            Err(RecvTimeoutError::Timeout) => {
                // A payload that is complete is one, also if the pipe stays open.
                return (bytes, true);
            }
        }
    }
}

fn pump(mut input: impl Read, chunks: &SyncSender<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => {
                if chunks.send(buffer[..len].to_vec()).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // What was read so far is judged like any other payload.
            Err(_) => return,
        }
    }
}

/// What a person should know of this call.
#[derive(Default)]
struct Said(Vec<String>);

impl Said {
    fn add(&mut self, message: impl Into<String>) {
        self.0.push(message.into());
    }

    /// One line, however many lines the messages have: agents and their logs take lines.
    fn tell(&self) {
        if self.0.is_empty() {
            return;
        }
        let lines = self.0.iter().flat_map(|message| message.lines());
        let lines: Vec<&str> = lines.map(str::trim).collect();
        let line = lines.join("; ");
        // A closed standard error must not become a panic.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("lanekeeper hook: {}\n", output::plain(&line)),
        );
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("internal error")
}
