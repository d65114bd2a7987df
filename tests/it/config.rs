//! `lanekeeper config`, and how wrong command lines and configurations are refused.

use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use crate::command::{command, run};

mod files;

const URL: (&str, &str) = ("DATABASE_URL", "postgres://me:hunter2@db.example:6000/app");

#[tokio::test]
async fn every_setting_is_printed_with_its_source_and_no_secret() {
    let variables = [URL, ("LANEKEEPER_WORKER__BATCH", "50")];
    let ran = run(&["config", "--output", "json"], &variables, "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let line = |key: &str| lines.iter().find(|line| line["key"] == key).unwrap();
    assert_eq!(
        line("database.url")["value"],
        "postgres://me:***@db.example:6000/app"
    );
    assert_eq!(line("database.url")["source"], "DATABASE_URL");
    assert_eq!(line("worker.batch")["value"], "50");
    assert_eq!(line("worker.batch")["source"], "LANEKEEPER_WORKER__BATCH");
    assert_eq!(line("worker.max_lanes")["source"], "default");
    assert_eq!(line("spool.dir")["value"], Value::Null);

    let text = run(&["config"], &variables, "").await;
    assert!(text.stdout.starts_with("KEY "), "{}", text.stdout);
    assert!(!format!("{}{}{}", ran.stdout, text.stdout, text.stderr).contains("hunter2"));
}

#[tokio::test]
async fn a_wrong_variable_exits_2_and_names_the_right_one() {
    let ran = run(&["config"], &[("LANEKEEPER_WORKER__BATHC", "1")], "").await;
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr
            .contains("did you mean LANEKEEPER_WORKER__BATCH?"),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.stdout, "");
}

#[tokio::test]
async fn a_configuration_file_that_is_named_must_exist() {
    let ran = run(&["--config", "missing.toml", "config"], &[], "").await;
    assert_eq!(ran.code, Some(2));
    assert_eq!(
        ran.stderr,
        "error: the configuration file missing.toml does not exist\n"
    );
}

#[tokio::test]
async fn hook_never_exits_2() {
    for arguments in [
        &["hook", "--no-such-flag"][..],
        &["hook", "--cli", "no-such-cli"],
    ] {
        assert_eq!(run(arguments, &[], "").await.code, Some(0), "{arguments:?}");
    }
    let wrong = [("LANEKEEPER_NO_SUCH", "1")];
    assert_eq!(
        run(&["hook", "--cli", "codex"], &wrong, "{}").await.code,
        Some(0)
    );
    assert_eq!(run(&["no-such-command"], &[], "").await.code, Some(2));
}

#[tokio::test]
async fn a_reader_that_leaves_early_is_no_failure() {
    let mut child = command(&["config"], &[]).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .await
        .unwrap();
    assert_eq!(
        (child.wait().await.unwrap().code(), stderr.as_str()),
        (Some(0), "")
    );
}

#[tokio::test]
async fn help_is_on_standard_output_with_an_example() {
    let ran = run(&["apply", "--help"], &[], "").await;
    assert_eq!(ran.code, Some(0));
    assert!(
        ran.stdout.contains("[subscription.audit]"),
        "{}",
        ran.stdout
    );
}

#[tokio::test]
async fn a_database_that_is_absent_or_unset_is_told_with_what_to_do() {
    let ran = run(&["apply", "-f", "-"], &[], "").await;
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr
            .contains("no database is configured\n  do: set DATABASE_URL")
    );

    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("postgres://me:hunter2@127.0.0.1:{port}/app");
    let ran = run(&["migrate"], &[("DATABASE_URL", &url)], "").await;
    assert_eq!(ran.code, Some(75), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("no PostgreSQL answers at 127.0.0.1:"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("hunter2"));
}
