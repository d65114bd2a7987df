//! The protocol's own suite (`@durable-streams/server-conformance-tests`, unmodified) against a worker.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;

use crate::api::site::Site;
use crate::command::run;

const WITHIN: Duration = Duration::from_secs(420);
const LONG_POLL_MS: &str = "2000";
/// Below this there would be little of the suite left.
const FEWEST: usize = 240;

/// Where scripts/install-requirements.sh puts the packages of `tests/durable/package.json`.
pub fn tools() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let tools = target.join("durable-tools");
    let is_there = tools.join("node_modules").is_dir();
    if !is_there {
        eprintln!("skipped: scripts/install-requirements.sh durable installs what this test needs");
    }
    is_there.then_some(tools)
}

/// What vitest reports.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    test_results: Vec<File>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    assertion_results: Vec<Test>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Test {
    ancestor_titles: Vec<String>,
    title: String,
    status: String,
    #[serde(default)]
    failure_messages: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_test_of_the_protocols_own_suite_passes_or_its_group_stands_in_the_docs_with_the_reason()
 {
    let Some(tools) = tools() else {
        return;
    };
    // The suite's paths begin with /v1/stream/: below /v1/ds they are sessions `stream/…` of a stream `v1`.
    let site = Site::open(&[
        ("LANEKEEPER_DURABLE_STREAMS__STREAMS", "v1"),
        ("LANEKEEPER_DURABLE_STREAMS__LONG_POLL_MS", LONG_POLL_MS),
        ("LANEKEEPER_LIVE__CORS_ORIGINS", "*"),
    ])
    .await;
    let database = [("DATABASE_URL", site.plant.url.as_str())];
    let applied = run(&["apply", "-f", "-"], &database, "[stream.v1]\n").await;
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durable");
    for file in ["conformance.test.mjs", "vitest.config.mjs"] {
        std::fs::copy(root.join(file), tools.join(file)).unwrap();
    }
    let report = tempfile::NamedTempFile::new().unwrap();
    let suite = Command::new("node")
        .args(["node_modules/vitest/vitest.mjs", "run", "--reporter=json"])
        .arg(format!("--outputFile={}", report.path().display()))
        .current_dir(&tools)
        .env("URL", format!("{}/v1/ds", site.worker.http()))
        .env("LONG_POLL_MS", LONG_POLL_MS)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .output();
    let ran = timeout(WITHIN, suite).await.expect("it hangs").unwrap();
    let report = std::fs::read_to_string(report.path()).unwrap();
    let report: Report = serde_json::from_str(&report)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&ran.stderr)));
    let tests: Vec<&Test> = report
        .test_results
        .iter()
        .flat_map(|file| &file.assertion_results)
        .collect();
    let count = |status: &str| tests.iter().filter(|test| test.status == status).count();
    println!(
        "{} passed, {} failed, {} skipped of {}",
        count("passed"),
        count("failed"),
        tests.len() - count("passed") - count("failed"),
        tests.len()
    );
    let docs = include_str!("../../../docs/durable-streams.md");
    let group = |test: &Test| test.ancestor_titles.first().cloned().unwrap_or_default();
    let unexplained: Vec<String> = tests
        .iter()
        .filter(|test| test.status != "passed")
        .filter(|test| group(test).is_empty() || !docs.contains(&format!("`{}`", group(test))))
        .map(|test| {
            let why = test.failure_messages.join("\n");
            format!(
                "{} > {}: {}",
                test.ancestor_titles.join(" > "),
                test.title,
                why
            )
        })
        .collect();
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n\n"));
    assert!(count("passed") >= FEWEST, "{}", count("passed"));
}
