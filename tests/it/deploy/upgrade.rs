//! H4: what docs/deploy.md says of workers of two releases on one database.

use std::time::Duration;

use crate::command::run;
use crate::process::plant::{LIMIT, Plant};
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_runs_goes_on_after_a_newer_release_migrated_and_a_new_one_of_its_release_is_refused()
 {
    let plant = Plant::new(Duration::ZERO).await;
    let worker = plant.worker(&[]).await;
    plant.enqueue("before-", 2, 2).await;
    plant.settled().await;
    // As a migration leaves it that only adds.
    let newer = "INSERT INTO lanekeeper.schema_version (version, name)
                 SELECT max(version) + 1, 'of_a_newer_release' FROM lanekeeper.schema_version";
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
