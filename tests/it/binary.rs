//! Runs the real binary with an environment of its own.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// What a run left behind.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The binary in an empty folder with these variables and no others.
pub fn lanekeeper(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanekeeper"));
    command
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        // No lanekeeper.toml of a developer is read.
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end with `input` on standard input.
pub fn run(arguments: &[&str], variables: &[(&str, &str)], input: &str) -> Ran {
    let mut child = lanekeeper(arguments, variables).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that reads nothing may have ended by now.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
