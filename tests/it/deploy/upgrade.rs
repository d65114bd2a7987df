//! H4: the claims of docs/deploy.md about workers of two releases on one database.

use std::time::Duration;

use crate::command::run;
use crate::process::plant::{LIMIT, Plant};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_goes_on_after_a_newer_release_migrated_and_starts_again_unless_that_refuses_it() {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    plant.enqueue("before-", 2, 2).await;
    plant.settled().await;
    // As a migration leaves it that only adds.
    let newer = "INSERT INTO lanekeeper.schema_version (version, name, hash, oldest_worker)
                 SELECT max(version) + 1, 'of_a_newer_release', '', max(version) FROM lanekeeper.schema_version";
    plant.client.batch_execute(newer).await.unwrap();
    plant.enqueue("after-", 2, 2).await;
    plant.settled().await;
    // Connections that it makes anew are no start.
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert!(plant.count(cut).await > 0);
    plant.enqueue("later-", 2, 2).await;
    wait_until(LIMIT, "it delivers over new connections", async || {
        plant.receiver.seen().deduplicated().0.len() == 6
    })
    .await;
    plant.settled().await;
    plant.assert_complete(6, 2);
    assert!(worker.stop().await.success());
    // As after a rollback, or a restart in the middle of the rollout.
    let worker = plant.worker(&[]).await;
    plant.enqueue("again-", 2, 2).await;
    plant.settled().await;

    let refusing = "UPDATE lanekeeper.schema_version SET oldest_worker = version
                    WHERE version = (SELECT max(version) FROM lanekeeper.schema_version)";
    plant.client.batch_execute(refusing).await.unwrap();
    for command in ["worker", "migrate", "status"] {
        let variables = [
            ("DATABASE_URL", &*plant.url),
            ("LANEKEEPER_HTTP__LISTEN", "127.0.0.1:0"),
        ];
        let ran = run(&[command], &variables, "").await;
        assert_eq!(ran.code, Some(1), "{command}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("has version"),
            "{command}: {}",
            ran.stderr
        );
    }
    assert!(worker.stop().await.success());
}
