//! `lanekeeper hook` and the spool: the real binary against a real server, and every recorded
//! payload that is at hand.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_postgres::Client;

use lanekeeper::spool::{Spool, SpoolConfig};
use lanekeeper::stream::hooks::call::Call;
use lanekeeper::stream::hooks::config::HookConfig;
use lanekeeper::stream::hooks::event_type::MAPPED;
use lanekeeper::stream::hooks::origin::Origin;
use lanekeeper::stream::hooks::shape::AgentCli;

use crate::support::TestDb;

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
        Spool::new(&SpoolConfig {
            dir,
            ..SpoolConfig::default()
        })
        .unwrap()
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
            "SELECT e.seq, e.event_type, e.payload FROM lanekeeper.event AS e \
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

#[tokio::test]
async fn a_hook_call_is_one_event_with_its_payload_and_where_it_came_from() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let payload = json!({
        "session_id": "s-1", "hook_event_name": "PostToolUse", "cwd": "/p",
        "tool_response": {"stdout": "by\nuser@example.com\u{0}", "n": 1.50},
    });
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut command = machine.command(&["hook", "--cli", "claude-code"]);
    let stderr = answered(
        command.env("TRACEPARENT", trace),
        payload.to_string().as_bytes(),
    );
    assert_eq!(stderr, "");

    let client = db.connect().await;
    let (event_type, stored) = log(&client, "s-1").await.remove(0);
    assert_eq!(event_type, "tool_done");
    assert_eq!(stored["tool_response"]["stdout"], "by\n[email]\u{fffd}");
    assert_eq!(stored["tool_response"]["n"], 1.50);
    let headers: Value = client
        .query_one("SELECT headers FROM lanekeeper.event", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(headers["cli"], "claude-code");
    assert_eq!(headers["native_event"], "PostToolUse");
    assert_eq!(headers["native_session_id"], "s-1");
    assert_eq!(headers["cwd"], "/p");
    assert_eq!(headers["traceparent"], trace);
    assert_eq!(headers["lanekeeper-repaired"], json!(["nul"]));
    assert!(!machine.spool().holds("s-1"));
}

#[tokio::test]
async fn equal_payloads_are_stored_as_often_as_they_came() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let stop = br#"{"session_id":"s","hook_event_name":"Stop"}"#;
    for _ in 0..2 {
        assert_eq!(machine.hook("claude-code", stop), "");
    }
    assert_eq!(log(&db.connect().await, "s").await.len(), 2);
}

#[tokio::test]
async fn what_is_not_on_the_allowlist_is_dropped_without_a_word() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let end = br#"{"session_id":"s","hook_event_name":"SessionEnd","reason":"exit"}"#;
    assert_eq!(machine.hook("gemini", end), "");
    let allow = "session_end";
    let mut command = machine.command(&["hook", "--cli", "gemini"]);
    answered(command.env("LANEKEEPER_HOOK__ALLOW", allow), end);
    assert_eq!(log(&db.connect().await, "s").await.len(), 1);
}

#[tokio::test]
async fn codex_notify_passes_its_payload_as_the_last_argument() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let payload = r#"{"type":"agent-turn-complete","thread-id":"t","last-assistant-message":"ok"}"#;
    answered(
        &mut machine.command(&["hook", "--cli", "codex-notify", payload]),
        b"",
    );
    machine.hook("codex-notify", payload.as_bytes());
    let log = log(&db.connect().await, "t").await;
    assert_eq!(log.len(), 2);
    assert!(log.iter().all(|(event_type, _)| event_type == "agent_stop"));
}

#[tokio::test]
async fn every_call_of_an_outage_arrives_once_and_in_order_after_it() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    for number in 0..5 {
        let stderr = machine.hook("codex", &numbered("s", number));
        assert!(stderr.contains("kept in the spool"), "{stderr}");
    }
    machine.hook("codex", &numbered("other", 0));
    // The server is back: the next call goes behind what waits and brings it in.
    machine.url = db.url().to_owned();
    assert_eq!(machine.hook("codex", &numbered("s", 5)), "");
    let client = db.connect().await;
    assert_eq!(prompts(&client, "s").await, [0, 1, 2, 3, 4, 5]);
    assert!(!machine.spool().holds("s"));
    assert_eq!(machine.drain()["events"], 1);
    assert_eq!(prompts(&client, "other").await, [0]);
}

#[tokio::test]
async fn a_call_that_goes_through_brings_in_what_other_sessions_left() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    machine.hook("codex", &numbered("gone", 0));
    machine.url = db.url().to_owned();
    assert_eq!(machine.hook("codex", &numbered("here", 0)), "");
    assert_eq!(prompts(&db.connect().await, "gone").await, [0]);
    assert!(machine.spool().files().unwrap().is_empty());
}

#[tokio::test]
async fn a_drain_that_is_repeated_stores_nothing_twice() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    for number in 0..3 {
        machine.hook("codex", &numbered("s", number));
    }
    machine.url = db.url().to_owned();
    let spool = machine.spool();
    let file = spool.files().unwrap().remove(0);
    let copy = fs::read(&file).unwrap();
    assert_eq!(machine.drain()["events"], 3);
    // As after a crash between COMMIT and the note of it.
    fs::write(&file, copy).unwrap();
    let again = machine.drain();
    assert_eq!(
        (&again["events"], &again["duplicates"]),
        (&json!(0), &json!(3))
    );
    assert_eq!(prompts(&db.connect().await, "s").await, [0, 1, 2]);
}

#[tokio::test]
async fn parallel_calls_through_the_end_of_an_outage_neither_lose_nor_repeat() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(NOWHERE);
    for number in 0..3 {
        machine.hook("codex", &numbered("s", number));
    }
    machine.url = db.url().to_owned();
    let machine = &machine;
    std::thread::scope(|scope| {
        for lane in 0..4 {
            scope.spawn(move || {
                for number in 0..4 {
                    machine.hook("codex", &numbered("s", 100 * (lane + 1) + number));
                }
            });
        }
    });
    machine.drain();
    let prompts = prompts(&db.connect().await, "s").await;
    assert_eq!(prompts.len(), 3 + 16);
    for lane in 0..=4 {
        let of_lane: Vec<u64> = prompts
            .iter()
            .copied()
            .filter(|n| n / 100 == lane)
            .collect();
        assert!(of_lane.is_sorted(), "{prompts:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_costs_the_budget_and_no_event() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://nobody@{}/none", silent.local_addr().unwrap());
    let mut machine = Machine::new(&url);
    machine.timeout_ms = 300;
    let started = Instant::now();
    let stderr = machine.hook("codex", &numbered("s", 0));
    let took = started.elapsed();
    assert!(stderr.contains("did not answer in time"), "{stderr}");
    assert!(machine.spool().holds("s"));
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn a_call_whose_answer_never_came_is_stored_once() {
    let db = TestDb::new().await;
    let mut machine = Machine::new(db.url());
    machine.hook("codex", &numbered("s", 0));
    // Somebody's open transaction holds the session's append lock.
    let mut holder = db.connect().await;
    let open = holder.transaction().await.unwrap();
    open.execute(
        "SELECT lanekeeper.enqueue('hooks', 's', 'user_prompt_submit', '{\"prompt\": 1}')",
        &[],
    )
    .await
    .unwrap();
    machine.timeout_ms = 200;
    let stderr = machine.hook("codex", &numbered("s", 2));
    assert!(stderr.contains("did not answer in time"), "{stderr}");
    open.commit().await.unwrap();
    machine.timeout_ms = 5_000;
    assert_eq!(machine.hook("codex", &numbered("s", 3)), "");
    assert_eq!(prompts(&holder, "s").await, [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_database_without_the_schema_is_an_outage_that_says_what_to_do() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    client
        .batch_execute("DROP SCHEMA lanekeeper CASCADE")
        .await
        .unwrap();
    let machine = Machine::new(db.url());
    let stderr = machine.hook("codex", &numbered("s", 0));
    assert!(stderr.contains("lanekeeper migrate"), "{stderr}");
    assert!(machine.spool().holds("s"));
}

#[tokio::test]
async fn a_payload_over_the_streams_limit_is_kept_aside_and_its_place_is_taken() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let limit = "UPDATE lanekeeper.stream SET max_payload_bytes = 1024 WHERE name = 'hooks'";
    client.batch_execute(limit).await.unwrap();
    let mut machine = Machine::new(db.url());
    let large = |session: &str| {
        json!({"session_id": session, "hook_event_name": "Stop", "text": "x".repeat(5_000)})
            .to_string()
            .into_bytes()
    };
    let stderr = machine.hook("claude-code", &large("direct"));
    assert!(stderr.contains("refused, kept in"), "{stderr}");
    machine.url = NOWHERE.to_owned();
    machine.hook("claude-code", &numbered("spooled", 0));
    machine.hook("claude-code", &large("spooled"));
    machine.hook("claude-code", &numbered("spooled", 2));
    machine.url = db.url().to_owned();
    assert_eq!(machine.drain()["rejected"].as_array().unwrap().len(), 1);

    for (session, place, events) in [("direct", 0, 1), ("spooled", 1, 3)] {
        let log = log(&client, session).await;
        assert_eq!(log.len(), events, "{session}");
        let (event_type, payload) = &log[place];
        assert_eq!(event_type, "agent_stop");
        assert!(
            payload["rejected"]
                .as_str()
                .unwrap()
                .contains("at most 1024"),
            "{payload}"
        );
        let kept = fs::read_to_string(payload["kept_in"].as_str().unwrap()).unwrap();
        assert!(kept.contains(&"x".repeat(5_000)));
    }
    let listed = run(
        &mut machine.command(&["spool", "--rejected", "--output", "json"]),
        b"",
    );
    assert_eq!(text(&listed.stdout).lines().count(), 2);
}

#[tokio::test]
async fn nesting_at_the_limit_is_stored_and_nesting_beyond_any_limit_is_kept() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let deep = |levels: usize| {
        let (open, close) = ("{\"a\":[".repeat(levels / 2), "]}".repeat(levels / 2));
        format!(r#"{{"session_id":"s","hook_event_name":"Stop","a":{open}{close}}}"#)
    };
    for levels in [998, 10_000, 200_000] {
        machine.hook("codex", deep(levels).as_bytes());
    }
    let client = db.connect().await;
    let rows = client
        .query(
            "SELECT payload->>'undecodable' FROM lanekeeper.event ORDER BY seq",
            &[],
        )
        .await
        .unwrap();
    let kept: Vec<Option<String>> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(kept, [None, Some(deep(10_000)), Some(deep(200_000))]);
}

#[tokio::test]
async fn an_undecodable_payload_is_an_error_event_of_its_session() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let stderr = machine.hook(
        "cursor",
        b"{\"session_id\":\"s\",\"command\":\"ls\xff\", broken",
    );
    assert!(stderr.contains("kept as text"), "{stderr}");
    machine.hook("cursor", b"");
    let client = db.connect().await;
    let (event_type, payload) = log(&client, "s").await.remove(0);
    assert_eq!(event_type, "error");
    assert_eq!(payload["code"], "undecodable_payload");
    assert_eq!(log(&client, "unattributed-cursor").await.len(), 1);
}

#[test]
fn wrong_usage_and_a_broken_configuration_exit_0_too() {
    let machine = Machine::new(NOWHERE);
    for arguments in [
        &["hook"][..],
        &["hook", "--cli", "claude"],
        &["hook", "--cli"],
        &["hook", "--no-such-flag"],
        &["--config", "missing.toml", "hook", "--cli", "codex"],
    ] {
        let stderr = answered(&mut machine.command(arguments), &numbered("s", 0));
        assert!(!stderr.is_empty(), "{arguments:?}");
    }
    // The configuration could not be read, but the call was kept.
    assert!(machine.spool().holds("s"));
    let stderr = machine.hook("cursor", &numbered("t", 0));
    assert!(stderr.contains("kept in the spool"), "{stderr}");
}

#[test]
fn an_event_that_can_be_kept_nowhere_is_called_lost() {
    let machine = Machine::new(NOWHERE);
    let mut command = machine.command(&["hook", "--cli", "codex"]);
    command.env("LANEKEEPER_SPOOL__DIR", "/dev/null/spool");
    let stderr = answered(&mut command, &numbered("s", 0));
    assert!(
        stderr.contains("LOST") && stderr.contains("/dev/null/spool"),
        "{stderr}"
    );
}

#[test]
fn a_pipe_that_stays_open_does_not_hang_the_agent() {
    let machine = Machine::new(NOWHERE);
    let mut command = machine.command(&["hook", "--cli", "codex"]);
    let mut child = command
        .env("LANEKEEPER_HOOK__STDIN_TIMEOUT_MS", "200")
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&numbered("s", 0)).unwrap();
    let status = child.wait().unwrap();
    drop(stdin);
    assert!(status.success());
    assert!(machine.spool().holds("s"));
}

#[tokio::test]
async fn cursors_copy_through_claude_codes_hooks_is_left_out_where_its_own_hook_is_wired() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let payload = br#"{"conversation_id":"c","hook_event_name":"preToolUse","cursor_version":"3.8","tool_use_id":"t"}"#;
    assert_eq!(machine.hook("claude-code", payload), "");
    fs::create_dir(machine.home.join(".cursor")).unwrap();
    let hooks = json!({"version": 1, "hooks": {"preToolUse": [{"command": "lanekeeper hook --cli cursor"}]}});
    fs::write(machine.home.join(".cursor/hooks.json"), hooks.to_string()).unwrap();
    assert_eq!(machine.hook("claude-code", payload), "");
    assert_eq!(machine.hook("cursor", payload), "");
    assert_eq!(log(&db.connect().await, "c").await.len(), 2);
}

/// Lines of `{"cli", "payload"}`.
fn lines(folder: &Path) -> Vec<(String, Value)> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .collect();
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        for line in fs::read_to_string(&file).unwrap().lines() {
            let mut line: Value = serde_json::from_str(line).unwrap();
            lines.push((
                line["cli"].as_str().unwrap().to_owned(),
                line["payload"].take(),
            ));
        }
    }
    lines
}

/// The session that a payload belongs to, looked up in another way than by the code under test.
fn session_of(payload: &Value) -> Option<&str> {
    [
        "/session_id",
        "/conversation_id",
        "/thread-id",
        "/input/sessionID",
        "/properties/sessionID",
        "/properties/sessionId",
        "/properties/part/sessionID",
        "/properties/info/sessionID",
        "/properties/info/id",
    ]
    .iter()
    .filter_map(|path| payload.pointer(path)?.as_str())
    .find(|id| !id.is_empty())
}

/// Reads every payload twice, with and without redaction; returns the types that came out.
fn read_all(lines: &[(String, Value)]) -> std::collections::BTreeSet<String> {
    let origin = Origin::now();
    let plain = HookConfig {
        redact_emails: false,
        ..HookConfig::default()
    };
    let mut types = std::collections::BTreeSet::new();
    for (cli, payload) in lines {
        let cli: AgentCli = cli.parse().unwrap();
        let bytes = payload.to_string().into_bytes();
        let call = Call::read(cli, &bytes, true, &origin, &plain);
        let stored: Value = serde_json::from_str(call.record.payload.get()).unwrap();
        assert_eq!(&stored, payload);
        let session = session_of(payload).map_or(format!("unattributed-{cli}"), str::to_owned);
        assert_eq!(call.record.session, session);

        let redacted = Call::read(cli, &bytes, true, &origin, &HookConfig::default());
        let text = redacted.record.payload.get();
        assert!(serde_json::from_str::<Value>(text).is_ok());
        assert!(!text.contains("user@example.com"), "{text}");
        if !payload.to_string().contains('@') {
            assert_eq!(serde_json::from_str::<Value>(text).unwrap(), stored);
        }
        types.insert(call.record.event_type);
    }
    types
}

#[test]
fn every_payload_of_the_fixtures_has_a_type_and_a_session_and_stays_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hooks");
    let lines = lines(&folder);
    assert!(lines.len() >= 200);
    for cli in AgentCli::ALL {
        assert!(lines.iter().any(|(name, _)| name == cli.name()), "{cli}");
    }
    let types = read_all(&lines);
    for mapped in MAPPED {
        assert!(types.contains(mapped), "{mapped}");
    }
}

#[test]
fn every_recorded_payload_has_a_type_and_a_session_and_stays_whole() {
    let shared = std::env::var_os("LANEKEEPER_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        PathBuf::from,
    );
    let folder = shared.join("data/hooks");
    if !folder.is_dir() {
        eprintln!(
            "skipped: there are no recorded payloads at {}",
            folder.display()
        );
        return;
    }
    let lines = lines(&folder);
    read_all(&lines);
    println!("{} recorded payloads", lines.len());
    let broken = fs::read_to_string(folder.join("undecodable/cursor-cp949.txt")).unwrap();
    for line in broken.lines() {
        let call = Call::read(
            AgentCli::Cursor,
            line.as_bytes(),
            true,
            &Origin::now(),
            &HookConfig::default(),
        );
        assert_eq!(call.record.event_type, "error");
        assert!(
            !call.record.session.starts_with("unattributed"),
            "{}",
            call.record.session
        );
        assert!(!call.record.payload.get().contains("user@example.com"));
    }
}
