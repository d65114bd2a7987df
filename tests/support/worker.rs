//! `lanekeeper worker` as a process of its own, to be signalled and killed.

use std::panic::AssertUnwindSafe;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{Receiver, lanekeeper, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

/// Where subscriptions of these tests find their secret.
pub const SECRET_ENV: &str = "RECEIVER_SECRET";

pub struct WorkerProcess {
    /// Its number at the receiver.
    pub sender: usize,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

/// A test that fails shows what its workers said last: what is rare has no other witness.
impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(60)..];
            eprintln!("worker {} said last:\n{}", self.sender, last.join("\n"));
        }
    }
}

impl WorkerProcess {
    /// Returns when it serves.
    pub async fn start(url: &str, receiver: &Receiver, variables: &[(&str, &str)]) -> Self {
        let (sender, secret) = receiver.new_secret();
        let worker = Self::spawn(url, sender, &secret, variables);
        worker.serves().await;
        worker
    }

    /// Waits until it does.
    pub async fn serves(&self) {
        let serving = wait_until(LIMIT, "the worker serves", async || self.logged("serving"));
        if AssertUnwindSafe(serving).catch_unwind().await.is_err() {
            panic!("it does not serve:\n{}", self.log());
        }
    }

    /// Returns at once.
    pub fn spawn(url: &str, sender: usize, secret: &str, variables: &[(&str, &str)]) -> Self {
        Self::spawn_as(lanekeeper(), url, sender, secret, variables)
    }

    /// `program` runs Lanekeeper with the arguments that follow.
    pub fn spawn_as(
        mut program: Command,
        url: &str,
        sender: usize,
        secret: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut child = program
            .arg("worker")
            .env("DATABASE_URL", url)
            .env("LANEKEEPER_HTTP__LISTEN", "127.0.0.1:0")
            .env("LANEKEEPER_WORKER__ALLOW_PRIVATE_TARGETS", "true")
            .env(SECRET_ENV, secret)
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().unwrap().push(line);
            }
        });
        Self { sender, child, log }
    }

    /// Whether it ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id().expect("a process that was not waited for")).unwrap()
    }

    pub fn logged(&self, text: &str) -> bool {
        self.log
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains(text))
    }

    /// Where it serves HTTP.
    pub fn http(&self) -> String {
        let log = self.log.lock().unwrap();
        let line = log.iter().find(|line| line.contains("serving")).unwrap();
        let (_, address) = line.split_once("http=").unwrap();
        format!("http://{}", address.trim())
    }

    /// What it said so far, for the message of a failing test.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// SIGKILL; returns when the process is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM; returns how it ended.
    pub async fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        timeout(LIMIT, self.child.wait())
            .await
            .unwrap_or_else(|_| panic!("it does not end:\n{}", self.log()))
            .unwrap()
    }
}
