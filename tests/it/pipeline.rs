//! The main job from end to end: every payload that is available goes through a `lanekeeper hook` process of its own,
//! two worker processes and a signed webhook. Exactly the expected events arrive: each once, and each session in the
//! order of its calls.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use lanekeeper_streams::hooks::call::Call;
use lanekeeper_streams::hooks::config::HookConfig;
use lanekeeper_streams::hooks::origin::Origin;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

use crate::hooks::payloads::{fixtures, lines, recorded};
use crate::process::plant::Plant;
use crate::support::{TestDb, lanekeeper};

/// Hook processes at a time.
const CALLS: usize = 8;

/// One call of an agent CLI, and what is to become of it.
struct HookCall {
    cli: String,
    payload: Value,
    /// `None`: it is not on the allowlist.
    event_type: Option<String>,
    /// On standard error.
    told: String,
}

/// The calls of each session, in the order of their lines.
fn sessions() -> BTreeMap<String, Vec<HookCall>> {
    let (config, origin) = (HookConfig::default(), Origin::now());
    let mut sessions: BTreeMap<String, Vec<HookCall>> = BTreeMap::new();
    for (cli, payload) in lines(&recorded().unwrap_or_else(fixtures)) {
        let bytes = payload.to_string().into_bytes();
        let Call { record, note, .. } =
            Call::read(cli.parse().unwrap(), &bytes, true, &origin, &config);
        let event_type = config
            .allows(&record.event_type)
            .then_some(record.event_type);
        let note = note.filter(|_| event_type.is_some());
        let told = note.map(|note| format!("lanekeeper hook: {note}\n"));
        sessions.entry(record.session).or_default().push(HookCall {
            cli,
            payload,
            event_type,
            told: told.unwrap_or_default(),
        });
    }
    sessions
}

async fn hook(url: &str, home: &TempDir, call: &HookCall) {
    let mut command = lanekeeper();
    command
        .args(["hook", "--cli", &call.cli])
        .env("DATABASE_URL", url)
        .env("HOME", home.path())
        // Enough for a loaded machine: that a call goes to the spool is tested elsewhere.
        .env("LANEKEEPER_HOOK__TIMEOUT_MS", "10000")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let payload = call.payload.to_string();
    let mut input = payload.as_bytes();
    if call.cli == "codex-notify" {
        command.arg(&payload);
        input = b"";
    }
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // One that has its payload as an argument may have ended by now.
    let _ = stdin.write_all(input).await;
    drop(stdin);
    let ended = child.wait_with_output().await.unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!((ended.status.code(), told), (Some(0), call.told.clone()));
    assert!(ended.stdout.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hook_call_that_fans_out_arrives_once_signed_and_in_the_order_of_its_session() {
    let plant = Plant::of("hooks", TestDb::new().await, Duration::ZERO).await;
    let workers = [plant.worker(&[]).await, plant.worker(&[]).await];
    let home = tempfile::tempdir().unwrap();
    let sessions = sessions();
    let calls: usize = sessions.values().map(Vec::len).sum();
    let start = Instant::now();
    stream::iter(sessions.values())
        .for_each_concurrent(CALLS, async |calls| {
            for call in calls {
                hook(&plant.url, &home, call).await;
            }
        })
        .await;
    println!("{calls} hook calls in {:.1?}", start.elapsed());
    plant.settled().await;

    let fan_out: Vec<String> = plant
        .client
        .query_one(
            "SELECT fan_out FROM lanekeeper.stream WHERE name = 'hooks'",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    let mut due: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for (session, calls) in &sessions {
        let stored = calls.iter().filter_map(|call| call.event_type.as_ref());
        let fanned_out = stored
            .zip(1_i64..)
            .filter(|(kind, _)| fan_out.contains(kind));
        let seqs: Vec<i64> = fanned_out.map(|(_, seq)| seq).collect();
        if !seqs.is_empty() {
            due.insert(session, seqs);
        }
    }
    let seen = plant.receiver.seen();
    assert_eq!(seen.refused, [""; 0]);
    let (arrived, repeats) = seen.deduplicated();
    assert_eq!(arrived, due);
    assert_eq!(repeats, 0);
    println!(
        "{} events of {} sessions arrived, each once",
        seen.arrivals.len(),
        arrived.len()
    );
    let of_out = "SELECT count(*) FROM lanekeeper.outcome AS o JOIN lanekeeper.lane AS l ON l.lane_id = o.lane_id
        JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id WHERE s.name = 'out'";
    let outcomes = plant.count(of_out).await;
    assert_eq!(outcomes, 0, "none that fans out may be merged or dropped");
    for worker in workers {
        assert!(worker.stop().await.success());
    }
    let after = plant.receiver.seen().arrivals.len();
    assert_eq!(after, seen.arrivals.len(), "nothing else arrives");
}
