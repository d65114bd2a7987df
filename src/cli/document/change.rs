//! `document put`, `patch` and `delete`.

use std::process::ExitCode;

use clap::builder::ValueParser;
use lanekeeper_config::Config;
use lanekeeper_postgres::document::{self, Change, Expect, Operation, Written};
use serde::Serialize;

use super::Name;
use crate::Failure;
use crate::enqueue::from_stdin;
use crate::output::{self, Output, OutputArgs};

/// Create or replace a document; its event is appended in the same transaction
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanekeeper document put commitment c1 --body '{\"text\":\"tests pass\",\"done\":false}' --expect absent
  lanekeeper document put commitment c1 --expect 3 --event-type CommitmentVerified --event '{\"by\":\"ci\"}' <body.json")]
pub(super) struct PutArgs {
    #[command(flatten)]
    name: Name,
    /// The body, JSON [default: read from standard input]
    #[arg(long, value_name = "JSON")]
    body: Option<String>,
    #[command(flatten)]
    told: Told,
}

/// Change a document by a JSON Merge Patch (RFC 7396)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Members of the patch replace those of the document, and null removes one.

Example:
  lanekeeper document patch commitment c1 --patch '{\"done\":true,\"note\":null}' --expect 3")]
pub(super) struct PatchArgs {
    #[command(flatten)]
    name: Name,
    /// The patch, JSON [default: read from standard input]
    #[arg(long, value_name = "JSON")]
    patch: Option<String>,
    #[command(flatten)]
    told: Told,
}

/// Delete a document; its history stays until it is past its retention
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper document delete commitment c1 --expect 4")]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    told: Told,
}

/// What is expected of the document, and the event that tells of the change.
#[derive(Debug, clap::Args)]
struct Told {
    /// Refuse the change unless the document is at this version; `absent`, `present`
    #[arg(long, value_name = "VERSION", value_parser = ValueParser::new(expect))]
    expect: Option<Expect>,
    /// The type of the event [default: DocumentCreated, DocumentUpdated or DocumentDeleted]
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// The event's payload, JSON [default: the document]
    #[arg(long, value_name = "JSON", requires = "event_type")]
    event: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

fn expect(text: &str) -> Result<Expect, String> {
    match text {
        "absent" => Ok(Expect::Absent),
        "present" => Ok(Expect::Present),
        _ => match text.parse() {
            Ok(version @ 1..) => Ok(Expect::Version(version)),
            _ => Err("a version from 1, `absent` or `present` is needed".to_owned()),
        },
    }
}

#[derive(Serialize)]
struct Printed<'a> {
    kind: &'a str,
    id: &'a str,
    #[serde(flatten)]
    written: Written,
}

pub(super) async fn put(args: PutArgs, config: &Config) -> Result<ExitCode, Failure> {
    let body = given(args.body, "the body")?;
    write(&args.name, Operation::Put(&body), &args.told, config).await
}

pub(super) async fn patch(args: PatchArgs, config: &Config) -> Result<ExitCode, Failure> {
    let patch = given(args.patch, "the patch")?;
    write(&args.name, Operation::Patch(&patch), &args.told, config).await
}

pub(super) async fn delete(args: DeleteArgs, config: &Config) -> Result<ExitCode, Failure> {
    write(&args.name, Operation::Delete, &args.told, config).await
}

fn given(option: Option<String>, what: &str) -> Result<String, Failure> {
    let text = match option {
        Some(text) => text,
        None => from_stdin(what)?,
    };
    if text.trim().is_empty() {
        return Err(
            Failure::usage(format!("{what} is missing: nothing was changed"))
                .advise("give JSON, as an option or on standard input"),
        );
    }
    Ok(text)
}

async fn write(
    Name { kind, id }: &Name,
    operation: Operation<'_>,
    told: &Told,
    config: &Config,
) -> Result<ExitCode, Failure> {
    let client = crate::connect(config).await?;
    let change = Change {
        expect: told.expect.unwrap_or_default(),
        event_type: told.event_type.as_deref(),
        event: told.event.as_deref(),
        ..Change::new(kind, id, operation)
    };
    let written = document::change(&client, &change).await?;
    match told.output.output {
        Output::Json => output::json_line(&Printed { kind, id, written })?,
        Output::Text => output::line(format!(
            "{}/{}: {} at version {}, event {}",
            output::plain(kind),
            output::plain(id),
            match operation {
                Operation::Delete => "deleted",
                _ if written.created => "created",
                _ => "changed",
            },
            written.version,
            written.seq
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}
