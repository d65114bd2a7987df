//! The dashboard in a real Chromium: `tests/browser/run.mjs`. Its screenshots are in `target/dashboard/`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::desk::Desk;
use crate::process::plant::LIMIT;
use crate::support::wait_until;

const WITHIN: Duration = Duration::from_secs(300);

/// Where scripts/install-requirements.sh puts the packages of `tests/browser/package.json`.
fn tools() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("browser-tools")
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_finds_what_is_stuck_and_mends_it_in_a_real_browser() {
    let Some(chromium) = chromium().filter(|_| tools().join("node_modules").is_dir()) else {
        eprintln!("skipped: scripts/install-requirements.sh browser installs what this test needs");
        return;
    };
    let desk = Desk::open(&[]).await;
    desk.dead_letters("billing-7", 10).await;
    desk.plant
        .client
        .batch_execute(
            "SELECT lanekeeper.enqueue('runs', 'checkout-' || n, 'order_placed', jsonb_build_object('order', n, 'total', 12.50))
             FROM generate_series(1, 30) AS n;
             INSERT INTO lanekeeper.agent_session (session_id, seq, native_session_id, cli, host, cwd, model, last_activity,
                 last_activity_at, last_prompt, turn_state, turn, turn_started_at)
             SELECT n.session_id, 1, n.name, 'claude-code', 'build-3', '/home/dev/shop', 'a-model', 'user_prompt_submit', now(),
                 'Make the tests of the checkout pass', 'running', 4, now() - interval '3 minutes'
             FROM lanekeeper.session AS n WHERE n.name = 'checkout-1'",
        )
        .await
        .unwrap();
    desk.plant.settled().await;
    desk.plant.receiver.set_broken(true);
    for n in 1..=3 {
        let payload = format!("{{\"order\":42,\"line\":{n}}}");
        desk.append("checkout-42", "order_changed", &payload).await;
    }
    let parked = desk.block("invoices-3", 2).await;
    desk.plant
        .client
        .execute(
            "SELECT lanekeeper.change_lane($1, 'park', 'waiting for the customer')",
            &[&parked],
        )
        .await
        .unwrap();
    wait_until(LIMIT, "its head has failed", async || {
        desk.lane_text("checkout-42", "state").await == "blocked"
    })
    .await;

    let token = desk
        .token(&["night-shift", "--scope", "read", "--scope", "operate"])
        .await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let child = Command::new("node")
        .arg(root.join("tests/browser/run.mjs"))
        .env("URL", desk.worker.http())
        .env("TOKEN", token)
        .env("TOOLS", tools())
        .env("CHROMIUM", chromium)
        .env("OUT", tools().with_file_name("dashboard"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // The destination is back when the operator has skipped what it does not take.
    let mending = async {
        let skipped = "SELECT count(*) FROM lanekeeper.operation WHERE action = 'skip' AND reason LIKE 'known bad payload%'";
        wait_until(WITHIN, "the head is skipped", async || {
            desk.plant.count(skipped).await == 1
        })
        .await;
        desk.plant.receiver.set_broken(false);
    };
    let run = async {
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (said, failed) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}\n{failed}");
    };
    let both = async {
        tokio::pin!(run);
        tokio::select! {
            () = &mut run => {}
            () = mending => run.await,
        }
    };
    timeout(WITHIN, both)
        .await
        .expect("the browser ends in time");
    let open =
        "SELECT count(*) FROM lanekeeper.dead WHERE resolution IS NULL AND requeued_at IS NULL";
    assert_eq!(desk.plant.count(open).await, 0);
}
