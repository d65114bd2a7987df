//! Runs a command once, and collects its exit code and its output.

use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::support::lanekeeper;

pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The program with these arguments and variables, away from any `lanekeeper.toml`.
pub fn command(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = lanekeeper();
    command
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end with `input` on standard input.
pub async fn run(arguments: &[&str], variables: &[(&str, &str)], input: &str) -> Ran {
    let mut child = command(arguments, variables).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that reads nothing may have ended by now.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
