//! `lanekeeper hook` and the spool: the real binary, a real server, and every recorded payload that is available.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use lanekeeper_producer::spool::{Spool, SpoolConfig};
use lanekeeper_streams::hooks::SPOOLED;
use serde_json::{Value, json};
use tokio_postgres::Client;

mod aside;
mod calls;
mod full;
mod garbage;
mod install;
mod killed;
mod opencode;
pub mod payloads;
mod schemas;
mod spool;

/// A port on which nothing listens.
const NOWHERE: &str = "postgres://nobody@127.0.0.1:1/none";

/// The machine that an agent runs on: its home, its spool, its database URL.
struct Machine {
    home: PathBuf,
    url: String,
    timeout_ms: u64,
}

impl Machine {
    fn new(url: &str) -> Self {
        let home = std::env::temp_dir().join(format!("lanekeeper-it-{}", uuid::Uuid::now_v7()));
        fs::create_dir(&home).unwrap();
        Self {
            home,
            url: url.to_owned(),
            // Enough for a loaded test machine; what happens after it is tested on its own.
            timeout_ms: 5_000,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanekeeper"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", &self.home)
            .env("DATABASE_URL", &self.url)
            .env("LANEKEEPER_HOOK__TIMEOUT_MS", self.timeout_ms.to_string())
            .current_dir(&self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs to the end. Whatever happens, a hook exits 0 and prints nothing.
    fn hook(&self, cli: &str, payload: &[u8]) -> String {
        answered(&mut self.command(&["hook", "--cli", cli]), payload)
    }

    fn spool(&self) -> Spool {
        let dir = Some(self.home.join(".local/state/lanekeeper/spool"));
        let config = SpoolConfig {
            dir,
            ..SpoolConfig::default()
        };
        Spool::new(&config, SPOOLED).unwrap()
    }

    fn drain(&self) -> Value {
        let ran = run(&mut self.command(&["spool", "--output", "json"]), b"");
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        serde_json::from_slice(&ran.stdout).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.home).unwrap();
    }
}

fn run(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that needs no input may be gone before it is written.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn answered(command: &mut Command, payload: &[u8]) -> String {
    let ran = run(command, payload);
    let stderr = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{stderr}");
    assert_eq!(text(&ran.stdout), "");
    stderr
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn numbered(session: &str, number: usize) -> Vec<u8> {
    json!({"session_id": session, "hook_event_name": "UserPromptSubmit", "prompt": number})
        .to_string()
        .into_bytes()
}

/// Type and payload of a session's events, in order; their seqs must have no gap.
async fn log(client: &Client, session: &str) -> Vec<(String, Value)> {
    let rows = client
        .query(
            "SELECT e.seq, e.event_type, e.payload::jsonb FROM lanekeeper.event AS e \
             JOIN lanekeeper.session AS s USING (session_id) WHERE s.name = $1 ORDER BY e.seq",
            &[&session],
        )
        .await
        .unwrap();
    let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(seqs, (1..=rows.len() as i64).collect::<Vec<_>>());
    rows.iter().map(|row| (row.get(1), row.get(2))).collect()
}

async fn prompts(client: &Client, session: &str) -> Vec<u64> {
    let log = log(client, session).await;
    log.iter()
        .map(|(_, payload)| payload["prompt"].as_u64().unwrap())
        .collect()
}
