//! What pages cost on a large database: the pages of Postgres that their statements read, which are the same however much
//! there is. Times depend on the machine; these do not.

use lanekeeper_postgres::inspect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Transaction};
use uuid::Uuid;

use crate::engine::bed::{Bed, Sub};

/// Sessions of an event or two each, half of them blocked; a long session; dead letters, of which few are of the
/// subscription `rare`; agents.
async fn fill(client: &Client, from: i64, to: i64) {
    let statement = format!(
        "WITH made AS (
             INSERT INTO lanekeeper.session (stream_id, name, lanes_version)
             SELECT t.stream_id, 's' || n, t.lanes_version FROM lanekeeper.stream AS t, generate_series({from}, {to}) AS n
             WHERE t.name = 'runs' RETURNING session_id
         ), laned AS (
             INSERT INTO lanekeeper.lane (session_id, subscription_id, route)
             SELECT m.session_id, s.subscription_id, s.subscription_id FROM made AS m, lanekeeper.subscription AS s
             WHERE s.name = 'out' RETURNING lane_id, session_id
         ), progressed AS (
             INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day, attempts, retry_at, last_error)
             SELECT l.lane_id, 0, 0, current_date, 1, now() + interval '1 hour', 'status 503' FROM laned AS l
         ), waiting AS (
             INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
             SELECT 1, 0, now() + interval '1 hour' + l.lane_id * interval '1 ms', l.lane_id FROM laned AS l
         ), died AS (
             INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, created_at, attempts, crashes, error)
             SELECT l.lane_id, 1, gen_random_uuid(), 'step', '{{}}', now(), 1, 0, 'status 500' FROM laned AS l
         ), known AS (
             INSERT INTO lanekeeper.agent_session (session_id, seq, native_session_id, cli, last_activity, last_activity_at, turn_state, turn, turn_started_at)
             SELECT l.session_id, 1, 'x', 'codex', 'a', now(), 'running', 1, now() FROM laned AS l
         )
         INSERT INTO lanekeeper.event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload)
         SELECT l.session_id, 1, current_date, 0, 2, now(), gen_random_uuid(), 'step', '{{}}' FROM laned AS l"
    );
    client.batch_execute(&statement).await.unwrap();
}

/// Events of one session.
async fn lengthen(client: &Client, from: i64, to: i64) {
    client
        .batch_execute(&format!(
            "INSERT INTO lanekeeper.event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload)
             SELECT n.session_id, e, current_date, 0, 2, now(), gen_random_uuid(), 'step', '{{}}'
             FROM lanekeeper.session AS n, generate_series({from}, {to}) AS e WHERE n.name = 'long'"
        ))
        .await
        .unwrap();
}

async fn pages(
    reading: &Transaction<'_>,
    statement: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> i64 {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}");
    let rows = reading.query_typed(&explain, parameters).await.unwrap();
    crate::statements::snapshot::pages(&rows[0].get(0))
}

/// Each statement of a page with the pages that it reads.
async fn costs(client: &mut Client) -> Vec<(&'static str, i64)> {
    let long: i64 = client
        .query_one(
            "SELECT session_id FROM lanekeeper.session WHERE name = 'long'",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    let lanes: Vec<i64> = client
        .query_one(
            "SELECT array_agg(lane_id) FROM lanekeeper.lane WHERE session_id = $1",
            &[&long],
        )
        .await
        .unwrap()
        .get(0);
    let reading = inspect::begin(client).await.unwrap();
    let (all, none, limit) = (None::<Vec<i32>>, None::<i64>, 50_i64);
    let (rare, text) = (vec![2_i32], None::<&str>);
    let few = 500_i64;
    let empty: (Vec<i32>, Vec<jiff::Timestamp>) = Default::default();
    let mut costs = Vec::new();
    macro_rules! cost {
        ($name:literal, $($value:expr => $type:ident),* $(,)?) => {
            let statement = include_str!(concat!("../../../src/postgres/sql/", $name, ".sql"));
            let cost = pages(&reading, statement, &[$((&$value, Type::$type)),*]).await;
            costs.push(($name, cost));
        };
    }
    cost!("status", 100_i64 => INT8, limit => INT8, 100_i64 => INT8, empty.0 => INT4_ARRAY, empty.1 => TIMESTAMPTZ_ARRAY, all => INT4_ARRAY);
    cost!("lane_active", all => INT4_ARRAY, true => BOOL, limit => INT8, none => INT8, none => INT8);
    cost!("dead_letter_page", rare => INT4_ARRAY, none => INT8, false => BOOL, none => INT8, text => TEXT, few => INT8, limit => INT8);
    cost!("session_page", rare => INT4_ARRAY, none => INT8, few => INT8, limit => INT8);
    cost!("registry_pick", None::<&str> => TEXT, Some("running") => TEXT, limit => INT8, all => INT4_ARRAY, 1_800_i32 => INT4, none => INT8);
    cost!("timeline_page", long => INT8, i64::MAX => INT8, 41_i64 => INT8);
    cost!("timeline_fate", "runs" => TEXT, "long" => TEXT, 460_i64 => INT8, 499_i64 => INT8, lanes => INT8_ARRAY);
    cost!("timeline_payload", long => INT8, 250_i64 => INT8, 65_536_i32 => INT4);
    cost!("search_session", "s1" => TEXT, all => INT4_ARRAY);
    cost!("search_message", Uuid::nil() => UUID, all => INT4_ARRAY, few => INT8);
    costs
}

#[tokio::test]
async fn what_a_page_reads_does_not_grow_with_the_database() {
    let bed = Bed::new().await;
    bed.subscribe(&Sub {
        name: "rare",
        stream: "inbound",
        ..Sub::default()
    })
    .await;
    bed.enqueue("long", "step").await;
    lengthen(&bed.client, 2, 500).await;
    let mut client = bed.db.connect().await;
    fill(&bed.client, 1, 2_000).await;
    bed.client.batch_execute("VACUUM ANALYZE").await.unwrap();
    let small = costs(&mut client).await;
    fill(&bed.client, 2_001, 20_000).await;
    lengthen(&bed.client, 501, 20_000).await;
    bed.client.batch_execute("VACUUM ANALYZE").await.unwrap();
    let large = costs(&mut client).await;
    for ((name, small), (_, large)) in small.iter().zip(&large) {
        // Trees get a level more, and rows of one session lie further apart.
        let most = small * 3 / 2 + 60;
        assert!(
            *large <= most,
            "{name}: {small} pages, and {large} of ten times as much"
        );
        assert!(*large < 12_000, "{name}: {large} pages");
    }
}
