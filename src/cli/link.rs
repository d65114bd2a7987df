//! `lanekeeper link`: signed links, by which a browser may follow live without an access token.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use lanekeeper_adapters::Environment;
use lanekeeper_config::Config;
use lanekeeper_core::network::PrivateTargets;
use lanekeeper_core::subscription::duration;
use lanekeeper_http::live;
use lanekeeper_http::live::link::Links;
use lanekeeper_secret::Secret;
use serde::Serialize;

use super::Failure;
use super::output::{self, Output, OutputArgs};

/// Sign a link that follows sessions live until it expires
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The secret is the first one that live.link_secrets names, in this command's environment. Nothing is asked of a worker or
a database. A link cannot be revoked: change the secret. It may be extended by &from=SEQ or &cursor=ID.

Examples:
  lanekeeper link runs run-7 --expires-in 1h
  lanekeeper link runs run-7 run-8 --type step --expires-in 10m --url https://lane.example")]
pub struct Args {
    /// The stream
    stream: String,
    /// The sessions [default: the whole stream]
    sessions: Vec<String>,
    /// An event type that it sends; may be repeated [default: every type]
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// After which time it ends, such as 10m or 12h, by the clocks of this machine and of the worker
    #[arg(long, value_name = "TIME", value_parser = |text: &str| duration::parse_up_to(text, LONGEST))]
    expires_in: Duration,
    /// What to write before the path, such as https://lane.example
    #[arg(long, default_value = "")]
    url: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// A link cannot be revoked: none is good for ever.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

#[derive(Serialize)]
struct Signed<'a> {
    url: &'a str,
}

#[derive(Debug, thiserror::Error)]
#[error("there is no secret to sign a link with")]
struct NoSecret;

#[derive(Debug, thiserror::Error)]
#[error("the name {0:?} has a comma, which separates names in a link")]
struct Comma(String);

/// The secrets of signed links, which `live.link_secrets` names.
pub(super) fn links(config: &Config) -> Result<Links, Failure> {
    let environment = Environment::of_process(PrivateTargets::None);
    let secrets = config.live.link_secrets.iter().map(|name| {
        let secret = environment.secret(name).map_err(Failure::failed)?;
        Ok(Secret::new(secret))
    });
    let secrets = secrets.collect::<Result<Vec<_>, Failure>>()?;
    Links::new(secrets)
        .map_err(|short| Failure::failed(short).advise("make one with `lanekeeper secret new`"))
}

pub fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let links = links(config)?;
    let listed = match args.sessions.as_slice() {
        [_] => [].iter(),
        sessions => sessions.iter(),
    };
    if let Some(name) = listed.chain(&args.types).find(|name| name.contains(',')) {
        return Err(Failure::usage(Comma(name.clone())));
    }
    let expires = SystemTime::now() + args.expires_in;
    let path = live::link(&links, &args.stream, &args.sessions, &args.types, expires);
    let path = path.ok_or_else(|| {
        Failure::usage(NoSecret).advise(
            "name an environment variable that has one in LANEKEEPER_LIVE__LINK_SECRETS; `lanekeeper secret new` makes one",
        )
    })?;
    let url = format!("{}{path}", args.url.trim_end_matches('/'));
    match args.output.output {
        Output::Json => output::json_line(&Signed { url: &url })?,
        Output::Text => output::line(url)?,
    }
    Ok(ExitCode::SUCCESS)
}
