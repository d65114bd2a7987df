//! The receiver of `lanekeeper demo`, as a process of its own, and what it wrote down.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use uuid::Uuid;

use crate::oracle::Arrival;

const START_WITHIN: Duration = Duration::from_secs(30);
/// Workers that a run may start, each with a secret of its own.
const SECRETS: usize = 40;

pub struct Receiver {
    pub record: PathBuf,
    secrets: Vec<String>,
    /// Where it refuses some messages for good.
    refuse_at: Option<String>,
    next: usize,
    process: Option<Child>,
}

impl Receiver {
    pub async fn start(dir: &Path) -> (Self, u16) {
        Self::refusing(dir, None).await
    }

    /// One that refuses some of the messages to this subscription, those that are the same each time.
    pub async fn refusing(dir: &Path, subscription: Option<&str>) -> (Self, u16) {
        let secret = || [*Uuid::new_v4().as_bytes(), *Uuid::new_v4().as_bytes()].concat();
        let mut receiver = Self {
            record: dir.join("record.jsonl"),
            secrets: (0..SECRETS)
                .map(|_| format!("whsec_{}", STANDARD.encode(secret())))
                .collect(),
            refuse_at: subscription.map(|name| format!("/{name}")),
            next: 0,
            process: None,
        };
        let port = receiver.begin().await;
        (receiver, port)
    }

    /// A sender's number and what it signs with.
    pub fn new_secret(&mut self) -> (usize, String) {
        let number = self.next;
        self.next += 1;
        (number, self.secrets[number].clone())
    }

    /// Again, after it was killed, with the same record; on a port that may be another.
    pub async fn begin(&mut self) -> u16 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanekeeper"));
        command
            .args(["demo", "receiver", "--record"])
            .arg(&self.record);
        for (number, secret) in self.secrets.iter().enumerate() {
            let name = format!("RECEIVER_SECRET_{number}");
            command.args(["--secret-env", &name]).env(&name, secret);
        }
        if let Some(path) = &self.refuse_at {
            command.arg("--refuse-at").arg(path);
        }
        let mut process = command
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = timeout(START_WITHIN, lines.next_line()).await;
        let line = line.expect("it starts").unwrap().expect("its address");
        self.process = Some(process);
        url::Url::parse(&line).unwrap().port().unwrap()
    }

    pub async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().await.unwrap();
        }
    }

    pub fn reader(&self) -> Reader {
        Reader {
            file: File::open(&self.record).unwrap(),
            at: 0,
        }
    }
}

#[derive(Deserialize)]
struct Written {
    received_at: Timestamp,
    path: String,
    secret: usize,
    id: Uuid,
    session: String,
    seq: i64,
    attempt: u32,
    requeued: bool,
    refused: bool,
}

/// Reads the record from the disk, past all proxies, as far as it is written.
pub struct Reader {
    file: File,
    at: u64,
}

impl Reader {
    /// What was added since the last call.
    pub fn more(&mut self) -> Vec<Arrival> {
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(self.at)).unwrap();
        self.file.read_to_string(&mut text).unwrap();
        // A line without an end is being written.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.at += whole as u64;
        text[..whole]
            .lines()
            .map(|line| {
                let line: Written = serde_json::from_str(line).unwrap();
                Arrival {
                    at_ms: line.received_at.as_millisecond(),
                    subscription: line.path.trim_start_matches('/').to_owned(),
                    session: line.session,
                    seq: line.seq,
                    id: line.id,
                    attempt: line.attempt,
                    sender: line.secret,
                    requeued: line.requeued,
                    refused: line.refused,
                }
            })
            .collect()
    }
}
