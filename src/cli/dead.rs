//! `lanekeeper dead`: exhausted events that wait for an operator.

mod requeue;

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::inspect::{self, DeadLetter, DeadLetterFilter, Letter};
use lanekeeper_postgres::operate;
use serde::Serialize;
use tokio_postgres::{Client, Transaction};

use super::Failure;
use super::lane::ReasonArgs;
use super::list::LimitArgs;
use super::output::{self, Output, OutputArgs, or_dash};

/// Look at dead letters, deliver them again, and drop them
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Show(ShowArgs),
    Requeue(requeue::RequeueArgs),
    Drop(DropArgs),
}

/// List dead letters, the newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper dead list --subscription audit
  lanekeeper dead list --all --output json | jq -r .error | sort | uniq -c")]
struct ListArgs {
    #[command(flatten)]
    of: OfArgs,
    /// Those that were dealt with too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Whose dead letters.
#[derive(Debug, clap::Args)]
struct OfArgs {
    /// Only dead letters of this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Only those of a session of this stream
    #[arg(long, value_name = "STREAM", requires = "session")]
    stream: Option<String>,
    /// The session
    #[arg(long, value_name = "SESSION", requires = "stream")]
    session: Option<String>,
}

impl OfArgs {
    async fn filter(&self, reading: &Transaction<'_>) -> Result<DeadLetterFilter, Failure> {
        let mut filter = DeadLetterFilter::default();
        if let Some(name) = &self.subscription {
            filter.subscription_id = Some(inspect::find_subscription(reading, name).await?);
        }
        if let (Some(stream), Some(session)) = (&self.stream, &self.session) {
            filter.session_id = Some(inspect::find_session(reading, stream, session).await?);
        }
        Ok(filter)
    }
}

/// Show dead letters with their payloads and headers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper dead show 17
  lanekeeper dead show 17 --output json | jq .payload")]
struct ShowArgs {
    #[command(flatten)]
    letters: Ids,
    #[command(flatten)]
    output: OutputArgs,
}

/// Give dead letters up; prints what would be dropped unless --yes is given
#[derive(Debug, clap::Args)]
#[command(after_help = "\
They stay on record as dropped, with their payloads.

Examples:
  lanekeeper dead drop 17 18
  lanekeeper dead drop 17 18 --yes --reason 'test traffic'")]
struct DropArgs {
    #[command(flatten)]
    letters: Ids,
    /// Do it
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    reason: ReasonArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
struct Ids {
    /// Their ids, as `dead list` shows them
    #[arg(value_name = "ID", required = true, num_args = 1..=1000, value_parser = id())]
    ids: Vec<i64>,
}

/// How an id is read.
fn id() -> clap::builder::RangedI64ValueParser<i64> {
    clap::value_parser!(i64).range(1..)
}

/// All of them, or a failure that names those that there are not.
async fn find(ids: &[i64], client: &mut Client) -> Result<Vec<Letter>, Failure> {
    let reading = inspect::begin(client).await?;
    let letters = inspect::letters(&reading, ids).await?;
    let is_known = |id: &i64| letters.iter().any(|letter| letter.about.dead_id == *id);
    let unknown: Vec<String> = (ids.iter())
        .filter(|id| !is_known(id))
        .map(i64::to_string)
        .collect();
    if unknown.is_empty() {
        return Ok(letters);
    }
    let unknown = unknown.join(", ");
    Err(Failure::failed(format!(
        "there is no dead letter {unknown}: nothing was changed"
    ))
    .advise("list them with `lanekeeper dead list --all`"))
}

#[derive(Serialize)]
struct Dropped {
    dead_id: i64,
    /// False where it was dealt with already.
    dropped: bool,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    match args.command {
        Command::List(args) => list(args, config).await,
        Command::Show(args) => show(args, config).await,
        Command::Requeue(args) => requeue::run(args, config).await,
        Command::Drop(args) => drop_letters(args, config).await,
    }
}

async fn list(args: ListArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let reading = inspect::begin(&mut client).await?;
    let filter = DeadLetterFilter {
        resolved: args.all,
        ..args.of.filter(&reading).await?
    };
    let mut letters = inspect::dead_letters(&reading, filter, args.limit.to_ask_for()).await?;
    drop(reading);
    args.limit.cut(&mut letters);
    print(letters.iter(), args.output.output)?;
    if letters.is_empty() {
        output::note("there is no dead letter");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(args: ShowArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let letters = find(&args.letters.ids, &mut client).await?;
    match args.output.output {
        Output::Json => letters.iter().try_for_each(output::json_line)?,
        Output::Text => letters.iter().try_for_each(print_in_full)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn drop_letters(args: DropArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let letters = find(&args.letters.ids, &mut client).await?;
    if !args.yes {
        let waiting = letters.iter().map(|letter| &letter.about);
        print(
            waiting.filter(|letter| letter.resolution.is_none()),
            args.output.output,
        )?;
        output::note("dry run: these would be dropped; nothing was changed. --yes does it");
        return Ok(ExitCode::SUCCESS);
    }
    for letter in &letters {
        let dead_id = letter.about.dead_id;
        let reason = args.reason.reason.as_deref();
        let dropped = operate::drop_dead_letter(&client, dead_id, reason).await?;
        match args.output.output {
            Output::Json => output::json_line(&Dropped { dead_id, dropped })?,
            Output::Text if dropped => output::line(format!("dead letter {dead_id} is dropped"))?,
            Output::Text => output::line(format!("dead letter {dead_id} was dealt with already"))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print<'a>(letters: impl Iterator<Item = &'a DeadLetter>, form: Output) -> Result<(), Failure> {
    if form == Output::Json {
        return letters.into_iter().try_for_each(output::json_line);
    }
    let rows: Vec<_> = letters.map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    output::table(
        [
            "ID",
            "DIED",
            "STREAM",
            "SESSION",
            "SEQ",
            "TYPE",
            "SUBSCRIPTION",
            "ATTEMPTS",
            "RESOLUTION",
            "ERROR",
        ],
        &rows,
    )
}

fn row(letter: &DeadLetter) -> [String; 10] {
    [
        letter.dead_id.to_string(),
        output::time(letter.died_at),
        letter.stream.clone(),
        output::short(&letter.session, 40),
        letter.seq.to_string(),
        output::short(&letter.event_type, 40),
        letter.subscription.clone(),
        letter.attempts.to_string(),
        or_dash(match letter.requeued_at {
            Some(_) => Some("requeued, waits".to_owned()),
            None => letter.resolution.clone(),
        }),
        output::short(&letter.error, 60),
    ]
}

fn print_in_full(letter: &Letter) -> Result<(), Failure> {
    let about = &letter.about;
    let resolution = match (&about.resolution, about.resolved_at, about.requeued_at) {
        (Some(resolution), Some(at), _) => format!("{resolution} at {}", output::time(at)),
        (_, _, Some(at)) => format!("requeued at {}, not delivered yet", output::time(at)),
        _ => "waits for an operator".to_owned(),
    };
    let headers = letter.headers.as_ref().map(|json| json.get().to_owned());
    let fields = [
        ("dead letter", about.dead_id.to_string()),
        ("stream", about.stream.clone()),
        ("session", about.session.clone()),
        ("seq", about.seq.to_string()),
        ("subscription", about.subscription.clone()),
        ("message id", about.message_id.to_string()),
        ("type", about.event_type.clone()),
        ("created at", output::time(about.created_at)),
        ("died at", output::time(about.died_at)),
        ("attempts", about.attempts.to_string()),
        ("crashes", about.crashes.to_string()),
        ("resolution", resolution),
        ("error", about.error.clone()),
        ("headers", or_dash(headers)),
        ("payload", letter.payload.get().to_owned()),
    ];
    for (name, value) in fields {
        output::line(format!("{name:12} {}", output::plain(&value)))?;
    }
    output::line("")
}
