//! `document get`, `history` and `list`.

use std::process::ExitCode;

use jiff::Timestamp;
use lanekeeper_config::Config;
use lanekeeper_postgres::document::{self, At, MOST};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Name;
use crate::Failure;
use crate::output::{self, Output, OutputArgs};

/// Print a document's body, as it is or as it was
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper document get commitment c1
  lanekeeper document get commitment c1 --version 3
  lanekeeper document get commitment c1 --at 2026-01-24T10:30:00Z --output json")]
pub(super) struct GetArgs {
    #[command(flatten)]
    name: Name,
    /// The body that this version had
    #[arg(long, value_name = "N", conflicts_with = "at", value_parser = clap::value_parser!(i64).range(1..))]
    version: Option<i64>,
    /// The body at this instant
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    #[command(flatten)]
    output: OutputArgs,
}

/// List the versions of a document, the newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper document history commitment c1
  lanekeeper document history commitment c1 --before 17 --limit 10 --output json")]
pub(super) struct HistoryArgs {
    #[command(flatten)]
    name: Name,
    /// Only versions before this one
    #[arg(long, value_name = "N")]
    before: Option<i64>,
    #[command(flatten)]
    page: Page,
}

/// List the documents of a kind, by id
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper document list commitment
  lanekeeper document list commitment --after c100 --output json")]
pub(super) struct ListArgs {
    /// The kind
    #[arg(value_name = "KIND")]
    kind: String,
    /// Only ids behind this one
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, clap::Args)]
struct Page {
    /// The most rows that are shown
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=i64::from(MOST)))]
    limit: i32,
    #[command(flatten)]
    output: OutputArgs,
}

impl Page {
    /// Says where the next page begins, where this one is full.
    fn end(&self, rows: usize, next: Option<String>) {
        if i32::try_from(rows) == Ok(self.limit)
            && let Some(next) = next
        {
            output::note(format!("there may be more: go on with {next}"));
        }
    }
}

#[derive(Serialize)]
struct Found<'a> {
    kind: &'a str,
    id: &'a str,
    version: i64,
    deleted: bool,
    event_type: &'a str,
    seq: i64,
    changed_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
}

pub(super) async fn get(args: GetArgs, config: &Config) -> Result<ExitCode, Failure> {
    let client = crate::connect(config).await?;
    let Name { kind, id } = &args.name;
    let at = match (args.version, args.at) {
        (Some(version), _) => At::Version(version),
        (None, Some(instant)) => At::Instant(instant),
        (None, None) => At::Now,
    };
    let found = document::get_at(&client, kind, id, at).await?;
    let name = output::plain(&format!("{kind}/{id}")).into_owned();
    let Some(found) = found else {
        return Err(Failure::failed(match at {
            At::Now => format!("there is no document {name}"),
            At::Version(_) | At::Instant(_) => {
                format!("there is no such version of {name}, or it is past its retention")
            }
        })
        .advise("`lanekeeper document list` and `document history` show what there is"));
    };
    let body = found.body.as_deref();
    match (args.output.output, body) {
        (Output::Json, _) => output::json_line(&Found {
            kind,
            id,
            version: found.version,
            deleted: body.is_none(),
            event_type: &found.event_type,
            seq: found.seq,
            changed_at: found.changed_at,
            body: body
                .map(serde_json::from_str)
                .transpose()
                .map_err(Failure::failed)?,
        })?,
        (Output::Text, Some(body)) => output::line(body)?,
        (Output::Text, None) => {
            return Err(Failure::failed(format!(
                "{name} was deleted, as version {}, on {}",
                found.version,
                output::time(found.changed_at)
            ))
            .advise("`lanekeeper document history` shows the versions before"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn history(args: HistoryArgs, config: &Config) -> Result<ExitCode, Failure> {
    let client = crate::connect(config).await?;
    let Name { kind, id } = &args.name;
    let page = &args.page;
    let versions = document::history(&client, kind, id, args.before, page.limit).await?;
    if versions.is_empty() && args.before.is_none() {
        let name = output::plain(&format!("{kind}/{id}")).into_owned();
        return Err(Failure::failed(format!(
            "there is no document {name}, and was none"
        )));
    }
    match page.output.output {
        Output::Json => versions.iter().try_for_each(output::json_line)?,
        Output::Text => {
            let rows: Vec<_> = versions
                .iter()
                .map(|past| {
                    [
                        past.version.to_string(),
                        output::time(past.changed_at),
                        past.event_type.clone(),
                        past.seq.to_string(),
                        if past.deleted { "deleted" } else { "" }.to_owned(),
                    ]
                })
                .collect();
            output::table(["VERSION", "CHANGED", "EVENT", "SEQ", ""], &rows)?;
        }
    }
    let next = versions
        .last()
        .map(|past| format!("--before {}", past.version));
    page.end(versions.len(), next);
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn list(args: ListArgs, config: &Config) -> Result<ExitCode, Failure> {
    let client = crate::connect(config).await?;
    let page = &args.page;
    let after = args.after.as_deref();
    let listed = document::list(&client, &args.kind, after, page.limit).await?;
    match page.output.output {
        Output::Json => listed.iter().try_for_each(output::json_line)?,
        Output::Text => {
            let rows: Vec<_> = listed
                .iter()
                .map(|one| {
                    [
                        one.id.clone(),
                        one.version.to_string(),
                        output::time(one.changed_at),
                        one.event_type.clone(),
                    ]
                })
                .collect();
            output::table(["ID", "VERSION", "CHANGED", "EVENT"], &rows)?;
        }
    }
    let next = listed
        .last()
        .map(|last| format!("--after {}", output::plain(&last.id)));
    page.end(listed.len(), next);
    Ok(ExitCode::SUCCESS)
}
