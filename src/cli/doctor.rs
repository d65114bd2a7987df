//! `lanekeeper doctor`: checks everything that delivery depends on, and says what to do.
//!
//! It changes nothing. Pure functions judge the facts that it reads: `server`, `capacity`, `delivery`,
//! `deliveries`, `lanes`, `agents`, `redis` and `spool`, a topic each. Only the workers' reports tell whether a
//! subscription is delivered: this process may have other secrets and reach other addresses.

mod agents;
mod capacity;
mod check;
mod deliveries;
mod delivery;
mod lanes;
mod redis;
mod server;
mod spool;

use std::env;
use std::iter;
use std::process::ExitCode;

use jiff::Timestamp;
use lanekeeper_config::Config;
use lanekeeper_core::error::chain;
use lanekeeper_limit as limit;
use lanekeeper_postgres::connect::{self, ConnectError};
use lanekeeper_postgres::inspect::{LANES_LOOKED_AT, LaneFilter};
use lanekeeper_postgres::lane_connection::{self, OpenError};
use lanekeeper_postgres::migrate::difference::{Difference, State};
use lanekeeper_postgres::migrate::{self, MigrateError};
use lanekeeper_postgres::{archive, diagnose, inspect};
use lanekeeper_streams::hooks::origin::Origin;
use lanekeeper_streams::hooks::shape::AgentCli;
use lanekeeper_streams::hooks::{event_type, transcript};
use tokio_postgres::Client;

use super::Failure;
use super::output::{self, Output, OutputArgs};
use check::{Check, Status};

/// Workers and subscriptions that are looked at.
const LIMIT: i64 = 1_000;
/// Backends with locks that are not theirs to have: enough to see who it is.
const FOREIGN_LOCKS: i64 = 5;

/// Check the database, the workers and the subscriptions, and say what to do
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line is a check: ok, warn or fail. The exit code is 1 where one failed. Whether subscriptions
are delivered is what the running workers report, with the reason where they do not.

Examples:
  lanekeeper doctor
  lanekeeper doctor --replicas 8 --output json | jq 'select(.status != \"ok\")'")]
pub struct Args {
    /// Worker replicas that limits are checked for [default: those that run, at least 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=100_000))]
    replicas: Option<i64>,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let mut checks = Vec::new();
    let mut limited = 0;
    match connect::open(&config.database).await {
        Ok(mut client) => limited = examine(&mut client, &args, config, &mut checks).await?,
        Err(error) => checks.push(unreachable(error)),
    }
    let inspection = match config.redis.settings() {
        Some(settings) => Some(limit::inspect(&settings).await),
        None => None,
    };
    checks.extend(redis::judge(inspection, limited));
    checks.extend(spool::judge(spool::look(&config.spool)));
    let codex_home = transcript::codex_home(env::var_os("CODEX_HOME"), env::var_os("HOME"));
    checks.extend(codex_home.and_then(|home| agents::codex_trust(&home)));
    match args.output.output {
        Output::Json => checks.iter().try_for_each(output::json_line)?,
        Output::Text => checks.iter().try_for_each(Check::print)?,
    }
    let failed = checks.iter().any(|check| check.status == Status::Fail);
    Ok(ExitCode::from(u8::from(failed)))
}

/// Returns how many subscriptions have a limit.
async fn examine(
    client: &mut Client,
    args: &Args,
    config: &Config,
    checks: &mut Vec<Check>,
) -> Result<usize, Failure> {
    let mut limited = 0;
    let server = diagnose::server(client).await?;
    checks.extend(server::judge(&server));
    checks.push(direct(config).await?);

    let schema = connect::check_schema(client, &config.database).await;
    let schema = match schema {
        Ok(()) => judge_schema(migrate::check(client).await),
        Err(error) => unusable("schema", &error),
    };
    // The other checks use it.
    let migrated = schema.status != Status::Fail;
    checks.push(schema);
    let mut replicas = args.replicas.unwrap_or(1);
    if migrated {
        checks.push(delivery::partitions(diagnose::has_today(client).await?));
        if config.retention.archive_dir.is_some() {
            let days = i32::try_from(config.retention.days).unwrap_or(i32::MAX);
            checks.push(delivery::archive(archive::waiting(client, days).await?));
        }
        let reading = inspect::begin(client).await?;
        let workers = inspect::workers(&reading, LIMIT).await?;
        let subscriptions = inspect::subscriptions(&reading, LIMIT).await?;
        let foreign_locks = inspect::foreign_locks(&reading, FOREIGN_LOCKS).await?;
        let deliveries =
            inspect::deliveries(&reading, super::delivery::frozen_after(config)).await?;
        let status = inspect::status(&reading, LIMIT, LANES_LOOKED_AT, iter::empty()).await?;
        let held_up = LaneFilter {
            held_up: true,
            ..LaneFilter::default()
        };
        let mut found = inspect::active_lanes(&reading, held_up, LIMIT).await?;
        found.extend(inspect::active_lanes(&reading, LaneFilter::default(), LIMIT).await?);
        let mut ids: Vec<i64> = found.into_iter().map(|(lane_id, _)| lane_id).collect();
        ids.sort_unstable();
        ids.dedup();
        let active = inspect::lanes(&reading, &ids).await?;
        let known: Vec<&str> = event_type::known().collect();
        let unknown = diagnose::unknown_hooks(&reading, &known, agents::NAMED).await?;
        let clis = AgentCli::ALL.map(AgentCli::agent);
        let called = diagnose::hook_last_calls(&reading, &clis, &Origin::now().host).await?;
        drop(reading);
        checks.push(agents::unknown_events(&unknown));
        checks.extend(agents::wired(&called, Timestamp::now()));
        checks.push(delivery::workers(&workers, &config.worker));
        checks.push(delivery::foreign_locks(&foreign_locks));
        checks.extend(delivery::subscriptions(&subscriptions));
        checks.extend(deliveries::judge_all(&subscriptions, &deliveries));
        checks.extend(lanes::failing(&active));
        checks.extend(lanes::parked(&status));
        checks.extend(lanes::dead_letters(&status));
        limited = delivery::limited(&subscriptions);
        if args.replicas.is_none() {
            replicas = i64::try_from(workers.len()).unwrap_or(i64::MAX).max(1);
        }
    }
    checks.push(capacity::locks(&server, &config.worker, replicas));
    checks.push(capacity::connections(&server, config, replicas));
    Ok(limited)
}

/// Of a schema that this release may use.
fn judge_schema(compared: Result<Vec<Difference>, MigrateError>) -> Check {
    const NAME: &str = "schema";
    match compared {
        Ok(differences) if differences.is_empty() => {
            Check::ok(NAME, "the schema is the one of this release")
        }
        Ok(differences) => {
            let named: Vec<String> = differences.iter().map(ToString::to_string).collect();
            let advice = match differences.iter().all(|it| it.state == State::Unknown) {
                true => "move what is not Lanekeeper's to another schema",
                false => "run `lanekeeper migrate` of the release that your workers run",
            };
            match differences.iter().any(|it| it.state == State::Missing) {
                true => Check::fail(NAME, named.join("; "), advice),
                false => Check::warn(NAME, named.join("; "), advice),
            }
        }
        Err(MigrateError::SchemaTooNew { found, known }) => Check::warn(
            NAME,
            format!(
                "the schema has version {found} and this release knows {known}: it may use it, and cannot compare it"
            ),
            "run `lanekeeper doctor` of the release that migrated it",
        ),
        Err(error) => Check::fail(NAME, chain(&error), "see the server's log"),
    }
}

/// Whether a worker's connection reaches the server itself.
async fn direct(config: &Config) -> Result<Check, Failure> {
    const NAME: &str = "direct connection";
    let settings = connect::settings(&config.database)?;
    Ok(match lane_connection::open(&settings, "doctor").await {
        Ok(_) => Check::ok(NAME, "no pooler between this host and the server"),
        Err(OpenError::Pooler) => Check::fail(
            NAME,
            "there is a connection pooler in between",
            "workers hold session locks: give them the server's own address; producers may use the pooler",
        ),
        Err(error) => Check::fail(
            NAME,
            format!("a worker's connection was refused: {}", chain(&error)),
            "see the server's log",
        ),
    })
}

fn unreachable(error: ConnectError) -> Check {
    unusable("server", &error)
}

fn unusable(name: &'static str, error: &ConnectError) -> Check {
    let advice = error.advice().unwrap_or("see the server's log");
    Check::fail(name, chain(error), advice)
}
