//! The processes of the demo: this program's commands, and a Redis if one is installed.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::super::Failure;

/// Until a process says where it is.
const START_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The variable that the subscription's `secret_env` names.
pub(super) const SECRET_ENV: &str = "DEMO_SECRET";

/// Starts commands of this program that know of the demo's servers and of nothing else.
pub(super) struct Launcher {
    program: PathBuf,
    /// Where logs, the spool and the record are.
    pub(super) dir: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Launcher {
    pub(super) fn new(dir: &Path, database_url: &str) -> Result<Self, Failure> {
        let spool = dir.join("spool").display().to_string();
        Ok(Self {
            program: std::env::current_exe().map_err(Failure::failed)?,
            dir: dir.to_owned(),
            variables: vec![
                ("DATABASE_URL", database_url.to_owned()),
                ("HOME", dir.display().to_string()),
                ("LANEKEEPER_CONFIG", "/dev/null".to_owned()),
                ("LANEKEEPER_SPOOL__DIR", spool),
                ("LANEKEEPER_HTTP__LISTEN", "127.0.0.1:0".to_owned()),
                (
                    "LANEKEEPER_WORKER__ALLOW_PRIVATE_TARGETS",
                    "true".to_owned(),
                ),
            ],
        })
    }

    pub(super) fn set_redis(&mut self, url: String) {
        self.variables.push(("REDIS_URL", url));
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    fn open_log(&self, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log(name))
    }

    /// The command, with both of its outputs in the log `name`.
    pub(super) fn command(&self, arguments: &[&str], name: &str) -> io::Result<Command> {
        let log = self.open_log(name)?;
        let mut command = Command::new(&self.program);
        for (variable, _) in std::env::vars_os() {
            let text = variable.to_string_lossy();
            let configures = ["LANEKEEPER_", "PG", "OTEL_"]
                .iter()
                .any(|prefix| text.starts_with(prefix));
            if configures || ["DATABASE_URL", "REDIS_URL", "RUST_LOG"].contains(&text.as_ref()) {
                command.env_remove(variable);
            }
        }
        command
            .args(arguments)
            .envs(self.variables.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true);
        Ok(command)
    }

    /// Runs it to its end.
    pub(super) async fn run(&self, arguments: &[&str], name: &str) -> Result<(), Failure> {
        let command = self.command(arguments, name);
        let status = command.map_err(Failure::failed)?.status().await;
        let status = status.map_err(Failure::failed)?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::failed(format!(
                "lanekeeper {} ended with {status}; see {}",
                arguments.join(" "),
                self.log(name).display()
            ))),
        }
    }

    /// Starts it, and returns with what stands behind `announcement` in its log.
    pub(super) async fn start(
        &self,
        name: &str,
        mut command: Command,
        announcement: &str,
    ) -> Result<(Program, String), Failure> {
        let mut child = command.spawn().map_err(Failure::failed)?;
        let log = self.log(name);
        let deadline = Instant::now() + START_WITHIN;
        loop {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            // The last line may be half written.
            let complete = text.rfind('\n').map_or("", |end| &text[..end]);
            let found = complete
                .lines()
                .find_map(|line| line.split_once(announcement));
            if let Some((_, rest)) = found {
                let program = Program {
                    name: name.to_owned(),
                    child,
                };
                return Ok((program, rest.trim().to_owned()));
            }
            let ended = child.try_wait().map_err(Failure::failed)?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(Failure::failed(format!(
                    "{name} did not start; its log says:\n{text}"
                )));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// A worker that signs with `secret`, and its HTTP address.
    pub(super) async fn worker(
        &self,
        name: &str,
        secret: &str,
    ) -> Result<(Program, String), Failure> {
        let mut command = self.command(&["worker"], name).map_err(Failure::failed)?;
        command.env(SECRET_ENV, secret);
        self.start(name, command, "serving http=").await
    }

    /// The receiver, and its URL.
    pub(super) async fn receiver(
        &self,
        record: &Path,
        fail_every: u64,
        secrets: &[String],
    ) -> Result<(Program, String), Failure> {
        let fail_every = fail_every.to_string();
        let arguments = ["demo", "receiver", "--fail-every", &fail_every, "--record"];
        let mut command = self
            .command(&arguments, "receiver")
            .map_err(Failure::failed)?;
        command.arg(record);
        for (number, secret) in secrets.iter().enumerate() {
            let name = format!("{SECRET_ENV}_{number}");
            command.args(["--secret-env", &name]).env(&name, secret);
        }
        let (program, rest) = self.start("receiver", command, "http://").await?;
        Ok((program, format!("http://{rest}")))
    }

    /// A Redis of the demo's own on a Unix socket, and its URL; `None` where none is installed.
    pub(super) async fn redis(&self) -> Result<Option<(Program, String)>, Failure> {
        let socket = self.dir.join("redis.sock");
        let log = self.open_log("redis").map_err(Failure::failed)?;
        let mut command = Command::new("redis-server");
        command
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(Failure::failed)?)
            .stderr(log)
            .kill_on_drop(true)
            .current_dir(&self.dir);
        let child = match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            spawned => spawned.map_err(Failure::failed)?,
        };
        let mut program = Program {
            name: "redis".to_owned(),
            child,
        };
        let deadline = Instant::now() + START_WITHIN;
        while tokio::net::UnixStream::connect(&socket).await.is_err() {
            let ended = program.child.try_wait().map_err(Failure::failed)?;
            if ended.is_some() || Instant::now() > deadline {
                let log = self.log("redis");
                return Err(Failure::failed(format!(
                    "redis-server did not start; see {}",
                    log.display()
                )));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(Some((
            program,
            format!("redis+unix://{}", socket.display()),
        )))
    }
}

/// A process that is killed with its handle.
pub(super) struct Program {
    pub(super) name: String,
    child: Child,
}

impl Program {
    /// `None`: it was waited for.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok());
        match pid.and_then(Pid::from_raw) {
            Some(pid) => kill_process(pid, signal).map_err(Failure::failed),
            None => Err(Failure::failed(format!("{} has ended", self.name))),
        }
    }

    /// SIGKILL: it learns nothing of it.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(Failure::failed)
    }

    /// SIGTERM, and SIGKILL where that does not end it.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        // It fails where the process has ended by itself.
        if self.signal(Signal::TERM).is_ok()
            && timeout(STOP_WITHIN, self.child.wait()).await.is_err()
        {
            return self.kill().await;
        }
        Ok(())
    }
}
