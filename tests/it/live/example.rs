//! D4: examples/live/follow.mjs, as a program uses it.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::client::LIMIT;
use crate::process::plant::Plant;
use crate::support::{Proxy, Upstream};

/// Prints the seqs of events and the types of notices.
const PROGRAM: &str = r#"
    import { follow } from "./examples/live/follow.mjs";
    follow(process.argv[1], {
        onEvent: (event) => console.log(event.seq),
        onNotice: (notice) => { console.log(notice.type); if (notice.type === "end") process.exit(0); },
        retryMs: 50,
    });
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_javascript_module_follows_a_run_through_cuts_and_ends_with_it() {
    let plant = Plant::new(Duration::ZERO).await;
    let open = [("LANEKEEPER_HTTP__ALLOW_UNAUTHENTICATED", "true")];
    let worker = plant.worker(&open).await;
    let address = worker.http().replace("http://", "").parse().unwrap();
    let proxy = Proxy::start(Upstream::Tcp(address), crate::support::Protocol::Http).await;
    let enqueue = async |count: i64| {
        let statement = "SELECT lanekeeper.enqueue('runs', 'r1', 'step', to_jsonb('ä'::text)) FROM generate_series(1, $1::bigint)";
        plant.client.execute(statement, &[&count]).await.unwrap();
    };
    enqueue(5).await;
    let url = format!(
        "http://{}/v1/streams/runs/sessions/r1/events/live",
        format_args!("127.0.0.1:{}", proxy.port())
    );
    let mut node = Command::new("node")
        .args(["--input-type=module", "-e", PROGRAM, &url])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    let mut next = async || {
        timeout(LIMIT, lines.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap()
    };
    for seq in 1..=50 {
        assert_eq!(next().await, seq.to_string());
        if seq % 5 == 0 && seq < 50 {
            if seq % 10 == 0 {
                proxy.cut();
            }
            enqueue(5).await;
        }
    }
    let close = "SELECT lanekeeper.close_session('runs', 'r1')";
    plant.client.batch_execute(close).await.unwrap();
    assert_eq!(next().await, "end");
    assert!(
        timeout(LIMIT, node.wait())
            .await
            .unwrap()
            .unwrap()
            .success()
    );
}
