//! Tests of the test databases: they are isolated from each other, and are dropped.

use crate::support::{TestDb, connect};

#[tokio::test]
async fn every_test_database_is_migrated_and_sees_only_its_own_rows() {
    let (one, other) = (TestDb::new().await, TestDb::new().await);
    let insert = "INSERT INTO lanekeeper.stream (name) VALUES ('mine')";
    one.connect().await.batch_execute(insert).await.unwrap();
    for (db, expected) in [(&one, 1_i64), (&other, 0)] {
        let client = db.connect().await;
        let count = "SELECT count(*) FROM lanekeeper.stream WHERE name = 'mine'";
        assert_eq!(
            client.query_one(count, &[]).await.unwrap().get::<_, i64>(0),
            expected
        );
    }
}

#[tokio::test]
async fn a_test_database_of_a_shared_server_is_dropped_with_its_test() {
    let Ok(server) = std::env::var("TEST_DATABASE_URL") else {
        // A private server goes as a whole.
        return;
    };
    let db = TestDb::new().await;
    let name = db
        .connect()
        .await
        .query_one("SELECT current_database()", &[])
        .await
        .unwrap()
        .get::<_, String>(0);
    drop(db);
    let admin = connect(&server).await;
    let left = admin
        .query_opt("SELECT FROM pg_database WHERE datname = $1", &[&name])
        .await
        .unwrap();
    assert!(left.is_none(), "{name} is still there");
}
