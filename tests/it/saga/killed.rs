//! Killed at every step, and started again.

use std::os::unix::process::ExitStatusExt as _;

use lanekeeper_fault::CrashPoint;

use super::{example, ran};
use crate::support::TestDb;

/// Before the effect is committed with its settlement, behind it, and where an agent was told and its lane does not know.
const POINTS: [CrashPoint; 3] = [
    CrashPoint::Delivered,
    CrashPoint::Committing,
    CrashPoint::Settled,
];

/// Kills the program at its first delivery, at its second, and so on, each time with a run of its own, until it outlives
/// one. What is started after it brings the run to its end.
async fn at_every_step(point: CrashPoint, kind: &str, events: &[&str]) {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let mut kills = 0;
    loop {
        let run = format!("run-{kills}");
        let arg = format!("{run}={kind}");
        let place = format!("{}:{}", point.name(), kills + 1);
        let ended = ran(example(&db).arg(&arg).env("CRASH_POINT", &place)).await;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!(ended.status.signal(), Some(9), "{place}: {said}");
            let ended = ran(example(&db).arg(&arg)).await;
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(ended.status.success(), "{place}: {said}");
        }
        let read = "SELECT DISTINCT seq, event_type FROM lanekeeper.message
            WHERE stream = 'sagas' AND session = $1 ORDER BY seq";
        let log = client.query(read, &[&run]).await.unwrap();
        let log: Vec<&str> = log.iter().map(|row| row.get(1)).collect();
        assert_eq!(log, events, "{place}");
        let read = "SELECT what FROM saga.effect WHERE run = $1 ORDER BY effect_id";
        let effects = client.query(read, &[&run]).await.unwrap();
        let effects: Vec<&str> = effects.iter().map(|row| row.get(0)).collect();
        let told = [
            "RunRequested",
            "ResultReported",
            "StepFailed",
            "DeadlinePassed",
        ];
        let expected = events.iter().filter(|event| !told.contains(event));
        assert!(effects.iter().eq(expected), "{place}: {effects:?}");
        if ended.status.success() {
            break;
        }
        kills += 1;
    }
    assert!(kills >= events.len(), "{kills} kills of {point:?}");
    let given_up =
        "SELECT (SELECT count(*) FROM lanekeeper.dead) + (SELECT count(*) FROM lanekeeper.outcome)
        + (SELECT count(*) FROM lanekeeper.lane_status WHERE parked_at IS NOT NULL)";
    let given_up: i64 = client.query_one(given_up, &[]).await.unwrap().get(0);
    assert_eq!(given_up, 0);
}

async fn at_every_step_and_place(kind: &str, events: &[&str]) {
    let killing = POINTS.map(|point| at_every_step(point, kind, events));
    futures_util::future::join_all(killing).await;
}

#[tokio::test]
async fn a_run_whose_program_is_killed_at_every_step_is_completed_with_each_effect_once() {
    let events = [
        "RunRequested",
        "WorkspaceReserved",
        "AgentStarted",
        "ResultReported",
        "ResultVerified",
    ];
    at_every_step_and_place("main/good/60000", &events).await;
}

#[tokio::test]
async fn a_run_that_fails_while_its_program_is_killed_at_every_step_is_taken_back_once() {
    let events = [
        "RunRequested",
        "WorkspaceReserved",
        "AgentStarted",
        "ResultReported",
        "StepFailed",
        "AgentStopped",
        "WorkspaceReleased",
    ];
    at_every_step_and_place("main/bad/60000", &events).await;
}

#[tokio::test]
async fn a_deadline_that_passes_while_the_program_is_killed_at_every_step_is_noticed_once() {
    let events = [
        "RunRequested",
        "WorkspaceReserved",
        "AgentStarted",
        "DeadlinePassed",
        "AgentStopped",
        "WorkspaceReleased",
    ];
    at_every_step_and_place("main/silent/200", &events).await;
}
