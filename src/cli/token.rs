//! `lanekeeper token`: access tokens of the HTTP API.

use std::process::ExitCode;
use std::time::Duration;

use lanekeeper_config::Config;
use lanekeeper_core::bucket::Rate;
use lanekeeper_core::subscription::duration;
use lanekeeper_postgres::append::RESERVED_STREAM;
use lanekeeper_postgres::token::{self, NewToken, Scope, TokenView};
use serde::Serialize;

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// Make, list and revoke access tokens of the HTTP API
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Make a token; it is shown once and cannot be shown again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only a hash of it is kept. Give it to whoever sends the requests, as LANEKEEPER_TOKEN for `hook` and `enqueue`.

Example:
  lanekeeper token create ci --scope produce --stream hooks --rate 50/s --expires-in 90d")]
struct CreateArgs {
    /// Who gets it
    name: String,
    /// What it allows; may be repeated
    #[arg(long = "scope", value_name = "SCOPE", value_enum, required = true)]
    scopes: Vec<Scope>,
    /// A stream that it is good for; may be repeated [default: every stream; none may append to lifecycle]
    #[arg(long = "stream", value_name = "STREAM")]
    streams: Vec<String>,
    /// A session that it is good for, or the beginning of their names and *; may be repeated [default: every session]
    #[arg(long = "session", value_name = "SESSION", value_parser = session)]
    sessions: Vec<String>,
    /// How many requests it may send, such as 50/s [default: as many as the server takes]
    #[arg(long)]
    rate: Option<Rate>,
    /// After which time it ends, such as 12h or 90d, by the clock of Postgres [default: never]
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    expires_in: Option<Duration>,
    #[command(flatten)]
    output: OutputArgs,
}

/// List the tokens, revoked ones included, without anything secret
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  lanekeeper token list")]
struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// End a token: workers refuse it two seconds later at the latest
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  lanekeeper token revoke ci")]
struct RevokeArgs {
    /// Its name
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Created<'a> {
    token_id: i64,
    name: &'a str,
    token: String,
    expires_at: Option<jiff::Timestamp>,
}

#[derive(Serialize)]
struct Revoked<'a> {
    name: &'a str,
    revoked: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("there is a token named {0:?}: nothing was made")]
struct NameTaken(String);

#[derive(Debug, thiserror::Error)]
#[error("the engine alone appends to the stream {RESERVED_STREAM}: nothing was made")]
struct Reserved;

#[derive(Debug, thiserror::Error)]
#[error("there is no token named {0:?}, or it is revoked already")]
struct NoSuchToken(String);

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let client = super::connect(config).await?;
    match args.command {
        Command::Create(args) => create(&client, &args).await,
        Command::List(args) => list(&client, args.output.output).await,
        Command::Revoke(args) => revoke(&client, &args).await,
    }
}

/// Ten years at most: whoever wants more means never.
const LONGEST: Duration = Duration::from_secs(3_650 * 86_400);

fn expiry(text: &str) -> Result<Duration, String> {
    duration::parse_up_to(text, LONGEST).and_then(|time| match time < Duration::from_secs(1) {
        true => Err(format!("{text:?} must be at least 1s")),
        false => Ok(time),
    })
}

fn session(text: &str) -> Result<String, String> {
    match text.len() {
        1..=512 => Ok(text.to_owned()),
        _ => Err("a session's name has 1 to 512 bytes".to_owned()),
    }
}

async fn create(client: &tokio_postgres::Client, args: &CreateArgs) -> Result<ExitCode, Failure> {
    if args.scopes.contains(&Scope::Produce)
        && args.streams.iter().any(|name| name == RESERVED_STREAM)
    {
        return Err(Failure::failed(Reserved)
            .advise("leave the stream out, or make a token with --scope read alone for it"));
    }
    let new = NewToken {
        name: &args.name,
        scopes: &args.scopes,
        streams: (!args.streams.is_empty()).then_some(&args.streams),
        sessions: (!args.sessions.is_empty()).then_some(&args.sessions),
        rate: args.rate,
        expires_in_s: args.expires_in.map(|time| time.as_secs().cast_signed()),
    };
    let (bearer, expires_at) = match token::create(client, &new).await {
        Ok(made) => made,
        // unique_violation
        Err(error) if error.sqlstate() == Some("23505") => {
            return Err(Failure::failed(NameTaken(args.name.clone()))
                .advise("take another name, or revoke that one first"));
        }
        Err(error) => return Err(error.into()),
    };
    match args.output.output {
        Output::Json => output::json_line(&Created {
            token_id: bearer.token_id(),
            name: &args.name,
            token: bearer.reveal(),
            expires_at,
        })?,
        Output::Text => {
            output::note("the token, which cannot be shown again:");
            output::line(bearer.reveal())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &tokio_postgres::Client, form: Output) -> Result<ExitCode, Failure> {
    let tokens = token::list(client).await?;
    match form {
        Output::Json => tokens.iter().try_for_each(output::json_line)?,
        Output::Text if tokens.is_empty() => output::note("there are no tokens"),
        Output::Text => output::table(
            [
                "ID", "NAME", "SCOPES", "STREAMS", "SESSIONS", "RATE", "EXPIRES", "REVOKED",
            ],
            &tokens.iter().map(cells).collect::<Vec<_>>(),
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

fn cells(token: &TokenView) -> [String; 8] {
    [
        token.token_id.to_string(),
        token.name.clone(),
        token.scopes.join(","),
        output::or_dash(token.streams.as_ref().map(|streams| streams.join(","))),
        output::or_dash(token.sessions.as_ref().map(|sessions| sessions.join(","))),
        output::or_dash(token.rate.clone()),
        output::or_dash(token.expires_at.map(output::time)),
        output::or_dash(token.revoked_at.map(output::time)),
    ]
}

async fn revoke(client: &tokio_postgres::Client, args: &RevokeArgs) -> Result<ExitCode, Failure> {
    let name = &args.name;
    if !token::revoke(client, name).await? {
        return Err(Failure::failed(NoSuchToken(name.clone())));
    }
    match args.output.output {
        Output::Json => output::json_line(&Revoked {
            name,
            revoked: true,
        })?,
        Output::Text => output::line(format!("{name} is refused from now on"))?,
    }
    Ok(ExitCode::SUCCESS)
}
