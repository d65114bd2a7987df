//! A tmux server, asked by its own commands. Arguments only: no shell reads anything.

use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::excerpt;

/// The option of a pane that names the session of the agent in it.
pub const SESSION_OPTION: &str = "@lanekeeper_session";
/// What tmux and the programs that it starts get of the worker's variables.
const VARIABLES: [&str; 11] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMUX_TMPDIR",
    "TZ",
    "USER",
];
/// The first with options of panes.
const OLDEST: (u32, u32) = (3, 1);
const QUOTED_CHARS: usize = 300;

/// Why a command did nothing, or why that is not known.
#[derive(Debug, Error)]
pub enum TmuxError {
    #[error(
        "{program} cannot be started ({source}): install tmux, or name it with the setting `tmux`"
    )]
    Missing { program: String, source: io::Error },
    #[error("{program} is {found}, and this needs tmux 3.1 or later")]
    TooOld { program: String, found: String },
    /// It answered that it could not.
    #[error("tmux {command}: {said}")]
    Refused { command: String, said: String },
    #[error("tmux {command} did not answer within {within:?}")]
    Silent { command: String, within: Duration },
    #[error("tmux {command}: {source}")]
    Broken { command: String, source: io::Error },
}

impl TmuxError {
    /// Whether the command certainly did nothing.
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::TooOld { .. } | Self::Refused { .. } => true,
            Self::Silent { .. } | Self::Broken { .. } => false,
        }
    }
}

/// Which server, and how it is asked.
#[derive(Clone, Debug)]
pub struct Server {
    pub program: String,
    /// `-L` of tmux.
    pub socket_name: Option<String>,
    /// `-S` of tmux.
    pub socket: Option<PathBuf>,
    /// For each command.
    pub timeout: Duration,
}

/// A pane whose option names a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pane {
    pub id: String,
    pub is_dead: bool,
    /// Somebody scrolls in it: keys would not reach the program.
    pub is_in_mode: bool,
}

impl Server {
    /// A terminal on the tmux session of a pane, for `exec`.
    pub fn attach(&self, pane: &str) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        self.address(|argument| {
            command.arg(argument);
        });
        command.args(["attach-session", "-t", pane]);
        command
    }

    /// The arguments that name the server.
    fn address(&self, mut put: impl FnMut(&std::ffi::OsStr)) {
        if let Some(name) = &self.socket_name {
            put("-L".as_ref());
            put(name.as_ref());
        }
        if let Some(path) = &self.socket {
            put("-S".as_ref());
            put(path.as_ref());
        }
    }

    async fn run(&self, arguments: &[&str], input: Option<&[u8]>) -> Result<String, TmuxError> {
        let name = arguments.first().copied().unwrap_or_default();
        let mut command = Command::new(&self.program);
        self.address(|argument| {
            command.arg(argument);
        });
        let has_input = input.is_some();
        command
            .args(arguments)
            // What starts a server gives it its variables, and through it all panes: the worker's hold secrets. And a
            // worker that was started in a pane would be a client of that server.
            .env_clear()
            .envs(
                VARIABLES
                    .into_iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .stdin(if has_input {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|source| TmuxError::Missing {
            program: self.program.clone(),
            source,
        })?;
        let exchange = async {
            if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
                stdin.write_all(input).await?;
                stdin.shutdown().await?;
            }
            child.wait_with_output().await
        };
        let command = name.to_owned();
        let Output {
            status,
            stdout,
            stderr,
        } = match timeout(self.timeout, exchange).await {
            Ok(Ok(output)) => output,
            Ok(Err(source)) => return Err(TmuxError::Broken { command, source }),
            Err(_) => {
                let within = self.timeout;
                return Err(TmuxError::Silent { command, within });
            }
        };
        if !status.success() {
            let said = excerpt::last(&stderr, QUOTED_CHARS);
            return Err(TmuxError::Refused { command, said });
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    /// Refuses a tmux that is too old.
    pub async fn check(&self) -> Result<(), TmuxError> {
        let said = self.run(&["-V"], None).await?;
        let found = said.trim().to_owned();
        match version(&found) {
            Some(version) if version < OLDEST => Err(TmuxError::TooOld {
                program: self.program.clone(),
                found,
            }),
            // A name without a number is a build from source: newer than any release.
            _ => Ok(()),
        }
    }

    /// The pane of a session; the newest that is alive where there are several. `None` also where there is no server.
    pub async fn pane_of(&self, session: &str) -> Result<Option<Pane>, TmuxError> {
        let format = format!("#{{pane_id}} #{{pane_dead}} #{{pane_in_mode}} #{{{SESSION_OPTION}}}");
        let listed = match self.run(&["list-panes", "-a", "-F", &format], None).await {
            Ok(listed) => listed,
            Err(TmuxError::Refused { said, .. }) if is_no_server(&said) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(choose(&listed, session))
    }

    /// The program that has a pane's terminal.
    pub async fn program_in(&self, pane: &str) -> Result<String, TmuxError> {
        let show = [
            "display-message",
            "-p",
            "-t",
            pane,
            "#{pane_current_command}",
        ];
        let said = self.run(&show, None).await?;
        Ok(said.trim().to_owned())
    }

    /// Makes a pane that of a session.
    pub async fn name_pane(&self, pane: &str, session: &str) -> Result<(), TmuxError> {
        let set = ["set-option", "-p", "-t", pane, SESSION_OPTION, session];
        self.run(&set, None).await.map(drop)
    }

    /// Starts a program in a tmux session of its own, and makes its pane that of a session.
    pub async fn start(
        &self,
        name: &str,
        session: &str,
        cwd: Option<&str>,
        program: &[String],
    ) -> Result<Pane, TmuxError> {
        let mut arguments = vec!["new-session", "-d", "-P", "-F", "#{pane_id}", "-s", name];
        if let Some(cwd) = cwd {
            arguments.extend(["-c", cwd]);
        }
        // tmux hands a single argument to a shell, and several to no one but the program.
        arguments.extend(["--", "env"]);
        arguments.extend(program.iter().map(String::as_str));
        let id = self.run(&arguments, None).await?.trim().to_owned();
        self.name_pane(&id, session).await?;
        Ok(Pane {
            id,
            is_dead: false,
            is_in_mode: false,
        })
    }

    /// Puts a text into a buffer.
    pub async fn load(&self, buffer: &str, text: &str) -> Result<(), TmuxError> {
        let load = ["load-buffer", "-b", buffer, "-"];
        self.run(&load, Some(text.as_bytes())).await.map(drop)
    }

    /// Pastes a buffer, bracketed where the program in the pane has asked for that, and deletes it.
    pub async fn paste(&self, buffer: &str, pane: &str) -> Result<(), TmuxError> {
        let paste = ["paste-buffer", "-p", "-d", "-b", buffer, "-t", pane];
        self.run(&paste, None).await.map(drop)
    }

    pub async fn delete(&self, buffer: &str) -> Result<(), TmuxError> {
        let delete = ["delete-buffer", "-b", buffer];
        self.run(&delete, None).await.map(drop)
    }

    pub async fn enter(&self, pane: &str) -> Result<(), TmuxError> {
        let enter = ["send-keys", "-t", pane, "Enter"];
        self.run(&enter, None).await.map(drop)
    }
}

fn is_no_server(said: &str) -> bool {
    said.contains("no server running") || said.contains("error connecting to")
}

/// `tmux 3.3a` is 3.3.
fn version(said: &str) -> Option<(u32, u32)> {
    let number = said.split_whitespace().last()?;
    let number = number.strip_prefix("next-").unwrap_or(number);
    let (major, minor) = number.split_once('.')?;
    let minor: String = minor.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn choose(listed: &str, session: &str) -> Option<Pane> {
    let panes = listed.lines().filter_map(|line| {
        let mut parts = line.splitn(4, ' ');
        let (id, dead, mode) = (parts.next()?, parts.next()?, parts.next()?);
        (parts.next() == Some(session)).then(|| Pane {
            id: id.to_owned(),
            is_dead: dead != "0",
            is_in_mode: mode != "0",
        })
    });
    let number = |pane: &Pane| pane.id.trim_start_matches('%').parse::<u64>().unwrap_or(0);
    panes.max_by_key(|pane| (!pane.is_dead, number(pane)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_releases_are_compared_and_others_count_as_newer() {
        assert_eq!(version("tmux 3.3a"), Some((3, 3)));
        assert_eq!(version("tmux next-3.6"), Some((3, 6)));
        assert_eq!(version("tmux 2.9"), Some((2, 9)));
        assert_eq!(version("tmux master"), None);
        assert!(version("tmux 3.0a") < Some(OLDEST) && version("tmux 3.1") >= Some(OLDEST));
    }

    #[test]
    fn the_newest_living_pane_that_names_the_session_is_its_pane() {
        let listed = "%1 0 0 7f3a\n%2 0 0 \n%3 0 1 a b\n%10 0 0 7f3a\n%11 1 0 7f3a\n%12 0 0 7f3\n";
        let pane = |session| choose(listed, session).map(|pane| (pane.id, pane.is_in_mode));
        assert_eq!(pane("7f3a"), Some(("%10".to_owned(), false)));
        assert_eq!(pane("a b"), Some(("%3".to_owned(), true)));
        assert_eq!(pane("none"), None);
        assert_eq!(
            choose("%1 1 0 s\n", "s").map(|pane| pane.is_dead),
            Some(true)
        );
    }
}
