//! The settings of a producer's session do not change what the functions do for others.

use tokio_postgres::Client;

use super::role::Role;
use crate::support::TestDb;

/// Every setting that changes how texts, dates, arrays or plans are read, at its most unusual.
const HOSTILE: &str = "
    SET standard_conforming_strings = off; SET backslash_quote = on; SET escape_string_warning = off;
    SET DateStyle = 'German, DMY'; SET IntervalStyle = 'sql_standard'; SET TimeZone = 'Pacific/Kiritimati';
    SET extra_float_digits = -15; SET bytea_output = 'escape'; SET array_nulls = off; SET transform_null_equals = on;
    SET row_security = off; SET check_function_bodies = off; SET synchronous_commit = off;
    SET client_encoding = 'LATIN1'; SET search_path = pg_temp, public;
    SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_nestloop = off; SET enable_tidscan = off;
    SET enable_partition_pruning = off; SET constraint_exclusion = off; SET plan_cache_mode = force_custom_plan;
    SET from_collapse_limit = 1; SET join_collapse_limit = 1; SET geqo_threshold = 2; SET jit = off;
    SET work_mem = '64kB'; SET default_transaction_deferrable = on;
    SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0";

/// One of each kind of call; the results, apart from ids that are drawn.
async fn calls(client: &Client) -> Vec<(i64, bool)> {
    let statements = [
        r#"SELECT seq, duplicate FROM lanekeeper.enqueue('runs', E's\\''1', E'a\\', E'{"a": "\\u005c"}')"#,
        r#"SELECT seq, duplicate FROM lanekeeper.enqueue('runs', E's\\''1', 'step', '1e3', priority => 3::smallint,
              headers => '{"x": "y"}')"#,
        "SELECT seq, duplicate FROM lanekeeper.enqueue('runs', 's2', 'step', '{}', dedupe_key => 'k')",
        "SELECT seq, duplicate FROM lanekeeper.enqueue('runs', 's2', 'step', '{}', dedupe_key => 'k')",
        r#"SELECT seq, duplicate FROM lanekeeper.enqueue_many('runs', '[
              {"session": "s2", "event_type": "step", "payload": null},
              {"session": "s3", "event_type": "step", "payload": [1, 2], "priority": 5, "headers": {"a": "b"}}]')"#,
        "SELECT 0::bigint, lanekeeper.seen('c', 's', '019c0000-0000-7000-8000-000000000001')",
    ];
    let mut results = Vec::new();
    for statement in statements {
        let rows = client.query(statement, &[]).await;
        let rows = rows.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        results.extend(rows.iter().map(|row| (row.get(0), row.get(1))));
    }
    results
}

/// What the log has, as the owner reads it.
async fn log(client: &Client) -> Vec<String> {
    let rows = client
        .query(
            "SELECT concat_ws('|', n.name, e.seq, e.day = (clock_timestamp() AT TIME ZONE 'UTC')::date, e.priority, e.size,
                              abs(extract(epoch FROM clock_timestamp() - e.created_at)) < 3600, e.event_type, e.payload, e.headers)
             FROM lanekeeper.event AS e JOIN lanekeeper.session AS n USING (session_id) ORDER BY 1",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn a_producers_settings_do_not_change_what_an_append_writes() {
    let (plain, hostile) = (TestDb::new().await, TestDb::new().await);
    let role = Role::producer(&hostile, "hostile").await;
    let (usual, producer) = (plain.connect().await, role.connect().await);
    producer.batch_execute(HOSTILE).await.unwrap();
    // Settings of some releases only: whoever has them sets them.
    for newer in [
        "SET debug_parallel_query = on",
        "SET force_parallel_mode = on",
    ] {
        let _ = producer.batch_execute(newer).await;
    }
    assert_eq!(calls(&producer).await, calls(&usual).await);
    let owner = hostile.connect().await;
    assert_eq!(log(&owner).await, log(&usual).await);
    drop(producer);
    role.drop_role(&hostile).await;
}

/// The first append of a day creates its partition, as the owner: where and how is not for the producer to say.
#[tokio::test]
async fn a_partition_that_an_append_creates_is_a_table_like_any_other() {
    let db = TestDb::new().await;
    let role = Role::producer(&db, "hostile").await;
    let owner = db.connect().await;
    // Roles and databases are known to the server by their names: so that tests do not meet.
    owner
        .batch_execute(&format!(
            "CREATE ACCESS METHOD {} TYPE TABLE HANDLER heap_tableam_handler",
            role.name
        ))
        .await
        .unwrap();
    let today: String = owner
        .query_one(
            "SELECT 'event_' || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    owner
        .batch_execute(&format!("DROP TABLE lanekeeper.{today}"))
        .await
        .unwrap();
    let producer = role.connect().await;
    producer
        .batch_execute(&format!(
            "SET default_table_access_method = {}; SET DateStyle = 'German, DMY';
             SELECT lanekeeper.enqueue('runs', 's1', 'step', '{{}}')",
            role.name
        ))
        .await
        .unwrap();
    let made = "SELECT a.amname::text || ' ' || c.reltablespace || ' ' || pg_get_expr(c.relpartbound, c.oid)
                FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam WHERE c.relname = $1";
    let made: String = owner.query_one(made, &[&today]).await.unwrap().get(0);
    let bound: String = owner
        .query_one(
            "SELECT format('heap 0 FOR VALUES FROM (%L) TO (%L)', d.day, d.day + 1)
             FROM (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day) AS d",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(made, bound);
    // Everything that creates tables for a caller says so itself.
    let unpinned = "SELECT count(*) FROM pg_proc
        WHERE pronamespace = 'lanekeeper'::regnamespace AND prosrc ~ 'CREATE TABLE'
          AND NOT ('default_tablespace=\"\"' = ANY (proconfig) OR 'default_tablespace=' = ANY (proconfig))";
    assert_eq!(
        owner
            .query_one(unpinned, &[])
            .await
            .unwrap()
            .get::<_, i64>(0),
        0
    );
    drop(producer);
    role.drop_role(&db).await;
}
