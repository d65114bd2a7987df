//! The API under generated requests: a property-based client (schemathesis) reads `/openapi.json`, sends what fits it and
//! what does not, and finds no failure of the server and no answer that the document lacks.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::site::Site;
use crate::process::plant::LIMIT;
use crate::support::wait_until;

const WITHIN: Duration = Duration::from_secs(240);
/// Of the generated requests. Another one finds other things: `API_SEED=5`.
const SEED: &str = "17";
/// Requests for each operation and phase. `API_EXAMPLES=200` looks longer.
const EXAMPLES: &str = "12";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method,\
                      allow_header_conformance,ignored_auth";
/// Their answers do not end; tests/it/live reads them.
const ENDLESS: &str = "^follow_";

/// Where scripts/install-requirements.sh puts the packages of scripts/api/requirements.txt.
fn client() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let client = target.join("api-tools/python/bin/schemathesis");
    client.is_file().then_some(client)
}

fn setting(name: &str, usual: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| usual.to_owned())
}

/// Something of each kind for the requests to meet.
async fn furnish(site: &Site) {
    site.plant
        .client
        .batch_execute(
            "SELECT lanekeeper.enqueue('runs', 's' || n, 'step', '{}') FROM generate_series(1, 5) AS n;
             SELECT lanekeeper.put_document('note', 'n1', '{\"text\":\"x\"}')",
        )
        .await
        .unwrap();
    site.plant.settled().await;
    site.plant
        .client
        .batch_execute(
            "INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, created_at, attempts, crashes, error)
             SELECT l.lane_id, 1, gen_random_uuid(), 'step', '{}', now(), 3, 0, 'status 500' FROM lanekeeper.lane AS l",
        )
        .await
        .unwrap();
    wait_until(LIMIT, "there are dead letters", async || {
        site.plant
            .count("SELECT count(*) FROM lanekeeper.dead")
            .await
            > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_requests_find_no_failure_and_no_answer_that_is_not_in_the_document() {
    let Some(client) = client() else {
        eprintln!("skipped: scripts/install-requirements.sh api installs what this test needs");
        return;
    };
    let site = Site::open(&[]).await;
    furnish(&site).await;
    let scopes = [
        "--scope", "produce", "--scope", "read", "--scope", "operate",
    ];
    let token = site.token(&[&["fuzz"], &scopes[..]].concat()).await;
    let running = Command::new(client)
        .arg("run")
        .arg(site.worker.http() + "/openapi.json")
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--checks", CHECKS])
        .args(["--exclude-operation-id-regex", ENDLESS])
        .args(["--phases", "coverage,fuzzing"])
        .args(["--max-examples", &setting("API_EXAMPLES", EXAMPLES)])
        .args(["--seed", &setting("API_SEED", SEED)])
        .args(["--suppress-health-check", "all"])
        .args([
            "--request-timeout",
            "30",
            "--continue-on-failure",
            "--no-color",
        ])
        .stdin(Stdio::null())
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .kill_on_drop(true)
        .output();
    let ran = timeout(WITHIN, running)
        .await
        .expect("it ends in time")
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    // It has tried them, and not passed everything over.
    assert!(
        said.contains("Coverage") && said.contains("Fuzzing"),
        "{said}"
    );
}
