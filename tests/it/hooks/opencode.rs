//! The OpenCode plugin of docs/hooks.md, run by node instead of OpenCode.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::document::{blocks, section};

const HOOKS: &str = include_str!("../../../docs/hooks.md");

/// Records each call behind the others, after `$TAKES` seconds.
const FAKE: &str = r#"#!/bin/sh
input=$(cat)
sleep "$TAKES"
printf '%s\n' "$input" >> "$RECORD"
"#;

/// Makes `calls` tool calls, one prompt behind the first of them, and exits at once, or by a signal where one is given.
const DRIVER: &str = r#"
import { existsSync, readFileSync } from "node:fs"
import { Lanekeeper } from "./lanekeeper.mjs"
const hooks = await Lanekeeper()
const calls = Number(process.argv[2])
for (let n = 0; n < calls; n++) {
  hooks["tool.execute.before"]({ sessionID: "o", n })
  if (n === 0) hooks["chat.message"]({ sessionID: "o" }, { parts: [{ type: "text", text: "x".repeat(200000) }] })
}
hooks.event({ event: { type: "server.connected", properties: {} } })
hooks.event({ event: { type: "session.idle", properties: { sessionID: "o" } } })
const record = process.env.RECORD
console.log(existsSync(record) ? readFileSync(record, "utf8").split("\n").length - 1 : 0)
if (process.argv[3]) process.kill(process.pid, process.argv[3])
else process.exit()
"#;

struct Ran {
    output: Output,
    /// In the order in which they were made.
    recorded: Vec<Value>,
    _dir: TempDir,
}

impl Ran {
    /// Calls that were over when the last one had been made.
    fn waited_for(&self) -> usize {
        let text = String::from_utf8(self.output.stdout.clone()).unwrap();
        text.trim().parse().unwrap()
    }

    /// Which event each recorded call is of.
    fn kinds(&self) -> Vec<&str> {
        let kind = |call: &'_ Value| call["hook_type"].is_string();
        self.recorded
            .iter()
            .map(|call| match kind(call) {
                true => call["hook_type"].as_str().unwrap(),
                false => call["type"].as_str().unwrap(),
            })
            .collect()
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn drive(calls: usize, takes: &str, signal: Option<&str>) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let shim = blocks(section(HOOKS, "Wiring"), "js");
    assert_eq!(shim.len(), 1);
    write(&dir.path().join("lanekeeper.mjs"), shim[0]);
    write(&dir.path().join("driver.mjs"), DRIVER);
    write(&dir.path().join("lanekeeper"), FAKE);
    let record = dir.path().join("record");
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("node")
        .args([
            dir.path().join("driver.mjs").to_str().unwrap(),
            &calls.to_string(),
        ])
        .args(signal)
        .env("PATH", format!("{}:{path}", dir.path().display()))
        .env("TMPDIR", dir.path())
        .env("RECORD", &record)
        .env("TAKES", takes)
        .output()
        .expect("node is there: scripts/install-requirements.sh node");
    assert_eq!(output.status.success(), signal.is_none(), "{output:?}");
    let recorded = fs::read_to_string(&record).unwrap();
    let recorded = recorded
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("lanekeeper-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    Ran {
        recorded: recorded.collect(),
        output,
        _dir: dir,
    }
}

#[test]
fn the_opencode_plugin_does_not_wait_and_its_calls_arrive_in_order_past_the_exit() {
    let ran = drive(6, "0.02", None);
    assert_eq!(
        ran.waited_for(),
        0,
        "a call that was waited for is recorded"
    );
    let mut kinds = ran.kinds();
    assert_eq!(kinds.remove(1), "chat.message");
    assert_eq!(
        kinds.pop(),
        Some("session.idle"),
        "and nothing of the server's"
    );
    assert_eq!(kinds, ["tool.execute.before"; 6]);
    let numbers = ran
        .recorded
        .iter()
        .filter_map(|call| call["input"]["n"].as_u64());
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let text = ran.recorded[1]["output"]["parts"][0]["text"].as_str();
    assert_eq!(text.map(str::len), Some(200_000), "all of a large one");
    assert_eq!(String::from_utf8_lossy(&ran.output.stderr), "");
}

#[test]
fn a_full_queue_of_the_opencode_plugin_gives_up_old_tool_calls_and_says_how_many() {
    let ran = drive(1_500, "0.5", None);
    let kinds = ran.kinds();
    // The first was on its way, and a prompt is kept.
    assert_eq!(kinds[..2], ["tool.execute.before", "chat.message"]);
    let third = ran.recorded[2]["input"]["n"].as_u64().unwrap();
    assert!(third > 400, "{third}: older tool calls went");
    let lost = 1_502 - ran.recorded.len();
    let said = String::from_utf8_lossy(&ran.output.stderr);
    assert_eq!(
        said,
        format!("lanekeeper: {lost} calls were not recorded\n")
    );
}

#[test]
fn a_signal_that_ends_opencode_ends_it_after_its_calls_are_recorded() {
    let ran = drive(3, "0.02", Some("SIGTERM"));
    assert_eq!(
        ran.output.status.signal(),
        Some(15),
        "the signal's own effect"
    );
    assert_eq!(ran.recorded.len(), 5);
    assert_eq!(ran.kinds().last(), Some(&"session.idle"));
}
