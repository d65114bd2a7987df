//! Every workload of `bench`, at sizes too small to measure: it runs, and its results have all their fields.

use serde_json::Value;

use super::{Ran, run, run_json};
use crate::support::TestDb;

/// The lines of one workload, without the environment that comes first.
async fn bench(args: &[&str]) -> Vec<Value> {
    let db = TestDb::new().await;
    let mut lines = run_json(&db, &[&["bench"], args, &["--runs", "1"]].concat()).await;
    let environment = lines.remove(0);
    assert_eq!(environment["kind"], "environment");
    assert!(environment["cores"].as_u64() > Some(0), "{environment}");
    assert!(
        environment["postgres"]["fsync"].is_string(),
        "{environment}"
    );
    lines
}

/// Asserts the kind of a line, and that these members are numbers.
#[track_caller]
fn assert_line(line: &Value, kind: &str, numbers: &[&str]) {
    assert_eq!(line["kind"], kind, "{line}");
    for name in numbers {
        assert!(line[name].is_number(), "{name} is missing: {line}");
    }
}

/// A comparison at this place of its series.
#[track_caller]
fn assert_comparison(line: &Value, place: Option<(&str, f64)>) {
    assert_line(line, "comparison", &["ratio", "value", "reference"]);
    assert_eq!(line["values"].as_array().unwrap().len(), 1, "{line}");
    assert!(line["value"].as_f64() > Some(0.0), "{line}");
    if let Some((axis, at)) = place {
        assert_eq!(line["place"]["axis"], axis, "{line}");
        assert_eq!(line["place"]["at"], at, "{line}");
    }
}

#[track_caller]
fn assert_costs(line: &Value) {
    assert_line(line, "costs", &[]);
    for side in ["value", "reference"] {
        assert_line_cost(&line[side]);
    }
}

#[track_caller]
fn assert_line_cost(cost: &Value) {
    assert!(cost["wal_bytes"].is_number(), "{cost}");
    for name in ["server_cpu_us", "client_cpu_us"] {
        // null where the server runs elsewhere.
        assert!(cost.get(name).is_some(), "{cost}");
    }
}

#[tokio::test]
async fn a_drain_beside_blocked_lanes_has_a_place_for_each_case() {
    let lines = bench(&[
        "blocked-backlog",
        "--blocked=3,5",
        "--blocked-events=2",
        "--sessions=4",
        "--events=3",
    ])
    .await;
    assert_eq!(lines.len(), 2);
    assert_comparison(&lines[0], Some(("blocked lanes", 3.0)));
    assert_comparison(&lines[1], Some(("blocked lanes", 5.0)));
    assert_eq!(lines[1]["target"], 0.95);
    assert_eq!(lines[1]["case"], "4 x 3 beside 5 x 2 blocked");
}

#[tokio::test]
async fn a_drain_beside_dormant_lanes_is_compared_with_one_alone() {
    let lines = bench(&["resting", "--resting=5", "--sessions=4", "--events=3"]).await;
    assert_eq!(lines.len(), 1);
    assert_comparison(&lines[0], Some(("resting lanes", 5.0)));
}

#[tokio::test]
async fn a_log_of_many_partitions_is_compared_with_one_partition() {
    let lines = bench(&[
        "partitions",
        "--days=3",
        "--events-per-day=4",
        "--sessions=6",
        "--events=2",
        "--seconds=0.2",
    ])
    .await;
    assert_eq!(lines.len(), 4);
    for line in &lines {
        assert_comparison(line, None);
        assert_eq!(line["against"], "the same events in one partition");
    }
}

#[tokio::test]
async fn a_held_snapshot_is_measured_window_by_window_beside_none() {
    let lines = bench(&[
        "held-snapshot",
        "--seconds=1",
        "--rate=40",
        "--paced-sessions=6",
    ])
    .await;
    assert_eq!(lines.len(), 1);
    let trend = &lines[0];
    let numbers = [
        "ratio",
        "target",
        "reference_ratio",
        "rate_kept",
        "asked_per_second",
    ];
    assert_line(trend, "trend", &numbers);
    for side in ["windows", "reference_windows"] {
        let windows = trend[side].as_array().unwrap();
        assert_eq!(windows.len(), 2, "{trend}");
        for window in windows {
            for name in [
                "to_s",
                "delivered_per_second",
                "p50_ms",
                "p99_ms",
                "call_p99_ms",
            ] {
                assert!(window[name].is_number(), "{name} is missing: {window}");
            }
            for table in ["ready", "progress", "event"] {
                assert!(window["tables"][table]["dead_rows"].is_number(), "{window}");
                assert!(
                    window["tables"][table]["mib"].as_f64() > Some(0.0),
                    "{window}"
                );
            }
        }
        let sum: f64 = windows
            .iter()
            .filter_map(|window| window["delivered_per_second"].as_f64())
            .sum();
        assert!(sum > 0.0, "nothing was delivered: {trend}");
    }
}

#[tokio::test]
async fn a_steady_load_has_a_latency_from_the_answer_and_from_the_call() {
    let lines = bench(&["steady", "--seconds=1", "--rate=40", "--paced-sessions=6"]).await;
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert_line(line, "distribution", &["p50_ms", "p99_ms", "max_ms"]);
        assert!(line["samples"].as_u64() > Some(0), "{line}");
    }
    assert_eq!(lines[0]["target_p99_ms"], 10.0);
}

#[tokio::test]
async fn a_drain_by_several_processes_is_compared_with_one_and_has_its_costs() {
    let lines = bench(&["replicas", "--replicas=1,2", "--sessions=4", "--events=3"]).await;
    assert_eq!(lines.len(), 4);
    for (pair, workers) in lines.chunks(2).zip([1.0, 2.0]) {
        assert_comparison(&pair[0], Some(("worker processes", workers)));
        assert_costs(&pair[1]);
    }
}

#[tokio::test]
async fn series_over_sessions_and_backlogs_stand_beside_the_row_queue() {
    let lines = bench(&["sessions", "--session-counts=2,5", "--spread-events=10"]).await;
    assert_eq!(lines.len(), 4);
    for (pair, sessions) in lines.chunks(2).zip([2.0, 5.0]) {
        assert_comparison(&pair[0], Some(("sessions", sessions)));
        assert_eq!(pair[0]["against"], "row queue without order");
        assert_costs(&pair[1]);
    }
    let lines = bench(&["backlog", "--backlogs=7"]).await;
    assert_comparison(&lines[0], Some(("events waiting", 7.0)));
    assert_costs(&lines[1]);
}

#[tokio::test]
async fn enqueues_are_measured_beside_ten_busy_workers_too() {
    let lines = bench(&["enqueue", "--seconds=0.05", "--busy-sessions=2"]).await;
    assert_eq!(lines.len(), 12);
    for line in &lines {
        assert_comparison(line, None);
    }
    let beside: Vec<&str> = lines
        .iter()
        .filter(|line| line["against"] == "the same without workers")
        .filter_map(|line| line["case"].as_str())
        .collect();
    assert_eq!(
        beside,
        [
            "8 clients, one event per transaction, 10 workers listen and are busy",
            "1 client, one event per transaction, 10 workers listen and are busy",
        ]
    );
}

#[tokio::test]
async fn acknowledged_deliveries_stand_beside_plain_ones_and_waiting_lanes_beside_none() {
    let lines = bench(&[
        "acks",
        "--sessions=20",
        "--events=5",
        "--samples=5",
        "--resting=50",
        "--seconds=2",
    ])
    .await;
    let (rates, others) = lines.split_at(2);
    for line in rates {
        assert_comparison(line, None);
        assert_eq!(line["against"], "the same without acknowledgements");
    }
    let numbers = ["p50_ms", "p99_ms", "target_p50_ms"];
    assert_line(&others[0], "distribution", &numbers);
    let units: Vec<&str> = others[1..]
        .iter()
        .filter_map(|line| line["unit"].as_str())
        .collect();
    // An idle worker may take less CPU in two seconds than the kernel counts.
    assert!(units == ["s per transaction"] || units == ["s per transaction", "s per s of CPU"]);
    for line in &others[1..] {
        assert_comparison(line, None);
    }
}

#[tokio::test]
async fn documents_are_compared_with_what_is_written_by_hand() {
    let lines = bench(&["documents", "--seconds=0.05"]).await;
    assert_eq!(lines.len(), 4);
    for line in &lines {
        assert_comparison(line, None);
    }
}

#[tokio::test]
async fn the_state_of_an_aggregate_is_measured_with_snapshots_and_without() {
    let lines = bench(&["aggregates", "--spread-events=250", "--samples=3"]).await;
    let cases: Vec<&str> = lines
        .iter()
        .map(|line| line["case"].as_str().unwrap())
        .collect();
    assert_eq!(
        cases,
        [
            "state at any seq of 250",
            "newest state of 250 events",
            "a command and its event",
            "newest state of 250 events without snapshots",
        ]
    );
}

#[tokio::test]
async fn a_read_model_that_a_worker_feeds_is_compared_with_calls_of_its_function() {
    let lines = bench(&["projections", "--spread-events=120"]).await;
    assert_eq!(lines.len(), 1);
    assert_comparison(&lines[0], None);
}

/// Results as they are kept, in a file of this test.
fn kept(name: &str, text: &str) -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("results.json");
    std::fs::write(&file, text).unwrap();
    file
}

const COMPARISON: &str = r#"{"kind":"comparison","ratio":3.5,"target":3.0,"met":true,"bench":"sessions","case":"AT x 5","unit":"events/s","value":350000.0,"against":"row queue without order","reference":100000.0,"values":[350000.0],"references":[100000.0],"place":{"axis":"sessions","at":AT}}"#;

#[tokio::test]
async fn kept_results_become_a_table() {
    let db = TestDb::new().await;
    let lines = [
        COMPARISON.replace("AT", "20"),
        COMPARISON.replace("AT", "20000"),
    ]
    .join("\n");
    let file = kept("bench-table", &lines);
    let file = file.to_str().unwrap();
    let table = run(&db, &["bench", "table", file]).await;
    let row = "| 3.50 | ≥ 3.00 | met | sessions 20 x 5 | 350,000 events/s | 100,000, row queue without order |";
    assert!(table.text().contains(row), "{table:?}");
}

#[tokio::test]
async fn a_file_that_holds_no_results_is_refused_with_its_line() {
    let db = TestDb::new().await;
    let file = kept("bench-refused", "\n{\"kind\":\"nothing\"}\n");
    let refused: Ran = run(&db, &["bench", "table", file.to_str().unwrap()]).await;
    refused.refused(1, &["line 2 of", "results.json"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_compared_with_the_plain_drain_and_live_delays_with_those_alone() {
    let lines = bench(&[
        "replay",
        "--sessions=4",
        "--events=3",
        "--replay-concurrency=2",
        "--rate=50",
        "--paced-sessions=3",
        "--seconds=0.5",
    ])
    .await;
    assert_eq!(lines.len(), 5);
    assert_comparison(&lines[0], None);
    assert_eq!(
        (&lines[0]["target"], lines[0]["case"].as_str()),
        (
            &Value::from(0.7),
            Some("4 x 3, 2 sessions at once, beside 50 live events/s")
        )
    );
    for line in &lines[1..] {
        assert_line(line, "distribution", &["p50_ms", "p99_ms", "samples"]);
    }
    assert!(lines[1]["samples"].as_u64() > Some(0), "{}", lines[1]);
    let bound = lines[3]["target_p99_ms"].as_f64().unwrap();
    let alone = lines[1]["p99_ms"].as_f64().unwrap();
    assert!((bound - 2.0 * alone).abs() < 0.01, "{bound}, {alone}");
    assert_eq!(lines[4]["samples"], 1);
}
