//! Streams have owners, and a producer cannot use up the dedupe keys or message ids of another one.

use tokio_postgres::Client;

use super::role::Role;
use crate::support::TestDb;

async fn enqueue(client: &Client, stream: &str, key: Option<&str>) -> Result<(i64, bool), String> {
    let statement =
        "SELECT seq, duplicate FROM lanekeeper.enqueue($1, 's1', 'step', '{}', dedupe_key => $2)";
    refusal(
        client
            .query_one(statement, &[&stream, &key])
            .await
            .map(|row| (row.get(0), row.get(1))),
    )
}

async fn enqueue_many(client: &Client, stream: &str) -> Result<(i64, bool), String> {
    let statement = r#"SELECT seq, duplicate
        FROM lanekeeper.enqueue_many($1, '[{"session": "s2", "event_type": "step", "payload": 1}]')"#;
    refusal(
        client
            .query_one(statement, &[&stream])
            .await
            .map(|row| (row.get(0), row.get(1))),
    )
}

fn refusal<T>(result: Result<T, tokio_postgres::Error>) -> Result<T, String> {
    result.map_err(|error| {
        let said = error.as_db_error().unwrap_or_else(|| panic!("{error:?}"));
        format!(
            "{}: {} {}",
            said.code().code(),
            said.message(),
            said.hint().unwrap_or("")
        )
    })
}

fn assert_refused<T: std::fmt::Debug>(result: Result<T, String>, role: &Role, stream: &str) {
    let said = result.unwrap_err();
    assert!(said.starts_with("LK009: "), "{said}");
    for told in [role.name.as_str(), stream, "nothing was enqueued"] {
        assert!(said.contains(told), "{said}");
    }
}

#[tokio::test]
async fn the_engine_alone_appends_to_the_lifecycle_stream() {
    let db = TestDb::new().await;
    let role = Role::producer(&db, "a").await;
    let (owner, producer) = (db.connect().await, role.connect().await);
    assert_refused(
        enqueue(&producer, "lifecycle", None).await,
        &role,
        "lifecycle",
    );
    assert_refused(
        enqueue_many(&producer, "lifecycle").await,
        &role,
        "lifecycle",
    );
    assert_eq!(enqueue(&owner, "lifecycle", None).await, Ok((1, false)));
    // The session exists by now: the short way is closed too.
    assert_refused(
        enqueue(&producer, "lifecycle", None).await,
        &role,
        "lifecycle",
    );
    assert_eq!(enqueue(&producer, "runs", None).await, Ok((1, false)));
    let given_away = owner
        .batch_execute("SELECT lanekeeper.set_producers('lifecycle', NULL)")
        .await;
    assert!(refusal(given_away).unwrap_err().starts_with("LK006: "));
    drop(producer);
    role.drop_role(&db).await;
}

#[tokio::test]
async fn a_stream_that_names_its_producers_takes_events_of_these_and_their_members_alone() {
    let db = TestDb::new().await;
    let (one, other) = (
        Role::producer(&db, "a").await,
        Role::producer(&db, "b").await,
    );
    let (owner, mine, foreign) = (
        db.connect().await,
        one.connect().await,
        other.connect().await,
    );
    assert_eq!(
        enqueue(&foreign, "runs", None).await,
        Ok((1, false)),
        "no ceremony by default"
    );
    let set = format!(
        "SELECT lanekeeper.set_producers('runs', ARRAY['{}'])",
        one.name
    );
    owner.batch_execute(&set).await.unwrap();
    assert_eq!(enqueue(&mine, "runs", None).await, Ok((2, false)));
    assert_eq!(enqueue_many(&mine, "runs").await, Ok((1, false)));
    assert_refused(enqueue(&foreign, "runs", None).await, &other, "runs");
    assert_refused(enqueue_many(&foreign, "runs").await, &other, "runs");
    let hint = enqueue(&foreign, "none", None).await.unwrap_err();
    assert!(
        hint.contains("hooks") && !hint.contains("runs") && !hint.contains("lifecycle"),
        "{hint}"
    );

    owner
        .batch_execute(&format!("GRANT {} TO {}", one.name, other.name))
        .await
        .unwrap();
    assert_eq!(
        enqueue(&foreign, "runs", None).await,
        Ok((3, false)),
        "a member may too"
    );
    // SET ROLE gives rights away as well as it lends them.
    owner
        .batch_execute(&format!(
            "REVOKE {0} FROM {1}; GRANT {1} TO {0}",
            one.name, other.name
        ))
        .await
        .unwrap();
    mine.batch_execute(&format!("SET ROLE {}", other.name))
        .await
        .unwrap();
    assert_refused(enqueue(&mine, "runs", None).await, &other, "runs");
    mine.batch_execute("RESET ROLE").await.unwrap();
    assert_eq!(enqueue(&mine, "runs", None).await, Ok((4, false)));

    for (stream, roles) in [
        ("none", "NULL"),
        ("runs", "'{no_such_role}'"),
        ("runs", "'{NULL}'"),
    ] {
        let refused = owner
            .batch_execute(&format!(
                "SELECT lanekeeper.set_producers('{stream}', {roles})"
            ))
            .await;
        assert!(
            refusal(refused).unwrap_err().starts_with("LK00"),
            "{stream} {roles}"
        );
    }
    owner
        .batch_execute("SELECT lanekeeper.set_producers('runs', NULL)")
        .await
        .unwrap();
    assert_eq!(enqueue(&foreign, "runs", None).await, Ok((5, false)));
    drop((mine, foreign));
    one.drop_role(&db).await;
    other.drop_role(&db).await;
}

#[tokio::test]
async fn nobody_uses_up_another_producers_dedupe_key_or_message_id() {
    let db = TestDb::new().await;
    let (one, other) = (
        Role::producer(&db, "a").await,
        Role::producer(&db, "b").await,
    );
    let (owner, attacker, victim) = (
        db.connect().await,
        one.connect().await,
        other.connect().await,
    );
    assert_eq!(
        enqueue(&attacker, "runs", Some("invoice 7")).await,
        Ok((1, false))
    );
    // The setting by which a worker acts for others is nobody else's.
    let forge = format!("SET lanekeeper.producer = 'role {}'", other.name);
    attacker.batch_execute(&forge).await.unwrap();
    assert_eq!(
        enqueue(&attacker, "runs", Some("invoice 7")).await,
        Ok((1, true))
    );
    assert_eq!(
        enqueue(&victim, "runs", Some("invoice 7")).await,
        Ok((2, false))
    );
    assert_eq!(
        enqueue(&victim, "runs", Some("invoice 7")).await,
        Ok((2, true)),
        "its own"
    );
    assert_eq!(
        enqueue(&owner, "runs", Some("invoice 7")).await,
        Ok((3, false))
    );

    let with_id = "SELECT seq, duplicate FROM lanekeeper.enqueue('runs', 's1', 'step', '{}',
        message_id => '019c0000-0000-5000-8000-000000000001')";
    for (client, expected) in [
        (&attacker, (4, false)),
        (&victim, (5, false)),
        (&victim, (5, true)),
    ] {
        let row = client.query_one(with_id, &[]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, bool>(1)), expected);
    }
    drop((attacker, victim));
    one.drop_role(&db).await;
    other.drop_role(&db).await;
}

#[tokio::test]
async fn what_one_role_has_seen_another_has_not() {
    let db = TestDb::new().await;
    let (one, other) = (
        Role::producer(&db, "a").await,
        Role::producer(&db, "b").await,
    );
    let (attacker, receiver) = (one.connect().await, other.connect().await);
    let seen = async |client: &Client| -> bool {
        let statement =
            "SELECT lanekeeper.seen('billing', 's1', '019c0000-0000-7000-8000-000000000001')";
        client.query_one(statement, &[]).await.unwrap().get(0)
    };
    assert!(!seen(&attacker).await);
    assert!(seen(&attacker).await);
    assert!(!seen(&receiver).await, "nobody else has handled it");
    assert!(seen(&receiver).await);
    for bad in [
        "NULL, 's', gen_random_uuid()",
        "'c', NULL, gen_random_uuid()",
        "'c', 's', NULL",
        "repeat('c', 201), 's', gen_random_uuid()",
        "'c', repeat('s', 513), gen_random_uuid()",
    ] {
        let refused = receiver
            .batch_execute(&format!("SELECT lanekeeper.seen({bad})"))
            .await;
        assert!(
            refusal(refused).unwrap_err().starts_with("LK006: "),
            "{bad}"
        );
    }
    drop((attacker, receiver));
    one.drop_role(&db).await;
    other.drop_role(&db).await;
}

/// Sessions as one bulk call's array, `first` to `last`.
fn sessions(first: i64, last: i64) -> String {
    format!(
        "SELECT count(*) FROM lanekeeper.enqueue_many('runs', (
             SELECT jsonb_agg(jsonb_build_object('session', 's' || n, 'event_type', 'step', 'payload', n))
             FROM generate_series({first}, {last}) AS n))"
    )
}

/// How many sessions one transaction may lock.
async fn most_locks(client: &Client) -> i64 {
    let read = "SELECT greatest(1000, current_setting('max_locks_per_transaction')::bigint
        * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) / 4)";
    client.query_one(read, &[]).await.unwrap().get(0)
}

const OWN_LOCKS: &str = "SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND mode = 'ExclusiveLock'";

#[tokio::test]
async fn a_bulk_call_takes_no_lock_for_sessions_that_it_creates_and_a_bounded_number_for_others() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let count = async |query: &str| -> i64 { client.query_one(query, &[]).await.unwrap().get(0) };
    let most = most_locks(&client).await;
    // A lock that another test or this server's maintenance holds is no session's.
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(count(&sessions(1, most + 1)).await, most + 1);
    assert_eq!(count(OWN_LOCKS).await, 0);
    client.batch_execute("COMMIT").await.unwrap();

    client.batch_execute("BEGIN").await.unwrap();
    let said = refusal(client.batch_execute(&sessions(1, most + 1)).await).unwrap_err();
    assert!(
        said.starts_with("LK006: ") && said.contains(&most.to_string()) && said.contains("Split"),
        "{said}"
    );
    client.batch_execute("ROLLBACK; BEGIN").await.unwrap();
    // Again and again the same ones are no more locks.
    for _ in 0..3 {
        assert_eq!(count(&sessions(1, most / 2)).await, most / 2);
    }
    assert_eq!(count(OWN_LOCKS).await, most / 2);
    client.batch_execute("SAVEPOINT before").await.unwrap();
    let said = refusal(
        client
            .batch_execute(&sessions(most / 2 + 1, most + 1))
            .await,
    )
    .unwrap_err();
    assert!(said.starts_with("LK006: "), "{said}");
    client.batch_execute("ROLLBACK TO before").await.unwrap();
    assert_eq!(count(OWN_LOCKS).await, most / 2, "none of that call");
    assert_eq!(count(&sessions(1, most)).await, most);
    client.batch_execute("ROLLBACK; BEGIN").await.unwrap();
    assert_eq!(
        count(&sessions(1, most)).await,
        most,
        "the next transaction begins at none"
    );
    client.batch_execute("ROLLBACK").await.unwrap();
    // One by one each session is a lock, new or not.
    let keyed =
        sessions(most + 2, 2 * most + 3).replace("'payload', n", "'payload', n, 'dedupe_key', n");
    assert!(
        refusal(client.batch_execute(&keyed).await)
            .unwrap_err()
            .starts_with("LK006: ")
    );
}

/// Of two transactions that create a session the second waits for the first, whose bulk call took no lock.
#[tokio::test(flavor = "multi_thread")]
async fn an_append_to_a_session_that_an_open_bulk_call_creates_waits_and_comes_behind_it() {
    let db = TestDb::new().await;
    let (first, watch) = (db.connect().await, db.connect().await);
    first.batch_execute("BEGIN").await.unwrap();
    first.batch_execute(&sessions(1, 1)).await.unwrap();
    let second = db.connect().await;
    let appended = tokio::spawn(async move { enqueue(&second, "runs", None).await });
    let waits = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
    crate::support::wait_until(std::time::Duration::from_secs(30), "it waits", async || {
        watch.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    first.batch_execute(&sessions(1, 1)).await.unwrap();
    first.batch_execute("COMMIT").await.unwrap();
    assert_eq!(appended.await.unwrap(), Ok((3, false)));
}

/// A hook that was killed before it took its call out of the spool, and a worker that sends the call again.
#[tokio::test]
async fn an_event_with_a_random_message_id_that_two_producers_send_is_appended_once() {
    let db = TestDb::new().await;
    let role = Role::producer(&db, "a").await;
    let (owner, producer) = (db.connect().await, role.connect().await);
    let enqueue = async |client: &Client, id: uuid::Uuid, session: &str| {
        let statement = "SELECT seq, duplicate
            FROM lanekeeper.enqueue('hooks', $1, 'agent_stop', '{}', message_id => $2)";
        let row = client.query_one(statement, &[&session, &id]).await;
        refusal(row.map(|row| (row.get::<_, i64>(0), row.get::<_, bool>(1))))
    };
    let first = uuid::Uuid::now_v7();
    assert_eq!(enqueue(&producer, first, "s1").await, Ok((1, false)));
    assert_eq!(enqueue(&owner, first, "s1").await, Ok((1, true)));
    let second = uuid::Uuid::new_v4();
    assert_eq!(enqueue(&owner, second, "s1").await, Ok((2, false)));
    assert_eq!(enqueue(&producer, second, "s1").await, Ok((2, true)));
    // Who has read an id cannot give it to an event of another session: receivers would drop the first.
    assert_eq!(enqueue(&producer, second, "s2").await, Ok((2, true)));
    drop(producer);
    role.drop_role(&db).await;
}

/// Two clients, or one that tries again while its first call still runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_call_that_another_one_overtakes_is_bounded_like_any_other() {
    let db = TestDb::new().await;
    let (first, second, watch) = (db.connect().await, db.connect().await, db.connect().await);
    let most = most_locks(&watch).await;
    first.batch_execute("BEGIN").await.unwrap();
    first.batch_execute(&sessions(1, 1)).await.unwrap();
    let call = sessions(1, most + 1);
    let calling = tokio::spawn(async move { refusal(second.batch_execute(&call).await) });
    let waits = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
    crate::support::wait_until(std::time::Duration::from_secs(60), "it waits", async || {
        watch.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    first.batch_execute("COMMIT").await.unwrap();
    let said = calling.await.unwrap().unwrap_err();
    assert!(said.starts_with("LK006: "), "{said}");
}
