//! Runs a command for each delivery, with the event on its standard input.
//!
//! | end of the command | verdict |
//! |---|---|
//! | 0 | accepted |
//! | 65 (EX_DATAERR), 100 | rejected: trying again cannot help |
//! | 75 (EX_TEMPFAIL), any other code, a signal, the time-out | retry |
//!
//! The command runs in a process group of its own, which is killed as a whole when the time is out
//! or the delivery is dropped. What a command leaves running in the background after it has ended
//! by itself is left alone. Its environment is a list ([`variables`]); it may run as another user
//! ([`user`]).

mod user;
mod variables;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join3;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_core::observed::Cause;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use self::user::User;
use super::{Environment, SettingsError, descriptors, envelope, excerpt, settings};

const KIND: &str = "exec";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// How long output is waited for after the command has ended: a background process that inherited
/// the pipe may hold it open for ever.
const OUTPUT_GRACE: Duration = Duration::from_millis(100);
/// Of the command's output this much is kept, from its end.
const KEPT_BYTES: usize = 2 * 1024;
const QUOTED_CHARS: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    command: Vec<String>,
    timeout_ms: Option<u64>,
    #[serde(default)]
    env: variables::Given,
    cwd: Option<PathBuf>,
    user: Option<String>,
}

impl Settings {
    fn read(settings: &Value) -> Result<Self, SettingsError> {
        let given: Self = settings::parse(KIND, settings)?;
        if given.command.first().is_none_or(String::is_empty) {
            let reason = "it must name a program, then its arguments";
            return Err(SettingsError::invalid(KIND, "command", reason));
        }
        given.env.check()?;
        given.timeout()?;
        Ok(given)
    }

    fn timeout(&self) -> Result<Duration, SettingsError> {
        settings::timeout(KIND, self.timeout_ms, DEFAULT_TIMEOUT, LONGEST_TIMEOUT)
    }
}

/// Runs one command per event.
pub struct Exec {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(OsString, OsString)>,
    user: Option<User>,
    cwd: Option<PathBuf>,
    timeout: Duration,
}

impl Exec {
    pub(super) fn check(settings: &Value) -> Result<(), SettingsError> {
        Settings::read(settings).map(drop)
    }

    pub(super) fn build(
        settings: &Value,
        environment: &Environment,
    ) -> Result<Self, SettingsError> {
        let given = Settings::read(settings)?;
        let timeout = given.timeout()?;
        let mut words = given.command.into_iter();
        let user = given.user.map(|user| User::resolve(&user)).transpose()?;
        let user = user.flatten();
        let home = user.as_ref().map(|user| &*user.home);
        let variables = given.env.resolve(home, environment)?;
        Ok(Self {
            program: words.next().unwrap_or_default(),
            arguments: words.collect(),
            variables,
            user,
            cwd: given.cwd,
            timeout,
        })
    }

    fn spawn(&self, delivery: &Delivery<'_>) -> io::Result<Run> {
        let event = delivery.event;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("LANEKEEPER_EVENT_STREAM", &*event.stream)
            .env("LANEKEEPER_EVENT_SESSION", &*event.session)
            .env("LANEKEEPER_EVENT_SEQ", event.seq.to_string())
            .env("LANEKEEPER_EVENT_MESSAGE_ID", event.message_id.to_string())
            .env("LANEKEEPER_EVENT_TYPE", &*event.event_type)
            .env("LANEKEEPER_EVENT_ATTEMPT", delivery.attempt.to_string())
            .env("LANEKEEPER_EVENT_SUBSCRIPTION", delivery.subscription)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        if let Some(user) = &self.user {
            command.uid(user.uid).gid(user.gid);
        }
        let child = command.spawn()?;
        if let Some(pid) = pid(&child) {
            descriptors::restore_limit(pid);
        }
        Ok(Run {
            child,
            stdout: Tail::default(),
            stderr: Tail::default(),
        })
    }
}

#[async_trait]
impl Adapter for Exec {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let body = envelope::body(delivery);
        let mut run = match self.spawn(delivery) {
            Ok(run) => run,
            Err(error) => {
                let reason = format!("{} could not be started: {error}", self.program);
                return descriptors::unsent(&error, reason);
            }
        };
        let (end, failed) = match timeout(self.timeout, run.finish(&body)).await {
            Ok(Ok(status)) if status.success() => return Verdict::Accepted,
            Ok(Ok(status)) => {
                delivery.failed_by(Cause::ExitStatus);
                (describe(status), status.code())
            }
            Ok(Err(error)) => (format!("could not be waited for: {error}"), None),
            Err(_) => {
                delivery.failed_by(Cause::Timeout);
                let end = format!("had not ended after {:?} and was killed", self.timeout);
                (end, None)
            }
        };
        let mut error = format!("{} {end}", self.program);
        let quoted = run.quote();
        if !quoted.is_empty() {
            error = format!("{error}: {quoted}");
        }
        match failed {
            Some(65 | 100) => Verdict::Rejected { error },
            _ => Verdict::retry(error),
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => format!("ended abnormally ({status})"),
    }
}

/// A running command. Dropping it kills the whole process group.
struct Run {
    child: Child,
    stdout: Tail,
    stderr: Tail,
}

impl Run {
    async fn finish(&mut self, body: &[u8]) -> io::Result<ExitStatus> {
        let exchange = join3(
            feed(self.child.stdin.take(), body),
            self.stdout.fill(self.child.stdout.take()),
            self.stderr.fill(self.child.stderr.take()),
        );
        tokio::pin!(exchange);
        tokio::select! {
            status = self.child.wait() => {
                // What is still in the pipes is read; whoever else holds them is not waited for.
                let _ = timeout(OUTPUT_GRACE, exchange).await;
                status
            }
            _ = &mut exchange => self.child.wait().await,
        }
    }

    /// What the command said last, on its standard error if it said anything there.
    fn quote(&self) -> String {
        match excerpt::last(&self.stderr.0, QUOTED_CHARS) {
            said if said.is_empty() => excerpt::last(&self.stdout.0, QUOTED_CHARS),
            said => said,
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Until the child has been waited for, its pid cannot belong to anyone else; after that
        // `id` is `None`.
        if let Some(group) = pid(&self.child) {
            // Fails only where nothing is left to kill.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// `None`: it was waited for.
fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(id.cast_signed()))
}

/// A command need not read its input: its exit code alone decides.
async fn feed(stdin: Option<ChildStdin>, body: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(body).await;
    }
}

/// The last bytes of an output that may be endless.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    async fn fill(&mut self, output: Option<impl AsyncRead + Unpin>) {
        let Some(mut output) = output else { return };
        let mut chunk = [0; 4 * 1024];
        while let Ok(read @ 1..) = output.read(&mut chunk).await {
            self.0.extend_from_slice(&chunk[..read]);
            let excess = self.0.len().saturating_sub(KEPT_BYTES);
            self.0.drain(..excess);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_without_a_program_and_names_that_are_none_are_refused() {
        let refusal = |settings| Exec::check(&settings).unwrap_err().to_string();
        assert!(refusal(serde_json::json!({"command": []})).contains("must name a program"));
        assert!(refusal(serde_json::json!({"command": [""]})).contains("must name a program"));
        let settings = serde_json::json!({"command": ["a"], "env": {"A=B": "c"}});
        assert!(refusal(settings).contains("not the name of a variable"));
    }
}
