//! The protocol's own client (`@durable-streams/client`, unmodified): tests/durable/client.mjs.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::conformance::tools;
use super::site;

#[tokio::test(flavor = "multi_thread")]
async fn the_protocols_own_client_writes_follows_and_deletes_with_an_access_token() {
    let Some(tools) = tools() else {
        return;
    };
    let site = site().await;
    let scopes = [
        "--scope", "read", "--scope", "produce", "--scope", "operate",
    ];
    let token = site
        .token(&[&["c"], &scopes[..], &["--stream", "runs"]].concat())
        .await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durable");
    std::fs::copy(root.join("client.mjs"), tools.join("client.mjs")).unwrap();
    let client = Command::new("node")
        .args(["client.mjs", &site.worker.http(), &token])
        .current_dir(&tools)
        .kill_on_drop(true)
        .output();
    let ran = timeout(Duration::from_secs(60), client)
        .await
        .expect("it hangs")
        .unwrap();
    let (said, error) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert_eq!(said, "followed\npolled\nbytes\ndeleted\n", "{error}");
    // What it wrote went the way of every event, each once.
    site.plant.settled().await;
    let delivered = "SELECT count(*) FROM lanekeeper.lane_status WHERE stream = 'runs' AND session = 'team/run-1' AND behind = 0";
    assert_eq!(site.plant.count(delivered).await, 1);
    let logged = "SELECT count(*) FROM lanekeeper.event AS e JOIN lanekeeper.session AS s USING (session_id) WHERE s.name = 'team/run-1'";
    assert_eq!(site.plant.count(logged).await, 104);
}
