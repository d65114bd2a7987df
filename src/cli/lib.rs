//! The command line: one file per command, each with its `Args` and its `run`.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 75 try again later. `hook` never
//! exits 2, which agent CLIs take as an order to block what the agent is doing.

pub mod ack;
pub mod apply;
pub mod archive;
pub mod bench;
pub mod breaker;
pub mod cancel;
pub mod completions;
pub mod config;
mod connection;
pub mod dead;
mod delivery;
pub mod demo;
pub mod dev;
pub mod doctor;
pub mod document;
pub mod enqueue;
mod failure;
pub mod health;
pub mod hook;
pub mod init;
pub mod lane;
pub mod link;
mod list;
pub mod listen;
pub mod migrate;
pub mod output;
pub mod projection;
pub mod replay;
pub mod secret;
pub mod session;
mod since;
pub mod spool;
pub mod status;
pub mod subscription;
pub mod tail;
pub mod token;
pub mod top;
pub mod worker;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lanekeeper_config::{Config, ConfigError, Place};
use lanekeeper_telemetry::{Telemetry, log};
use tokio::runtime;

pub use connection::{WayError, connect};
pub use failure::Failure;

use connection::way;
use output::OutputArgs;

/// Delivers the events of AI-agent sessions, durably and in order, from PostgreSQL.
#[derive(Debug, Parser)]
#[command(
    name = "lanekeeper",
    version,
    after_help = "\
Every setting can also be given in the environment, as LANEKEEPER_<SECTION>__<KEY>.

Example:
  DATABASE_URL=postgres://me@db/app lanekeeper apply -f subscriptions.toml"
)]
struct Cli {
    /// Configuration file [default: the first of ./lanekeeper.toml (not for `hook`), lanekeeper/lanekeeper.toml in
    /// $XDG_CONFIG_HOME or ~/.config, /etc/lanekeeper/lanekeeper.toml]
    #[arg(long, global = true, value_name = "FILE", env = "LANEKEEPER_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    _output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // Runs before anything that could fail or take time: see its module.
    Hook(hook::Args),
    // These need no configuration, and work beside a broken one.
    Completions(completions::Args),
    Init(init::Args),
    Man(completions::ManArgs),
    #[command(flatten)]
    Other(OtherCommand),
}

#[derive(Debug, Subcommand)]
enum OtherCommand {
    Ack(ack::Args),
    Apply(apply::Args),
    Archive(archive::Args),
    // By far the largest.
    Bench(Box<bench::Args>),
    Breaker(breaker::Args),
    Cancel(cancel::Args),
    Config(config::Args),
    Dead(dead::Args),
    Demo(demo::Args),
    Dev(dev::Args),
    Doctor(doctor::Args),
    Document(document::Args),
    Enqueue(enqueue::Args),
    Health(health::Args),
    Lane(lane::Args),
    Link(link::Args),
    Listen(listen::Args),
    Migrate(migrate::Args),
    Projection(projection::Args),
    Replay(replay::Args),
    Secret(secret::Args),
    Session(session::Args),
    Spool(spool::Args),
    Status(status::Args),
    Subscription(subscription::Args),
    Tail(tail::Args),
    Token(token::Args),
    Top(top::Args),
    Worker(worker::Args),
}

impl OtherCommand {
    /// Whether it delivers, and is watched while it does; `bench` as any worker, for what that costs.
    fn delivers(&self) -> bool {
        matches!(self, Self::Bench(_) | Self::Dev(_) | Self::Worker(_))
    }

    async fn run(
        self,
        config: &Config,
        telemetry: Option<&Telemetry>,
    ) -> Result<ExitCode, Failure> {
        match self {
            Self::Ack(args) => ack::run(args, config).await,
            Self::Apply(args) => apply::run(args, config).await,
            Self::Archive(args) => archive::run(args, config).await,
            Self::Bench(args) => bench::run(*args, config, telemetry).await,
            Self::Breaker(args) => breaker::run(args, config).await,
            Self::Cancel(args) => cancel::run(args, config).await,
            Self::Config(args) => config::run(args, config).await,
            Self::Dead(args) => dead::run(args, config).await,
            Self::Demo(args) => demo::run(args, config).await,
            Self::Dev(args) => dev::run(args, config, telemetry).await,
            Self::Doctor(args) => doctor::run(args, config).await,
            Self::Document(args) => document::run(args, config).await,
            Self::Enqueue(args) => enqueue::run(args, config).await,
            Self::Health(args) => health::run(args, config).await,
            Self::Lane(args) => lane::run(args, config).await,
            Self::Link(args) => link::run(args, config),
            Self::Listen(args) => listen::run(args, config).await,
            Self::Migrate(args) => migrate::run(args, config).await,
            Self::Projection(args) => projection::run(args, config).await,
            Self::Replay(args) => replay::run(args, config).await,
            Self::Secret(args) => secret::run(args),
            Self::Session(args) => session::run(args, config).await,
            Self::Spool(args) => spool::run(args, config).await,
            Self::Status(args) => status::run(args, config).await,
            Self::Subscription(args) => subscription::run(args, config).await,
            Self::Tail(args) => tail::run(args, config).await,
            Self::Token(args) => token::run(args, config).await,
            Self::Top(args) => top::run(args, config).await,
            Self::Worker(args) => worker::run(args, config, telemetry).await,
        }
    }
}

/// The tree of commands and options, for docs/reference/commands.md.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let is_hook = names_hook(&arguments);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version come this way too. A reader that left has seen enough.
            let _ = answer.print();
            return match answer.exit_code() {
                0 => ExitCode::SUCCESS,
                _ if is_hook => ExitCode::SUCCESS,
                _ => ExitCode::from(Failure::USAGE),
            };
        }
    };
    let named = cli.config.as_deref();
    let ran = match cli.command {
        Command::Hook(hook::Args {
            wiring: Some(command),
            ..
        }) => hook::wiring::run(command),
        Command::Hook(args) => {
            let (config, unusable) = Config::load_for_hook(named);
            return hook::run(&args, &config, unusable);
        }
        Command::Completions(args) => completions::run(&args, command()),
        Command::Init(args) => init::run(&args),
        Command::Man(args) => completions::man(&args, command()),
        Command::Other(command) => run(command, Config::load(named)),
    };
    ran.unwrap_or_else(|failure| {
        output::report(&failure);
        (&failure).into()
    })
}

fn run(command: OtherCommand, config: Result<Config, ConfigError>) -> Result<ExitCode, Failure> {
    let config = config.map_err(Failure::usage)?;
    // Whoever runs a command in somebody else's directory learns that its file counts.
    if let Some(file) = &config.file
        && (file.place == Place::WorkingDirectory || matches!(command, OtherCommand::Config(_)))
    {
        output::note(format!("settings are read from {}", file.path.display()));
    }
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let telemetry = {
        let _entered = runtime.enter();
        let telemetry = command.delivers().then(Telemetry::start).transpose();
        telemetry.map_err(Failure::usage)?
    };
    let bridge = telemetry.as_ref().and_then(Telemetry::log_bridge);
    log::init(&config.log, bridge).map_err(Failure::failed)?;
    let outcome = runtime.block_on(command.run(&config, telemetry.as_ref()));
    if let Some(telemetry) = telemetry {
        telemetry.stop();
    }
    // The command is done: a read of standard input that still waits must not keep the process.
    runtime.shutdown_background();
    outcome
}

/// Whether an agent runs `hook`, found without the parser: its own errors count too. People run `hook install`.
fn names_hook(arguments: &[OsString]) -> bool {
    let mut arguments = arguments.iter().skip(1).map(OsString::as_os_str);
    while let Some(argument) = arguments.next() {
        if argument == "--config" || argument == "--output" {
            arguments.next();
        } else if !argument.as_encoded_bytes().starts_with(b"-") {
            let wires = ["install", "remove"].map(OsStr::new);
            return argument == OsStr::new("hook")
                && !arguments.next().is_some_and(|next| wires.contains(&next));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_hook(arguments: &[&str]) -> bool {
        let program = std::iter::once("lanekeeper").chain(arguments.iter().copied());
        names_hook(&program.map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        let mut unseen: Vec<clap::Command> = command().get_subcommands().cloned().collect();
        while let Some(command) = unseen.pop() {
            let below: Vec<_> = command.get_subcommands().cloned().collect();
            if below.is_empty() {
                let help = command
                    .get_after_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(help.contains("Example"), "{} has none", command.get_name());
            }
            unseen.extend(below);
        }
    }

    #[test]
    fn the_output_form_may_stand_before_and_after_the_command() {
        for line in [
            ["lanekeeper", "--output", "json", "config"],
            ["lanekeeper", "config", "--output", "json"],
        ] {
            let Command::Other(OtherCommand::Config(args)) =
                Cli::try_parse_from(line).unwrap().command
            else {
                panic!("config was asked for");
            };
            assert_eq!(args.output.output, output::Output::Json);
        }
    }

    #[test]
    fn hook_is_recognised_even_where_its_arguments_are_wrong() {
        assert!(is_hook(&["hook", "--no-such-flag"]));
        assert!(is_hook(&["--config", "x.toml", "--output=json", "hook"]));
        assert!(!is_hook(&["hook", "install", "--cli", "none"]));
        assert!(!is_hook(&["apply", "-f", "hook"]));
        assert!(!is_hook(&["--config", "hook", "apply"]));
        assert!(!is_hook(&[]));
    }
}
