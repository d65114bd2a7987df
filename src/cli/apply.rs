//! `lanekeeper apply`: changes the subscriptions to what a file says, prints the changes, and warns if running workers
//! refuse one.

mod projection;
mod refusal;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_core::subscription::{Change, ChangeKind, Target};
use lanekeeper_postgres::subscription::{self, Applied, ApplyError, Backfill};
use lanekeeper_subscription::SubscriptionFile;
use serde_json::Value;
use tokio_postgres::Client;

use super::Failure;
use super::delivery;
use super::output::{self, Output, OutputArgs};

/// Sessions that get a lane in one transaction, which holds an append lock on each.
const SESSIONS_AT_ONCE: i32 = 200;
/// Characters of a value that are printed for people.
const LONGEST_SHOWN: usize = 500;

/// Bring the subscriptions to what a file says; safe to run again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Workers that run take it up within a second: what they refuse, as for want of a secret, is said on
standard error.

The file:
  [subscription.audit]
  stream     = \"hooks\"
  events     = [\"session_start\", \"agent_stop\"]
  adapter    = \"webhook\"
  url        = \"https://example.com/hooks\"
  secret_env = \"AUDIT_SECRET\"
  retry      = { schedule = [\"1s\", \"5s\", \"60s\"], max_attempts = 10, on_exhausted = \"park\" }
  timeout    = \"15s\"

Examples:
  lanekeeper apply -f subscriptions.toml --dry-run
  lanekeeper apply -f subscriptions.toml --prune
  generate-subscriptions | lanekeeper apply -f -")]
pub struct Args {
    /// The subscription file; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Remove subscriptions that the file does not name; what they delivered stays on record
    #[arg(long)]
    prune: bool,
    /// Print the difference and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let file = load(&args.file)?;
    let mut client = super::connect(config).await?;
    let applied = bring(&mut client, &file, &args).await?;
    if !args.dry_run {
        refusal::warn(&client, &applied.changes, delivery::frozen_after(config)).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The file as it was read and checked, before anything is changed.
pub(super) fn load(path: &Path) -> Result<SubscriptionFile, Failure> {
    let (text, origin) = read(path)?;
    SubscriptionFile::parse(&text, &origin).map_err(Failure::usage)
}

/// Applies a loaded file to a database that has the schema, and prints the difference.
pub(super) async fn apply_loaded(
    client: &mut Client,
    file: &SubscriptionFile,
) -> Result<(), Failure> {
    let args = Args {
        file: PathBuf::new(),
        prune: false,
        dry_run: false,
        output: OutputArgs {
            output: Output::Text,
        },
    };
    bring(client, file, &args).await.map(drop)
}

async fn bring(
    client: &mut Client,
    file: &SubscriptionFile,
    args: &Args,
) -> Result<Applied, Failure> {
    projection::check(client, file).await?;
    let applied = subscription::apply(client, args.dry_run, |current| {
        file.plan(current, args.prune)
    })
    .await?;
    match args.output.output {
        Output::Text => applied
            .changes
            .iter()
            .flat_map(lines)
            .try_for_each(output::line)?,
        Output::Json => applied.changes.iter().try_for_each(output::json_line)?,
    }
    if !applied.unlisted.is_empty() {
        output::note(format!(
            "not in the file and left alone: {} (--prune removes)",
            applied.unlisted.join(", ")
        ));
    }
    if args.dry_run {
        output::note("dry run: nothing was changed");
    } else if applied
        .changes
        .iter()
        .all(|change| change.change == ChangeKind::Unchanged)
    {
        output::note("nothing to change");
    }
    judged(file, &applied.changes, args.dry_run);
    for backfill in &applied.backfills {
        add_lanes(client, backfill).await?;
    }
    Ok(applied)
}

/// Says whose payloads are judged from now on: producers are refused what they were not before.
fn judged(file: &SubscriptionFile, changes: &[Change], dry_run: bool) {
    for section in &file.streams {
        let schemas = section.schemas.iter().flatten();
        let types: Vec<&str> = schemas
            .map(|(event_type, _)| event_type.as_str())
            .filter(|event_type| {
                let field = format!("schema.{event_type}");
                changes.iter().any(|change| {
                    let is_new = change.change == ChangeKind::Created
                        || change.fields.iter().any(|changed| changed.field == field);
                    change.target == Target::Stream && change.name == section.name && is_new
                })
            })
            .collect();
        if !types.is_empty() {
            let when = if dry_run { "would be" } else { "are" };
            output::note(format!(
                "stream {}: what is appended from now on {when} checked against the schemas of {}; what is in the log stays",
                section.name,
                types.join(", ")
            ));
        }
    }
}

fn read(path: &Path) -> Result<(String, String), Failure> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin()
            .read_to_string(&mut text)
            .map_err(Failure::failed)?;
        return Ok((text, "standard input".to_owned()));
    }
    let origin = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((text, origin)),
        Err(error) => Err(Failure::usage(format!("{origin} cannot be read: {error}"))),
    }
}

/// Gives the sessions that existed before the subscription their lanes.
async fn add_lanes(client: &Client, backfill: &Backfill) -> Result<(), Failure> {
    let Backfill {
        subscription_id,
        name,
    } = backfill;
    output::note(format!(
        "{name}: adding lanes to the sessions that exist already"
    ));
    let (mut after, mut batches) = (0, 0_u64);
    while let Some(last) =
        subscription::add_lanes(client, *subscription_id, after, SESSIONS_AT_ONCE)
            .await
            .map_err(|error| {
                Failure::failed(error).advise("apply the file again: it goes on from there")
            })?
    {
        after = last;
        batches += 1;
        if batches.is_multiple_of(50) {
            output::note(format!(
                "{name}: about {} sessions done",
                batches * SESSIONS_AT_ONCE as u64
            ));
        }
    }
    output::note(format!("{name}: done"));
    Ok(())
}

/// A change for people: `+ audit (webhook https://…)`, `~ audit retry.max_attempts 0 → 5`.
fn lines(change: &Change) -> Vec<String> {
    let name = match change.target {
        Target::Stream => format!("stream {}", change.name),
        Target::Subscription => change.name.clone(),
        Target::Source => format!("source {}", change.name),
    };
    let destination = change
        .destination
        .as_ref()
        .map(|place| format!(" ({place})"));
    let destination = destination.unwrap_or_default();
    let mut lines = match change.change {
        ChangeKind::Unchanged => return Vec::new(),
        ChangeKind::Created => vec![format!("+ {name}{destination}")],
        ChangeKind::Revived => vec![format!(
            "+ {name}{destination}, going on where it was removed"
        )],
        ChangeKind::Removed => vec![format!("- {name}")],
        ChangeKind::Changed => Vec::new(),
    };
    lines.extend(change.fields.iter().map(|field| {
        format!(
            "~ {name} {} {} → {}",
            field.field,
            brief(shown(&field.from)),
            brief(shown(&field.to))
        )
    }));
    lines
}

/// A schema may be long: `--output json` has it whole.
fn brief(shown: String) -> String {
    match shown.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "(none)".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(entries) => {
            format!(
                "[{}]",
                entries.iter().map(shown).collect::<Vec<_>>().join(", ")
            )
        }
        other => other.to_string(),
    }
}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::File(error) => Self::usage(error),
            ApplyError::Busy(_) => Self::later(error).advise("try again"),
            ApplyError::Store(error) => Self::failed(error),
        }
    }
}
