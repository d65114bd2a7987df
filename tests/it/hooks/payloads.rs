//! Every payload that is available: the repository's and recorded ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lanekeeper_streams::hooks::call::Call;
use lanekeeper_streams::hooks::config::HookConfig;
use lanekeeper_streams::hooks::event_type::MAPPED;
use lanekeeper_streams::hooks::origin::Origin;
use lanekeeper_streams::hooks::shape::AgentCli;
use serde_json::Value;

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/demo")
}

/// Recordings of real sessions, which are not part of the repository.
pub fn recorded() -> Option<PathBuf> {
    let shared = std::env::var_os("LANEKEEPER_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        PathBuf::from,
    );
    let folder = shared.join("data/hooks");
    if !folder.is_dir() {
        eprintln!("there are no recorded payloads at {}", folder.display());
        return None;
    }
    Some(folder)
}

/// Lines of `{"cli", "payload"}`.
pub fn lines(folder: &Path) -> Vec<(String, Value)> {
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
fn read_all(lines: &[(String, Value)]) -> BTreeSet<String> {
    let origin = Origin::now();
    let plain = HookConfig {
        redact_emails: false,
        ..HookConfig::default()
    };
    let mut types = BTreeSet::new();
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
    let mut lines = lines(&fixtures());
    assert!(lines.len() >= 200);
    // Qwen Code sends what Claude Code sends.
    let of_claude = lines.iter().filter(|(cli, _)| cli == "claude-code");
    let as_qwen: Vec<_> = of_claude
        .map(|(_, payload)| ("qwen".to_owned(), payload.clone()))
        .collect();
    lines.extend(as_qwen);
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
    let Some(folder) = recorded() else {
        return;
    };
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
