//! `lanekeeper demo`: the main job from end to end on one machine, checked.
//!
//! ```text
//! recorded hook calls ─► `lanekeeper hook`, a process each ─► private PostgreSQL ─► two `lanekeeper worker` ─► receiver
//!                                                                  │                                          │ record
//!                                                                  └──────── compared at the end ◄────────────┘
//! ```
//!
//! Every part is a real process of this program, and one worker is killed in the middle. The exit code is 0 if every
//! expected event arrived once and in order. The demo leaves nothing behind. With `--keep`, it runs in the background,
//! shows its output, and stays running.

mod feed;
mod input;
mod keep;
mod programs;
pub mod receiver;
mod report;
mod takeover;
mod verify;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use lanekeeper_adapters::Signer;
use lanekeeper_config::Config;
use lanekeeper_dev::{Data, Options, Postgres};
use lanekeeper_postgres::Database;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use super::output::{self, line};
use feed::Halfway;
use input::Input;
use programs::{Launcher, Program, SECRET_ENV};
use report::Report;
use takeover::Workers;
use verify::Logged;

const SUBSCRIPTION: &str = "demo";
/// At the start, and the one that is started for the one that was killed.
const WORKERS: usize = 2;
const SECRETS: usize = WORKERS + 1;

/// Show the main job from end to end on this machine, and check it
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
It needs the PostgreSQL server programs, installed and not started, and uses Redis where redis-server is on the PATH.
No existing server is touched.

Examples:
  lanekeeper demo
  lanekeeper demo --input recordings/ --fail-every 0
  lanekeeper demo --keep                          leave it running, and say where"
)]
pub struct Args {
    /// A folder with *.jsonl of {"cli", "payload"} [default: calls of 15 sessions that the program brings]
    #[arg(long, value_name = "DIR")]
    input: Option<PathBuf>,
    /// The receiver refuses every N-th request, to see it come again; 0 never
    #[arg(long, value_name = "N", default_value_t = 25)]
    fail_every: u64,
    /// Leave everything running in the background
    #[arg(long)]
    keep: bool,
    /// The directory with `postgres` and `initdb` [default: the newest that is installed]
    #[arg(long, value_name = "DIR")]
    postgres_bin: Option<PathBuf>,
    /// Write what is told to this folder, and stay until a signal: the background part of --keep
    #[arg(long, value_name = "DIR", hide = true, conflicts_with = "keep")]
    kept_in: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    #[command(hide = true)]
    Receiver(receiver::Args),
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    if let Some(Part::Receiver(args)) = args.part {
        return receiver::run(args).await;
    }
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(Failure::failed)?;
    let is_kept = args.kept_in.is_some();
    let told = async {
        loop {
            tokio::select! {
                _ = interrupt.recv() => return 130,
                _ = terminate.recv() => return 143,
                // The terminal that a kept demo was started from may close.
                _ = hangup.recv() => if !is_kept { return 129 },
            }
        }
    };
    tokio::pin!(told);
    let dir = match &args.kept_in {
        Some(dir) => dir.clone(),
        None => make_dir()?,
    };
    if args.keep {
        return keep::start(&args, &dir, told).await;
    }
    let mut stage = Stage::new(dir);
    let shown = tokio::select! {
        shown = stage.show(&args, config) => shown,
        code = &mut told => {
            stage.clear(true).await?;
            return Ok(ExitCode::from(code));
        }
    };
    let holds = matches!(shown, Ok(true));
    if is_kept && shown.is_ok() {
        stage.tell_addresses()?;
        keep::finish(&stage.dir, holds)?;
        told.await;
    }
    stage.clear(holds).await?;
    shown.map(|_| match holds {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// A private folder for logs, record and spool.
fn make_dir() -> Result<PathBuf, Failure> {
    let name = format!("lanekeeper-demo-{}", uuid::Uuid::new_v4().simple());
    let dir = std::env::temp_dir().join(&name[..24]);
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .map_err(|error| Failure::failed(format!("{}: {error}", dir.display())))?;
    Ok(dir)
}

/// What was started so far.
struct Stage {
    dir: PathBuf,
    postgres: Option<Postgres>,
    redis: Option<Program>,
    receiver: Option<(Program, String)>,
    workers: Workers,
}

impl Stage {
    fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            postgres: None,
            redis: None,
            receiver: None,
            workers: Workers::default(),
        }
    }

    /// Returns whether everything was as promised.
    async fn show(&mut self, args: &Args, config: &Config) -> Result<bool, Failure> {
        let input = Input::read(args.input.as_deref(), &self.dir)?;
        line(
            "hook calls of agent CLIs -> PostgreSQL -> two workers -> a webhook receiver, all on this machine\n",
        )?;
        let options = Options {
            data: Data::Ephemeral,
            postgres_bin: args
                .postgres_bin
                .clone()
                .or_else(|| config.dev.postgres_bin.clone()),
            fsync: true,
            port: None,
        };
        let postgres = Postgres::start(&options).await.map_err(Failure::failed)?;
        let version = &postgres.binaries().version;
        line(format!(
            "PostgreSQL  {version}, private, in a temporary folder"
        ))?;
        let url = postgres.url().to_owned();
        self.postgres = Some(postgres);

        let mut launcher = Launcher::new(&self.dir, &url)?;
        if let Some((redis, url)) = launcher.redis().await? {
            line(
                "Redis       private: the workers share the receiver's limit of 500 requests per second",
            )?;
            launcher.set_redis(url);
            self.redis = Some(redis);
        }
        for _ in 0..SECRETS {
            let secret = Signer::new_secret().map_err(Failure::failed)?;
            self.workers.secrets.push(secret);
        }
        let record = self.dir.join("record.jsonl");
        let started = launcher.receiver(&record, args.fail_every, &self.workers.secrets);
        let (receiver, receiver_url) = started.await?;
        line(match args.fail_every {
            0 => format!("receiver    {receiver_url}, verifies signatures"),
            every => format!(
                "receiver    {receiver_url}, verifies signatures and refuses 1 request in {every} with 503"
            ),
        })?;
        let subscriptions = subscriptions(&receiver_url, self.redis.is_some());
        let (receiver, _) = self.receiver.insert((receiver, receiver_url));
        super::dev::prepare(&url, None).await?;
        apply(&launcher, &subscriptions).await?;
        for worker in 0..WORKERS {
            self.workers.add(&launcher).await?;
            line(format!(
                "{}    http://{}",
                Workers::name(worker),
                self.workers.addresses[worker]
            ))?;
        }
        line(format!(
            "\n{} hook calls of {} sessions are made now; a worker is killed at half of them ...",
            input.all_calls(),
            input.sessions.len()
        ))?;

        let database: Database = url.parse().map_err(Failure::failed)?;
        let (client, connection) = database.connect().await.map_err(Failure::failed)?;
        let connection = tokio::spawn(connection);
        let halfway = Halfway::default();
        let (delivered, killed) = {
            let deliver = async {
                let fed = feed::run(&launcher, &input, &halfway).await?;
                // Calls that found the database too slow for an agent's turn wait on disk.
                launcher.run(&["spool"], "spool").await?;
                let logged = Logged::read_all(&client, SUBSCRIPTION, input.recorded()).await?;
                let arrivals = verify::wait(&record, &logged.due).await?;
                Ok::<_, Failure>((fed, logged, arrivals))
            };
            let workers = &mut self.workers;
            let kill = takeover::kill_halfway(&halfway, &launcher, workers, receiver, &record);
            tokio::pin!(deliver, kill);
            let mut killed = None;
            let delivered = loop {
                tokio::select! {
                    ended = &mut kill, if killed.is_none() => killed = Some(ended?),
                    delivered = &mut deliver => break delivered?,
                }
            };
            // The takeover may be faster than the start of the next worker.
            if killed.is_none() && delivered.2.iter().any(|arrival| arrival.withheld) {
                killed = Some(kill.await?);
            }
            (delivered, killed)
        };
        let (fed, logged, arrivals) = delivered;
        drop(client);
        connection
            .await
            .map_err(Failure::failed)?
            .map_err(Failure::failed)?;
        let report = Report {
            input: &input,
            fed: &fed,
            logged: &logged,
            arrivals: &arrivals,
            killed: killed.as_ref(),
        };
        report.print()
    }

    fn tell_addresses(&self) -> Result<(), Failure> {
        line("")?;
        if let Some((receiver, url)) = &self.receiver {
            let pid = receiver.pid().unwrap_or_default();
            line(format!("receiver    {url}/summary, process {pid}"))?;
        }
        for (worker, program) in self.workers.running.iter().enumerate() {
            if let Some(pid) = program.as_ref().and_then(Program::pid) {
                let (name, address) = (Workers::name(worker), &self.workers.addresses[worker]);
                line(format!("{name}    http://{address}, process {pid}"))?;
            }
        }
        line(format!("logs        {}", self.dir.display()))?;
        if let Some(postgres) = &self.postgres {
            line(format!("export DATABASE_URL='{}'", postgres.url()))?;
        }
        Ok(())
    }

    /// Ends everything that was started, the newest first; the folder stays where it tells why something failed.
    async fn clear(self, remove: bool) -> Result<(), Failure> {
        let was_started = self.postgres.is_some();
        for worker in self.workers.running.into_iter().flatten() {
            worker.stop().await?;
        }
        if let Some((receiver, _)) = self.receiver {
            receiver.stop().await?;
        }
        if let Some(redis) = self.redis {
            redis.stop().await?;
        }
        if let Some(postgres) = self.postgres {
            postgres.stop().await.map_err(Failure::failed)?;
        }
        if remove || !was_started {
            return std::fs::remove_dir_all(&self.dir).map_err(Failure::failed);
        }
        output::note(format!(
            "logs and the receiver's record are in {}",
            self.dir.display()
        ));
        Ok(())
    }
}

/// The subscription file.
fn subscriptions(receiver: &str, limited: bool) -> String {
    let limit = match limited {
        true => "limit = { rate = \"500/s\", burst = 50 }\n",
        false => "",
    };
    format!(
        "[subscription.{SUBSCRIPTION}]\nstream = \"hooks\"\nadapter = \"webhook\"\n\
         url = \"{receiver}/hooks\"\nsecret_env = \"{SECRET_ENV}\"\n{limit}"
    )
}

/// By the command, which prints to its log.
async fn apply(launcher: &Launcher, subscriptions: &str) -> Result<(), Failure> {
    let file = launcher.dir.join("subscriptions.toml");
    std::fs::write(&file, subscriptions).map_err(Failure::failed)?;
    let file = file.display().to_string();
    launcher.run(&["apply", "-f", &file], "apply").await
}
