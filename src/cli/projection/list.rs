//! `lanekeeper projection list` and `show`: what each projection is, and how far it is behind.

use std::iter;
use std::process::ExitCode;

use lanekeeper_adapters::projection;
use lanekeeper_config::Config;
use lanekeeper_postgres::inspect::{self, Delivery, SubscriptionStatus};
use serde::Serialize;

use super::Unknown;
use crate::Failure;
use crate::delivery;
use crate::list::LimitArgs;
use crate::output::{self, Output, OutputArgs, or_dash};

/// A projection is a subscription, and there are some tens of those: they are counted with all others.
const SUBSCRIPTIONS: i64 = 10_000;

/// List projections and how far they are behind
#[derive(Debug, clap::Args)]
#[command(after_help = "\
BEHIND counts events that the projection was not given yet, OLDEST is the age of the oldest of them.
BLOCKED are sessions whose next event its function refused, and DEAD the events that it was not given
for that.

Example:
  lanekeeper projection list --output json")]
pub struct ListArgs {
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Show one projection
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper projection show order_totals")]
pub struct ShowArgs {
    /// The projection
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Shown {
    projection: String,
    stream: String,
    function: String,
    role: String,
    tables: Vec<String>,
    /// What the running workers say of it.
    delivery: Delivery,
    /// Events that it was not given yet.
    behind: i64,
    oldest_undelivered_age_s: Option<f64>,
    /// Sessions whose next event is tried again later.
    blocked: i64,
    dead_letters: i64,
    /// Every figure is a lower bound.
    partial: bool,
    #[serde(skip)]
    pause_reason: Option<String>,
}

pub(super) async fn list(args: ListArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut projections = read(config).await?;
    args.limit.cut(&mut projections);
    if projections.is_empty() {
        output::note("there is no projection: add one with `lanekeeper apply`");
    }
    print(&projections, args.output.output)
}

pub(super) async fn show(args: ShowArgs, config: &Config) -> Result<ExitCode, Failure> {
    let mut projections = read(config).await?;
    projections.retain(|one| one.projection == args.name);
    let Some(one) = projections.first() else {
        return Err(Unknown(args.name).into());
    };
    print(&projections, args.output.output)?;
    if args.output.output == Output::Text {
        output::line(format!(
            "runs as {}; tables: {}",
            one.role,
            or_dash((!one.tables.is_empty()).then(|| one.tables.join(", ")),)
        ))?;
        for reason in one.delivery.reasons() {
            output::line(output::plain(&reason))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn read(config: &Config) -> Result<Vec<Shown>, Failure> {
    let mut client = crate::connect(config).await?;
    let reading = inspect::begin(&mut client).await?;
    let summaries = inspect::subscriptions(&reading, SUBSCRIPTIONS).await?;
    let looked_at = inspect::LANES_LOOKED_AT;
    let statuses = inspect::status(&reading, SUBSCRIPTIONS, looked_at, iter::empty()).await?;
    let deliveries = inspect::deliveries(&reading, delivery::frozen_after(config)).await?;
    let shown = |status: SubscriptionStatus| {
        let mut summaries = summaries.iter();
        let summary = summaries.find(|one| one.subscription_id == status.subscription_id)?;
        let settings = projection::read(&summary.settings).ok();
        let function = settings.as_ref().map_or_else(String::new, |one| {
            format!("{}.{}", one.schema, one.function)
        });
        Some(Shown {
            function,
            role: settings
                .as_ref()
                .map_or_else(String::new, |one| one.role.clone()),
            tables: settings.map_or_else(Vec::new, |one| one.tables),
            delivery: deliveries.of(status.subscription_id, status.paused_at.is_some()),
            projection: status.subscription,
            stream: status.stream,
            behind: status.behind,
            oldest_undelivered_age_s: status.oldest_undelivered_age_s,
            blocked: status.lanes.blocked,
            dead_letters: status.dead_letters,
            partial: status.partial,
            pause_reason: status.pause_reason,
        })
    };
    let statuses = statuses.into_iter();
    Ok(statuses
        .filter(|one| one.adapter == projection::KIND)
        .filter_map(shown)
        .collect())
}

fn print(projections: &[Shown], form: Output) -> Result<ExitCode, Failure> {
    match form {
        Output::Json => projections.iter().try_for_each(output::json_line)?,
        Output::Text if projections.is_empty() => {}
        Output::Text => output::table(
            [
                "PROJECTION",
                "STREAM",
                "FUNCTION",
                "STATE",
                "BEHIND",
                "OLDEST",
                "BLOCKED",
                "DEAD",
            ],
            &projections.iter().map(row).collect::<Vec<_>>(),
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

fn row(one: &Shown) -> [String; 8] {
    let bound = |count: i64| format!("{count}{}", if one.partial { "+" } else { "" });
    [
        one.projection.clone(),
        one.stream.clone(),
        one.function.clone(),
        delivery::cell(&one.delivery, one.pause_reason.as_deref()),
        bound(one.behind),
        or_dash(one.oldest_undelivered_age_s.map(output::age)),
        bound(one.blocked),
        one.dead_letters.to_string(),
    ]
}
