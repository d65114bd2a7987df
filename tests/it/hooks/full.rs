//! C5: a hook call to a full session is kept in the spool, and arrives in order when there is room.

use super::{Machine, numbered, prompts};
use crate::support::TestDb;

#[tokio::test]
async fn calls_to_a_full_session_wait_in_the_spool_and_none_is_lost() {
    let db = TestDb::new().await;
    let machine = Machine::new(db.url());
    let client = db.connect().await;
    client
        .batch_execute(
            "INSERT INTO lanekeeper.subscription (stream_id, name, adapter, retry_schedule_ms, max_attempts, on_exhausted,
                                                  coalesce, max_pending)
             SELECT stream_id, 'out', 'stdout', '{1000}', 0, 'dead_letter', false, 2 FROM lanekeeper.stream WHERE name = 'hooks';
             UPDATE lanekeeper.stream SET bounded = true, lanes_version = lanes_version + 1 WHERE name = 'hooks'",
        )
        .await
        .unwrap();
    for number in 0..5 {
        let stderr = machine.hook("codex", &numbered("s", number));
        assert_eq!(
            stderr.contains("kept in the spool"),
            number >= 2,
            "{number}: {stderr}"
        );
    }
    assert_eq!(machine.hook("codex", &numbered("other", 0)), "");
    assert_eq!(prompts(&client, "s").await, [0, 1]);
    let report = machine.drain();
    assert_eq!(
        (&report["events"], &report["sessions_full"]),
        (&0.into(), &1.into())
    );
    assert!(machine.spool().holds("s"));
    // One is delivered, so one has room.
    let pass = "UPDATE lanekeeper.progress SET cursor = cursor + 1";
    client.batch_execute(pass).await.unwrap();
    assert_eq!(machine.drain()["events"], 1);
    assert_eq!(prompts(&client, "s").await, [0, 1, 2]);
    client
        .batch_execute("UPDATE lanekeeper.progress SET cursor = 3")
        .await
        .unwrap();
    assert_eq!(machine.drain()["events"], 2);
    assert_eq!(prompts(&client, "s").await, [0, 1, 2, 3, 4]);
    assert!(!machine.spool().holds("s"));
}
