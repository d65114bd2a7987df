//! `lanekeeper session bind`.

use std::process::ExitCode;

use lanekeeper_config::Config;
use lanekeeper_engine::host_name;
use lanekeeper_postgres::host_route;
use serde::Serialize;

use super::Name;
use super::attach::TmuxArgs;
use crate::Failure;
use crate::output::{self, Output, OutputArgs};

/// Say on which host a session lives, so that only its workers deliver it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It counts for subscriptions with `host_bound = true`, and stands over the host that the agent
registry has. The session need not exist yet. A lane that is being delivered is moved when its
holder lets it go.

Examples:
  lanekeeper session bind inbound 7f3a build-7
  lanekeeper session bind inbound 7f3a --pane %3
  lanekeeper session bind inbound 7f3a --registry")]
pub(super) struct BindArgs {
    #[command(flatten)]
    session: Name,
    /// The `worker.host_label` of its workers
    #[arg(value_name = "HOST", required_unless_present_any = ["registry", "pane"])]
    host: Option<String>,
    /// A pane of tmux on this host, such as %3 or `$TMUX_PANE`: messages for the session are typed into it
    #[arg(long, value_name = "PANE", conflicts_with_all = ["host", "registry"])]
    pane: Option<String>,
    #[command(flatten)]
    tmux: TmuxArgs,
    /// The host that the agent registry has, if it has one
    #[arg(long, conflicts_with = "host")]
    registry: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Bound<'a> {
    stream: &'a str,
    session: &'a str,
    host: Option<&'a str>,
    changed: bool,
}

pub(super) async fn bind(args: BindArgs, config: &Config) -> Result<ExitCode, Failure> {
    let client = crate::connect(config).await?;
    let Name { stream, session } = &args.session;
    let here = match &args.pane {
        Some(pane) => {
            args.tmux
                .server()
                .name_pane(pane, session)
                .await
                .map_err(Failure::failed)?;
            let label = config.worker.host_label.clone();
            Some(label.unwrap_or_else(host_name))
        }
        None => None,
    };
    let host = here.as_deref().or(args.host.as_deref());
    let changed = host_route::bind_session(&client, stream, session, host).await?;
    match args.output.output {
        Output::Json => output::json_line(&Bound {
            stream,
            session,
            host,
            changed,
        })?,
        Output::Text => {
            let to = match (changed, host) {
                (false, _) => "as it was".to_owned(),
                (true, Some(host)) => format!("bound to {}", output::plain(host)),
                (true, None) => "bound to the host of the agent registry".to_owned(),
            };
            output::line(format!("{stream}/{}: {to}", output::plain(session)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
