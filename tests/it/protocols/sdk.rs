//! The SDKs, which are programs of Python and Node.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::document::repository;

/// Where scripts/install-requirements.sh puts what tests/protocols needs.
fn tools() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("protocol-tools")
}

/// The program that runs a script of tests/protocols; `None` where what it needs is not installed.
pub(super) fn script(name: &str) -> Option<Command> {
    let tools = tools();
    let (program, needed) = if name.ends_with(".mjs") {
        let package = match name.starts_with("a2a") {
            true => "@a2a-js/sdk",
            false => "cloudevents",
        };
        (
            PathBuf::from("node"),
            tools.join("node_modules").join(package),
        )
    } else {
        let python = tools.join("python/bin/python");
        (python.clone(), python)
    };
    if !needed.exists() {
        eprintln!(
            "skipped: scripts/install-requirements.sh protocols installs what this test needs"
        );
        return None;
    }
    let mut command = Command::new(program);
    command
        .arg(repository(&format!("tests/protocols/{name}")))
        .env("TOOLS", tools)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Some(command)
}

/// What a script answers to this input.
pub(super) fn ask(name: &str, arguments: &[&str], input: &Value) -> Option<Value> {
    let mut child = script(name)?
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{name} ended with {}",
        output.status
    );
    Some(serde_json::from_slice(&output.stdout).unwrap())
}
