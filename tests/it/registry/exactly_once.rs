//! Each event is recorded once and in the order of its session, whatever happens to the workers. These workers are
//! processes, and add the registry's subscription themselves.

use std::time::Duration;

use serde_json::json;
use tokio_postgres::types::Json;

use super::{LIMIT, audit_repeats};
use crate::process::plant::Plant;
use crate::support::{TestDb, wait_until};

const SESSIONS: i64 = 12;
const EVENTS: i64 = 40;
/// Eight workers are killed, and some event may be what the third of them was at alone.
const PATIENT: [(&str, &str); 1] = [("LANEKEEPER_WORKER__MAX_CRASHES", "100")];

/// Prompts and stops in turn, so that nothing may be merged.
async fn enqueue(plant: &Plant) {
    let events: Vec<_> = (0..EVENTS)
        .flat_map(|number| {
            (0..SESSIONS).map(move |session| {
                let session = format!("s{session}");
                let event_type = ["user_prompt_submit", "agent_stop"][usize::from(number % 2 == 1)];
                let payload = json!({"session_id": session, "prompt": format!("{number}")});
                json!({"session": session, "event_type": event_type, "payload": payload})
            })
        })
        .collect();
    plant
        .client
        .execute(
            "SELECT lanekeeper.enqueue_many('hooks', $1)",
            &[&Json(events)],
        )
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_enter_nothing_twice_and_leave_nothing_out() {
    let plant = Plant::of("hooks", TestDb::new().await, Duration::ZERO).await;
    // So slow that a kill finds a transaction open.
    audit_repeats(&plant.client, 0.004).await;
    enqueue(&plant).await;
    let entered = async || plant.count("SELECT count(*) FROM public.entered").await;
    for _ in 0..4 {
        let before = entered().await;
        let doomed = [plant.worker(&PATIENT).await, plant.worker(&PATIENT).await];
        wait_until(LIMIT, "they enter some", async || {
            entered().await > before + 10
        })
        .await;
        for worker in doomed {
            worker.kill().await;
        }
    }
    let survivor = plant.worker(&PATIENT).await;
    plant.settled().await;
    assert!(survivor.stop().await.success());

    let outcomes = "SELECT kind || ': ' || error FROM lanekeeper.outcome";
    let outcomes = plant.client.query(outcomes, &[]).await.unwrap();
    let outcomes: Vec<String> = outcomes.iter().map(|row| row.get(0)).collect();
    assert_eq!(outcomes, [""; 0]);
    assert_eq!(entered().await, SESSIONS * EVENTS);
    let disordered = "SELECT count(*) FROM (
        SELECT seq, row_number() OVER (PARTITION BY session_id ORDER BY id) AS place FROM public.entered) AS e
        WHERE seq <> place";
    assert_eq!(plant.count(disordered).await, 0);
    let complete = format!(
        "SELECT count(*) FROM lanekeeper.agent_session
         WHERE turn = {} AND turn_state = 'idle' AND last_prompt = '{}'",
        EVENTS / 2,
        EVENTS - 2
    );
    assert_eq!(plant.count(&complete).await, SESSIONS);
}
