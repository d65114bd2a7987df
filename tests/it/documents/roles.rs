//! Least privilege: who may append may not write documents, and who may write them does so as nobody else.

use super::refusal;
use crate::statements::role::Role;
use crate::support::TestDb;

/// What docs/documents.md grants.
const GRANTS: &str = "GRANT USAGE ON SCHEMA lanekeeper TO {role};
    GRANT EXECUTE ON FUNCTION
        lanekeeper.put_document(text, text, jsonb, bigint, text, jsonb, jsonb),
        lanekeeper.patch_document(text, text, jsonb, bigint, text, jsonb, jsonb),
        lanekeeper.delete_document(text, text, bigint, text, jsonb, jsonb),
        lanekeeper.put_documents(jsonb)
    TO {role};";

const CHANGES: [&str; 4] = [
    "SELECT lanekeeper.put_document('k', 'c1', '1')",
    "SELECT lanekeeper.patch_document('k', 'c1', '{}')",
    "SELECT lanekeeper.delete_document('k', 'c1')",
    "SELECT * FROM lanekeeper.put_documents('[{\"kind\":\"k\",\"id\":\"c2\",\"body\":1}]')",
];
const READS: [&str; 3] = [
    "SELECT * FROM lanekeeper.get_document('k', 'c1')",
    "SELECT * FROM lanekeeper.list_documents('k')",
    "SELECT * FROM lanekeeper.document_history('k', 'c1')",
];

#[tokio::test]
async fn who_may_append_needs_a_grant_of_its_own_to_write_documents_and_another_to_read_them() {
    let db = TestDb::new().await;
    let (producer, writer) = (
        Role::producer(&db, "a").await,
        Role::stranger(&db, "b").await,
    );
    let owner = db.connect().await;
    owner
        .batch_execute(&GRANTS.replace("{role}", &writer.name))
        .await
        .unwrap();
    let (appends, writes) = (producer.connect().await, writer.connect().await);
    for statement in CHANGES.iter().chain(&READS) {
        assert_eq!(refusal(&appends, statement).await, "42501", "{statement}");
    }
    for statement in CHANGES {
        writes.query(statement, &[]).await.unwrap();
    }
    let closed = [
        "SELECT lanekeeper.change_document('put', 'k', 'c1', '1', NULL, NULL, NULL, '{}')",
        "SELECT body FROM lanekeeper.document_version",
        "SELECT body FROM lanekeeper.current_document",
        "SELECT lanekeeper.enqueue('documents', 'k/c1', 'DocumentUpdated', '{}')",
    ];
    for statement in READS.iter().chain(&closed) {
        assert_eq!(refusal(&writes, statement).await, "42501", "{statement}");
    }
    drop((appends, writes));
    producer.drop_role(&db).await;
    writer.drop_role(&db).await;
}

#[tokio::test]
async fn a_role_that_is_no_producer_of_the_stream_changes_nothing_and_learns_no_version() {
    let db = TestDb::new().await;
    let (one, other) = (
        Role::stranger(&db, "a").await,
        Role::stranger(&db, "b").await,
    );
    let owner = db.connect().await;
    for role in [&one, &other] {
        owner
            .batch_execute(&GRANTS.replace("{role}", &role.name))
            .await
            .unwrap();
    }
    let set = format!(
        "SELECT lanekeeper.set_producers('documents', ARRAY['{}'])",
        one.name
    );
    owner.batch_execute(&set).await.unwrap();
    let (mine, foreign) = (one.connect().await, other.connect().await);
    // New, and there.
    for _ in 0..2 {
        for statement in CHANGES
            .iter()
            .chain(&["SELECT lanekeeper.put_document('k', 'c1', '1', 7)"])
        {
            assert_eq!(refusal(&foreign, statement).await, "LK009", "{statement}");
        }
        mine.query(CHANGES[0], &[]).await.unwrap();
    }
    // A worker acts for the holders of tokens.
    let forged = "SET lanekeeper.producer = 'token good'";
    foreign.batch_execute(forged).await.unwrap();
    assert_eq!(refusal(&foreign, CHANGES[0]).await, "LK009");
    drop((mine, foreign));
    one.drop_role(&db).await;
    other.drop_role(&db).await;
}
