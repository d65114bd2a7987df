//! `lanekeeper dev`: runs everything on one machine, with a private PostgreSQL.
//!
//! Without a command, it serves until it is asked to stop. With a command (`dev -- COMMAND …`), it runs the command
//! with the private server as its database, and exits with the command's exit code.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};

use lanekeeper_config::Config;
use lanekeeper_core::network::PrivateTargets;
use lanekeeper_dashboard::config::DashboardMode;
use lanekeeper_dev::{Data, DevError, Options, Postgres, default_data_dir};
use lanekeeper_postgres as store;
use lanekeeper_postgres::Database;
use lanekeeper_subscription::SubscriptionFile;
use lanekeeper_telemetry::Telemetry;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use super::worker::Serving;
use super::{Failure, apply, output};

/// Run a private PostgreSQL, and a worker or a command on it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper dev                                  serve, keeping the data for the next time
  lanekeeper dev -f subscriptions.toml            serve, and deliver what this file subscribes to
  lanekeeper dev -- psql                          look into it
  lanekeeper dev --ephemeral -- cargo test        run a command on a server of its own")]
pub struct Args {
    /// Where the data is kept [default: lanekeeper/dev in the user's data directory]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    data_dir: Option<PathBuf>,
    /// The directory with `postgres` and `initdb` [default: the newest that is installed]
    #[arg(long, value_name = "DIR")]
    postgres_bin: Option<PathBuf>,
    /// Keep nothing: the data goes when the server stops
    #[arg(long)]
    ephemeral: bool,
    /// Listen on this port of 127.0.0.1 too, with a password; 0 takes a free one
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Apply this subscription file first, as `lanekeeper apply -f` does
    #[arg(short, long, value_name = "FILE", conflicts_with = "no_migrate")]
    file: Option<PathBuf>,
    /// Leave the database without Lanekeeper's schema
    #[arg(long)]
    no_migrate: bool,
    /// Run this with DATABASE_URL set, and stop when it ends
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Args {
    fn options(&self, config: &Config) -> Result<Options, DevError> {
        let data = if self.ephemeral {
            Data::Ephemeral
        } else {
            let dir = self
                .data_dir
                .clone()
                .or_else(|| config.dev.data_dir.clone());
            Data::Kept(dir.map_or_else(default_data_dir, Ok)?)
        };
        Ok(Options {
            data,
            postgres_bin: self
                .postgres_bin
                .clone()
                .or_else(|| config.dev.postgres_bin.clone()),
            fsync: true,
            port: self.port,
        })
    }
}

#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("could not run {}", program.display())]
    Spawn {
        program: PathBuf,
        source: std::io::Error,
    },
    #[error("could not wait for the command")]
    Wait(#[source] std::io::Error),
}

pub async fn run(
    args: Args,
    config: &Config,
    telemetry: Option<&Telemetry>,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen().map_err(Failure::failed)?;
    let subscriptions = args.file.as_deref().map(apply::load).transpose()?;
    let options = args.options(config).map_err(Failure::failed)?;
    let mut postgres = tokio::select! {
        started = Postgres::start(&options) => started.map_err(Failure::failed)?,
        signal = signals.next() => return Ok(killed_by(signal)),
    };
    let outcome = async {
        if !args.no_migrate {
            prepare(postgres.url(), subscriptions.as_ref()).await?;
        }
        if args.command.is_empty() {
            serve(&mut postgres, config, telemetry, &mut signals).await
        } else {
            wrap(&mut postgres, args.command, &mut signals).await
        }
    }
    .await;
    let stopped = postgres.stop().await.map_err(Failure::failed);
    outcome.and_then(|code| stopped.map(|()| code))
}

/// Makes the schema, and the subscriptions in it.
pub(super) async fn prepare(
    url: &str,
    subscriptions: Option<&SubscriptionFile>,
) -> Result<(), Failure> {
    let database: Database = url.parse().map_err(Failure::failed)?;
    let (mut client, connection) = database.connect().await.map_err(Failure::failed)?;
    let preparation = async {
        let migrated = store::migrate::migrate(&mut client).await;
        migrated.map_err(Failure::failed)?;
        if let Some(subscriptions) = subscriptions {
            apply::apply_loaded(&mut client, subscriptions).await?;
        }
        drop(client);
        Ok(())
    };
    let (prepared, closed) = tokio::join!(preparation, connection);
    prepared.and_then(|()| closed.map_err(Failure::failed))
}

/// Serves until a signal, or until the server fails.
async fn serve(
    postgres: &mut Postgres,
    config: &Config,
    telemetry: Option<&Telemetry>,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    output::line(format!("PostgreSQL    {}", postgres.binaries().version))?;
    output::line(format!("data          {}", postgres.home().display()))?;
    if let Some(url) = postgres.tcp_url() {
        output::line(format!("over TCP      {url}"))?;
    }
    let database = postgres.url().parse().map_err(Failure::failed)?;
    let mut config = config.clone();
    // On one machine the destinations are on it too.
    config.worker.allow_private_targets = PrivateTargets::All;
    config.http.allow_unauthenticated = true;
    let serving = Serving::start(&config, database, telemetry).await?;
    output::line(format!("worker        http://{}", serving.address))?;
    if config.dashboard.mode != DashboardMode::Off {
        output::line(format!("dashboard     http://{}/", serving.address))?;
    }
    output::line("\nFor the commands in another shell:")?;
    output::line(format!("export DATABASE_URL='{}'", postgres.url()))?;
    tokio::select! {
        _ = signals.next() => serving.stop().await,
        error = postgres.exited() => Err(Failure::failed(error)),
    }
}

/// Runs `command` on the private server and ends as it ends.
async fn wrap(
    postgres: &mut Postgres,
    command: Vec<OsString>,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    let mut words = command.into_iter();
    let program = words.next().unwrap_or_default();
    let mut child = Command::new(&program);
    child.args(words);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            child.env_remove(name);
        }
    }
    child
        .env("DATABASE_URL", postgres.url())
        .env("LANEKEEPER_DATABASE__URL", postgres.url())
        .envs(postgres.environment());
    let mut child = child.spawn().map_err(|source| {
        Failure::failed(CommandError::Spawn {
            program: program.into(),
            source,
        })
    })?;

    let mut lost_server = None;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.map_err(CommandError::Wait).map_err(Failure::failed)?,
            signal = signals.next() => forward(signal, child.id()),
            // The command learns it from its connections, and how it ends is its own business.
            error = postgres.exited(), if lost_server.is_none() => lost_server = Some(error),
        }
    };
    match lost_server {
        Some(error) => Err(Failure::failed(error)),
        None => Ok(exit_code(status)),
    }
}

fn forward(signal: Signal, pid: Option<u32>) {
    // A terminal sends Ctrl-C to the whole foreground group: the command has it already, and
    // many programs take a second one for impatience.
    if signal == Signal::INT && std::io::stdin().is_terminal() {
        return;
    }
    let pid = pid
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It fails only where the command has just ended, which `wait` is about to tell.
        let _ = kill_process(pid, signal);
    }
}

/// As a shell reports it: 128 and the signal's number for a command that was killed.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

fn killed_by(signal: Signal) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX))
}

struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_killed_ends_as_a_shell_reports_it() {
        assert_eq!(exit_code(ExitStatus::from_raw(9)), ExitCode::from(137));
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), ExitCode::from(3));
    }
}
