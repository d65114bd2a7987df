//! `lanekeeper spool`: sends the events that hook calls spooled on this machine, or lists them.

use std::process::ExitCode;
use std::time::Duration;

use lanekeeper_config::Config;
use lanekeeper_postgres::connect;
use lanekeeper_producer::spool::{self, DrainLimits, DrainReport, RetryReport, Spool, SpoolError};
use lanekeeper_producer::{Producer, Way};
use lanekeeper_streams::hooks::SPOOLED;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// For one rejected record.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Send the events that wait on this machine, or show them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper spool                 send everything that waits
  lanekeeper spool --watch         go on sending until told to stop
  lanekeeper spool --rejected      what PostgreSQL would not take, and why
  lanekeeper spool --retry-rejected
                                   send that again, after the reason is gone")]
pub struct Args {
    /// Send again and again, every spool.interval_ms, until SIGINT or SIGTERM
    #[arg(long)]
    pub watch: bool,
    /// Show what waits instead of sending it
    #[arg(long, conflicts_with = "watch")]
    pub list: bool,
    /// Show what was refused for good, with the reasons
    #[arg(long, conflicts_with_all = ["watch", "list"])]
    pub rejected: bool,
    /// Send what was refused once more; it goes behind what its sessions have by now
    #[arg(long, conflicts_with_all = ["watch", "list", "rejected"])]
    pub retry_rejected: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A session's events that wait.
#[derive(Serialize)]
struct Waiting {
    session: String,
    events: u64,
    bytes: u64,
    file: String,
}

/// An event that was refused for good.
#[derive(Serialize)]
struct Refused {
    rejected_at: String,
    session: String,
    event_type: String,
    reason: String,
    file: String,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let spool = Spool::new(&config.spool, SPOOLED).map_err(Failure::usage)?;
    let form = args.output.output;
    if args.list {
        list(&spool, form)?;
    } else if args.rejected {
        rejected(&spool, form)?;
    } else if args.retry_rejected {
        return retry(&spool, config, form).await;
    } else if args.watch {
        watch(&spool, config, form).await?;
    } else {
        let report = once(&spool, config).await?;
        print(&report, form)?;
        let aside = spool.rejected().map_err(Failure::failed)?.len();
        if aside > 0 {
            output::note(format!(
                "{aside} events were refused or set aside: `lanekeeper spool --rejected` has the reasons"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn once(spool: &Spool, config: &Config) -> Result<DrainReport, Failure> {
    if spool.files().map_err(Failure::failed)?.is_empty() {
        return Ok(DrainReport::default());
    }
    let producer = producer(config).await?;
    spool::drain(&producer, spool, &DrainLimits::default())
        .await
        .map_err(failure)
}

async fn producer(config: &Config) -> Result<Producer, Failure> {
    match super::way(config).map_err(Failure::usage)? {
        Some(way @ Way::Remote(_)) => {
            let connected = Producer::connect(&way, Instant::now() + STATEMENT_TIMEOUT).await;
            connected.map_err(Failure::later)
        }
        // Says more of what is wrong with the database.
        _ => {
            let client = super::connect(config).await?;
            Ok(Producer::new(client, connect::settings(&config.database)?))
        }
    }
}

fn failure(error: SpoolError) -> Failure {
    match error {
        SpoolError::Append { .. } => Failure::later(error),
        _ => Failure::failed(error),
    }
}

async fn watch(spool: &Spool, config: &Config, form: Output) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    loop {
        match once(spool, config).await {
            Ok(report) if report == DrainReport::default() => {}
            Ok(report) => print(&report, form)?,
            // What it waits for is that this passes.
            Err(failure) => output::report(&failure),
        }
        tokio::select! {
            () = sleep(config.spool.interval()) => {}
            _ = terminate.recv() => return Ok(()),
            interrupt = tokio::signal::ctrl_c() => return interrupt.map_err(Failure::failed),
        }
    }
}

fn print(report: &DrainReport, form: Output) -> Result<(), Failure> {
    if form == Output::Json {
        return output::json_line(report);
    }
    output::line(format!(
        "{} events of {} sessions sent, {} of them were there already",
        report.events + report.duplicates,
        report.sessions,
        report.duplicates
    ))?;
    if report.sessions_full > 0 {
        output::line(format!(
            "{} sessions are full; their events stay",
            report.sessions_full
        ))?;
    }
    for path in &report.rejected {
        output::line(format!("refused for good, kept in {}", path.display()))?;
    }
    for path in &report.torn {
        output::line(format!(
            "remains of an unfinished write, kept in {}",
            path.display()
        ))?;
    }
    Ok(())
}

fn list(spool: &Spool, form: Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for path in spool.files().map_err(Failure::failed)? {
        let Some(waiting) = spool.waiting(&path).map_err(Failure::failed)? else {
            continue;
        };
        rows.push(Waiting {
            session: waiting.session.unwrap_or_default(),
            events: waiting.events,
            bytes: waiting.bytes,
            file: path.display().to_string(),
        });
    }
    if form == Output::Json {
        return rows.iter().try_for_each(output::json_line);
    }
    let cells = |row: &Waiting| {
        [
            row.session.clone(),
            row.events.to_string(),
            row.bytes.to_string(),
            row.file.clone(),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    output::table(["SESSION", "EVENTS", "BYTES", "FILE"], &rows)
}

fn rejected(spool: &Spool, form: Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for path in spool.rejected().map_err(Failure::failed)? {
        match Spool::show_rejected(&path) {
            Ok(shown) => rows.push(Refused {
                rejected_at: shown.rejected_at.to_string(),
                session: shown.record.session,
                event_type: shown.record.event_type,
                reason: shown.reason,
                file: path.display().to_string(),
            }),
            // One bad file hides no other.
            Err(error) => output::note(error.to_string()),
        }
    }
    rows.sort_by(|a, b| a.rejected_at.cmp(&b.rejected_at));
    if form == Output::Json {
        return rows.iter().try_for_each(output::json_line);
    }
    let cells = |row: &Refused| {
        let Refused {
            rejected_at,
            session,
            event_type,
            reason,
            file,
        } = row;
        [rejected_at, session, event_type, reason, file].map(String::clone)
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    output::table(["REJECTED AT", "SESSION", "TYPE", "REASON", "FILE"], &rows)
}

async fn retry(spool: &Spool, config: &Config, form: Output) -> Result<ExitCode, Failure> {
    let report = if spool.rejected().map_err(Failure::failed)?.is_empty() {
        RetryReport::default()
    } else {
        let producer = producer(config).await?;
        spool::retry_rejected(&producer, spool, STATEMENT_TIMEOUT)
            .await
            .map_err(failure)?
    };
    if form == Output::Json {
        output::json_line(&report)?;
    } else {
        output::line(format!(
            "{} events sent, {} of them were there already",
            report.events + report.duplicates,
            report.duplicates
        ))?;
        for kept in &report.kept {
            let reason = output::plain(&kept.reason);
            output::line(format!("kept in {}: {reason}", kept.file.display()))?;
        }
    }
    Ok(ExitCode::from(u8::from(!report.kept.is_empty())))
}
