//! `lanekeeper projection rebuild`: calls a projection's function with the log again, on tables beside, and switches.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use lanekeeper_adapters::Environment;
use lanekeeper_config::Config;
use lanekeeper_core::network::PrivateTargets;
use lanekeeper_postgres::projection::{self, Named, Options, Progress, RebuildError};
use serde::Serialize;

use super::Unknown;
use crate::Failure;
use crate::output::{self, Output, OutputArgs};
use crate::worker::projection::of;

/// Between two lines that say how far it is.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Rebuild a projection's tables from the log
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The function is called with the log again, on tables of a schema beside; readers see what they saw
until the new rows replace the old ones in one transaction. The projection is fed all the while, but
for that moment. Ended in the middle, it goes on from there with the next call, unless the function or
its tables changed. It needs the variable that the subscription's url_env names.

Examples:
  lanekeeper projection rebuild order_totals
  lanekeeper projection rebuild order_totals --partial")]
pub struct RebuildArgs {
    /// The projection
    name: String,
    /// Rebuild from what the log still has, although it does not have everything that the projection was given
    #[arg(long)]
    partial: bool,
    /// Begin anew, wherever an earlier rebuild ended
    #[arg(long)]
    afresh: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Rebuilt<'a> {
    projection: &'a str,
    events: u64,
    lanes: u64,
    /// Whether an earlier rebuild was gone on with.
    resumed: bool,
    /// How long the projection was not fed.
    held_up_ms: u128,
    took_ms: u128,
}

pub(super) async fn run(args: RebuildArgs, config: &Config) -> Result<ExitCode, Failure> {
    let owner = crate::connect(config).await?;
    let Some(named) = projection::find(&owner, &args.name).await? else {
        return Err(Unknown(args.name).into());
    };
    let Named {
        subscription_id,
        stream,
        settings,
    } = named;
    let environment = Environment::of_process(PrivateTargets::None);
    let described = of(&args.name, &settings, &environment).map_err(|error| {
        Failure::failed(error)
            .advise("set the variable that the subscription's url_env names, as for a worker")
    })?;
    let began = Instant::now();
    let mut told_at = began;
    let mut tell = |progress: Progress| {
        if told_at.elapsed() >= TELL_EVERY {
            told_at = Instant::now();
            output::note(format!(
                "{}: {} events; {} lanes of pass {} done",
                args.name, progress.events, progress.lanes, progress.pass
            ));
        }
    };
    let options = Options {
        partial: args.partial,
        afresh: args.afresh,
        told: &mut tell,
    };
    let subscription = (subscription_id, args.name.as_str(), stream.as_str());
    let progress = projection::rebuild(&owner, &described, subscription, options).await?;
    let rebuilt = Rebuilt {
        projection: &args.name,
        events: progress.events,
        lanes: progress.lanes,
        resumed: progress.resumed,
        held_up_ms: progress.held_up.as_millis(),
        took_ms: began.elapsed().as_millis(),
    };
    match args.output.output {
        Output::Json => output::json_line(&rebuilt)?,
        Output::Text => output::line(format!(
            "{} rebuilt from {} events of {} sessions in {:.1} s{}; not fed for {} ms",
            rebuilt.projection,
            rebuilt.events,
            rebuilt.lanes,
            began.elapsed().as_secs_f64(),
            if rebuilt.resumed {
                ", going on where the last rebuild ended"
            } else {
                ""
            },
            rebuilt.held_up_ms
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}

impl From<RebuildError> for Failure {
    fn from(error: RebuildError) -> Self {
        match error {
            RebuildError::Store(error) => error.into(),
            RebuildError::Busy | RebuildError::NotSwitched => Self::later(error),
            RebuildError::Event { .. } => Self::failed(error).advise(
                "mend the function, or what it needs, and rebuild again; readers see what they saw",
            ),
            error => Self::failed(error),
        }
    }
}
