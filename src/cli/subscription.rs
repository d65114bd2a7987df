//! `lanekeeper subscription`: lists subscriptions with their destinations, and pauses or resumes them.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_postgres::inspect::{self, Delivery, SubscriptionSummary};
use lanekeeper_postgres::operate;
use serde::Serialize;

use super::Failure;
use super::delivery;
use super::list::LimitArgs;
use super::output::{self, Output, OutputArgs};

/// List subscriptions, and pause or resume one
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
}

/// List the subscriptions; `apply` adds, changes and removes them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
STATE is what the running workers report, REASON why one of them does not deliver it, or why it is
paused. With --output json each worker's report is listed.

Example:
  lanekeeper subscription list --output json")]
struct ListArgs {
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Stop delivering a subscription; its events wait
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Deliveries under way are finished. Nothing is lost, and order is kept.

Example:
  lanekeeper subscription pause audit --reason 'endpoint moves tonight'")]
struct PauseArgs {
    /// The subscription
    name: String,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "paused by an operator")]
    reason: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// Go on delivering a subscription
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper subscription resume audit")]
struct ResumeArgs {
    /// The subscription
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// A subscription, and what the workers say of it.
#[derive(Serialize)]
struct Reported {
    #[serde(flatten)]
    summary: SubscriptionSummary,
    delivery: Delivery,
}

#[derive(Serialize)]
struct Changed<'a> {
    subscription: &'a str,
    /// running | paused
    state: &'a str,
    /// False where it was so already.
    changed: bool,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    match args.command {
        Command::List(args) => list(args, config).await,
        Command::Pause(args) => {
            change(&args.name, Some(&args.reason), args.output.output, config).await
        }
        Command::Resume(args) => change(&args.name, None, args.output.output, config).await,
    }
}

async fn list(args: ListArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let reading = inspect::begin(&mut client).await?;
    let subscriptions = inspect::subscriptions(&reading, args.limit.to_ask_for()).await?;
    let deliveries = inspect::deliveries(&reading, delivery::frozen_after(config)).await?;
    drop(reading);
    let report = |summary: SubscriptionSummary| Reported {
        delivery: deliveries.of(summary.subscription_id, summary.paused_at.is_some()),
        summary,
    };
    let mut subscriptions: Vec<Reported> = subscriptions.into_iter().map(report).collect();
    args.limit.cut(&mut subscriptions);
    match args.output.output {
        Output::Json => subscriptions.iter().try_for_each(output::json_line)?,
        Output::Text if subscriptions.is_empty() => {
            output::note("there is no subscription: add one with `lanekeeper apply`");
        }
        Output::Text => output::table(
            [
                "SUBSCRIPTION",
                "STREAM",
                "ADAPTER",
                "EVENTS",
                "STATE",
                "REASON",
            ],
            &subscriptions.iter().map(row).collect::<Vec<_>>(),
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

fn row(one: &Reported) -> [String; 6] {
    let subscription = &one.summary;
    let events = match &subscription.events {
        Some(events) => output::short(&events.join(","), 50),
        None => "all".to_owned(),
    };
    let state = match subscription.paused_at {
        Some(at) => format!("paused at {}", output::time(at)),
        None => delivery::cell(&one.delivery, None),
    };
    let reason = subscription.pause_reason.clone();
    let reason = reason.or_else(|| one.delivery.reason.clone());
    [
        subscription.subscription.clone(),
        subscription.stream.clone(),
        subscription.adapter.clone(),
        events,
        state,
        output::or_dash(reason.map(|reason| output::short(&reason, 200))),
    ]
}

async fn change(
    name: &str,
    reason: Option<&str>,
    form: Output,
    config: &Config,
) -> Result<ExitCode, Failure> {
    let client = super::connect(config).await?;
    inspect::find_subscription(&client, name).await?;
    let (changed, state) = match reason {
        Some(reason) => (
            operate::pause_subscription(&client, name, reason).await?,
            "paused",
        ),
        None => (
            operate::resume_subscription(&client, name).await?,
            "running",
        ),
    };
    match form {
        Output::Json => output::json_line(&Changed {
            subscription: name,
            state,
            changed,
        })?,
        Output::Text if changed => output::line(format!("{name} is {state}"))?,
        Output::Text => output::line(format!("{name} was {state} already"))?,
    }
    Ok(ExitCode::SUCCESS)
}
