//! `lanekeeper session attach`: a person's terminal on the tmux session of an agent.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use lanekeeper_adapters::TmuxServer;

use crate::Failure;

const WITHIN: Duration = Duration::from_secs(15);

/// Attach this terminal to the tmux session in which an agent of this host lives
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs no database. Detach with tmux's own key, Ctrl-B d by default.

Examples:
  lanekeeper session attach 7f3a
  lanekeeper session attach 7f3a --socket-name agents")]
pub(super) struct AttachArgs {
    /// The session's name
    #[arg(value_name = "SESSION")]
    session: String,
    #[command(flatten)]
    tmux: TmuxArgs,
}

/// Which tmux server.
#[derive(Debug, clap::Args)]
pub(super) struct TmuxArgs {
    /// The tmux server with this socket name (-L of tmux)
    #[arg(long, value_name = "NAME", conflicts_with = "socket")]
    socket_name: Option<String>,
    /// The tmux server with this socket (-S of tmux)
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl TmuxArgs {
    pub(super) fn server(&self) -> TmuxServer {
        TmuxServer {
            program: "tmux".to_owned(),
            socket_name: self.socket_name.clone(),
            socket: self.socket.clone(),
            timeout: WITHIN,
        }
    }
}

pub(super) async fn attach(args: AttachArgs) -> Result<ExitCode, Failure> {
    let server = args.tmux.server();
    let pane = server
        .pane_of(&args.session)
        .await
        .map_err(Failure::failed)?;
    let Some(pane) = pane else {
        let said = format!(
            "no pane of this tmux server is that of session {:?}",
            args.session
        );
        return Err(Failure::failed(NoPane(said)).advise(
            "run it on the session's host, name its server with --socket-name or --socket, or make a pane \
             the session's with `lanekeeper session bind inbound SESSION --pane PANE`",
        ));
    };
    // Returns only where tmux cannot be started.
    let error = server.attach(&pane.id).exec();
    Err(Failure::failed(error))
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoPane(String);
