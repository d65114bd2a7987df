//! A projection's function is somebody else's code. It has the rights of its role, also where it outlives its call, and
//! settles nothing by itself.

use super::bed::{Bed, COUNT};
use crate::statements::role::Role;

/// Notes what came of a statement that it tries.
fn tries(statement: &str) -> String {
    let quoted = statement.replace('\'', "''");
    format!(
        "BEGIN EXECUTE '{quoted}';
             INSERT INTO seen (session, event_type) VALUES ('{quoted}', 'done');
         EXCEPTION WHEN OTHERS THEN
             INSERT INTO seen (session, event_type) VALUES ('{quoted}', SQLSTATE);
         END;"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_function_can_neither_become_the_owner_nor_read_nor_settle_what_is_lanekeepers() {
    let bed = Bed::bare().await;
    let owner = bed.text("SELECT current_user::text").await;
    let refused = [
        format!("SET ROLE {owner}"),
        format!("SET SESSION AUTHORIZATION {owner}"),
        "SELECT payload FROM lanekeeper.event".to_owned(),
        "SELECT secret FROM lanekeeper.lock_secret".to_owned(),
        "SELECT lanekeeper.read_lock_secret()".to_owned(),
        "SELECT lanekeeper.projection_permit('a', 1, 0, 1, current_date, NULL, NULL, NULL)"
            .to_owned(),
        "SELECT lanekeeper.settle_projection(1, 1, 0, 9, current_date, NULL, NULL, NULL, 'a')"
            .to_owned(),
        "SELECT lanekeeper.begin_projection(77)".to_owned(),
        "UPDATE lanekeeper.progress SET cursor = 9".to_owned(),
        "DELETE FROM lanekeeper.ready".to_owned(),
    ];
    let body: String = refused.iter().map(|one| tries(one)).collect();
    bed.define(&body).await;
    bed.apply("").await;
    bed.enqueue(1, 1).await;
    let worker = bed.worker().await;
    bed.drained().await;
    let tried = i64::try_from(refused.len()).unwrap();
    assert_eq!(bed.count("SELECT count(*) FROM shop.seen").await, tried);
    let done = "SELECT coalesce(string_agg(session || ': ' || event_type, ' | '), '') FROM shop.seen WHERE event_type <> '42501'";
    assert_eq!(bed.text(done).await, "");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_function_leaves_in_its_session_neither_runs_later_nor_loses_or_doubles_an_event()
{
    let leaving = format!(
        "{COUNT}
         PERFORM pg_advisory_unlock_all();
         PERFORM set_config('search_path', 'pg_temp', false);
         PERFORM set_config('statement_timeout', '1', false);
         PERFORM set_config('default_transaction_read_only', 'on', false);
         EXECUTE 'DEALLOCATE ALL';
         EXECUTE 'PREPARE s1 (bigint) AS SELECT true';
         EXECUTE 'DECLARE held CURSOR WITH HOLD FOR SELECT shop.spring()';
         INSERT INTO shop.trap VALUES (1);"
    );
    let bed = Bed::bare().await;
    let create = format!("GRANT CREATE ON SCHEMA shop TO {}", bed.role.name);
    bed.client.batch_execute(&create).await.unwrap();
    let own = bed.role.connect().await;
    // A deferred trigger and a held cursor run with the commit, before PostgreSQL 18 as whoever commits.
    own.batch_execute(
        "CREATE TABLE shop.trap (a int);
         CREATE TABLE shop.sprung (who text, at text);
         CREATE FUNCTION shop.spring() RETURNS int LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO shop.sprung VALUES (current_user, 'cursor'); RETURN 1; END $$;
         CREATE FUNCTION shop.spring_late() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO shop.sprung VALUES (current_user, (SELECT count(*)::text FROM pg_locks
                    WHERE pid = pg_backend_pid() AND relation = 'lanekeeper.progress'::regclass)); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON shop.trap DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION shop.spring_late()",
    )
    .await
    .unwrap();
    bed.define(&leaving).await;
    bed.apply("").await;
    let worker = bed.worker().await;
    for _ in 0..5 {
        bed.enqueue(2, 1).await;
        bed.drained().await;
    }
    bed.assert_exact(2, 5).await;
    let sprung = "SELECT string_agg(DISTINCT who || ' ' || at, ' | ') FROM shop.sprung";
    let expected = format!("{} 0", bed.role.name);
    assert_eq!(
        bed.text(sprung).await,
        expected,
        "as the role, before anything is settled, and no cursor"
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_permit_is_good_for_one_role_and_one_settlement() {
    let bed = Bed::new(COUNT).await;
    let other = Role::stranger(&bed.db, "q").await;
    let grant = format!(
        "GRANT USAGE ON SCHEMA lanekeeper TO {0};
         GRANT EXECUTE ON FUNCTION lanekeeper.begin_projection, lanekeeper.settle_projection TO {0}",
        other.name
    );
    bed.client.batch_execute(&grant).await.unwrap();
    bed.enqueue(1, 3).await;
    let permit = format!(
        "SELECT lanekeeper.projection_permit('{}', lane_id, version, 1, current_date, NULL, NULL, NULL)::text
         FROM lanekeeper.progress",
        bed.role.name
    );
    let permit = bed.text(&permit).await;
    let lane = bed.count("SELECT lane_id FROM lanekeeper.progress").await;
    let version = bed.count("SELECT version FROM lanekeeper.progress").await;
    let settle = |cursor: i64| {
        format!(
            "SELECT lanekeeper.settle_projection(1, {lane}, {version}, {cursor}, current_date, NULL, NULL, NULL, '{permit}')"
        )
    };
    let (mine, foreign) = (bed.role.connect().await, other.connect().await);
    let code = async |client: &tokio_postgres::Client, statement: &str| {
        let refused = client.query_one(statement, &[]).await.unwrap_err();
        refused.code().unwrap().code().to_owned()
    };
    assert_eq!(code(&foreign, &settle(1)).await, "42501", "another role's");
    assert_eq!(code(&mine, &settle(2)).await, "42501", "another cursor");
    assert_eq!(
        code(&foreign, "SELECT lanekeeper.begin_projection(1)").await,
        "42501"
    );
    let settled: bool = mine.query_one(&settle(1), &[]).await.unwrap().get(0);
    assert!(settled);
    let again: bool = mine.query_one(&settle(1), &[]).await.unwrap().get(0);
    assert!(!again, "the lane's progress is another by now");
    drop((mine, foreign));
    other.drop_role(&bed.db).await;
}
