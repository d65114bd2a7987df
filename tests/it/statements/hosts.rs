//! What waits for other hosts costs a claim nothing (I9).

use lanekeeper_postgres::claim::{self, RouteScan, ScanStart};
use lanekeeper_postgres::{host_route, settle, worker};
use tokio_postgres::Client;

use super::plans::{Observed, Work};
use crate::support::TestDb;

const HOSTS: i32 = 100;
const SESSIONS: i32 = 10_000;

/// An event for each session from `first` on, of those that are bound to host 0 or of all others.
async fn enqueue(client: &Client, of_first_host: bool) {
    let many = "SELECT count(*) FROM lanekeeper.enqueue_many('runs', (
            SELECT jsonb_agg(jsonb_build_object('session', 's' || n, 'event_type', 'step', 'payload', n))
            FROM generate_series(1, $1::int) AS n WHERE (n % $2 = 0) = $3))";
    client
        .execute(many, &[&SESSIONS, &HOSTS, &of_first_host])
        .await
        .unwrap();
}

/// A claim of all lanes of host 0, which are given back.
async fn claim_all(observed: &Observed, routes: &[i32], claim_id: i64) -> Work {
    let client = &observed.client;
    let statement = claim::prepare(client).await.unwrap();
    let unlock = client.prepare(settle::UNLOCK).await.unwrap();
    let worker_id = worker::new_worker_id(client).await.unwrap();
    let connection_id = worker::open_lane_connection(client, worker_id)
        .await
        .unwrap();
    let scans: Vec<RouteScan> = routes
        .iter()
        .map(|&route| RouteScan {
            route,
            room: 500,
            start: ScanStart::START,
        })
        .collect();
    let claim = claim::Claim {
        connection_id,
        claim_id,
        scans: &scans,
        limit: 1_000,
        held: &[],
        released: &[],
        finished: &[],
    };
    observed.forget();
    let lanes = claim::claim(client, &statement, claim).await.unwrap().lanes;
    let work = observed.work();
    assert_eq!(lanes.len(), (SESSIONS / HOSTS) as usize);
    let ids: Vec<i64> = lanes.iter().map(|lane| lane.lane_id).collect();
    let claims = [claim_id];
    settle::unlock(client, &unlock, &ids, connection_id, &claims)
        .await
        .unwrap();
    work
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_costs_the_same_however_much_waits_for_other_hosts() {
    let db = TestDb::new().await;
    let observed = Observed::new(db.url()).await;
    let client = &observed.client;
    client
        .batch_execute(
            "INSERT INTO lanekeeper.subscription (stream_id, name, adapter, retry_schedule_ms, max_attempts,
                                                  on_exhausted, coalesce, host_bound)
             SELECT stream_id, 'out', 'fake', '{1000}', 0, 'park', false, true FROM lanekeeper.stream WHERE name = 'runs';
             INSERT INTO lanekeeper.host_route (subscription_id, host)
             SELECT s.subscription_id, h.host FROM lanekeeper.subscription AS s,
                    (SELECT '' AS host UNION ALL SELECT 'h' || n FROM generate_series(0, 99) AS n) AS h;
             INSERT INTO lanekeeper.session_host (stream_id, session, host)
             SELECT t.stream_id, 's' || n, 'h' || n % 100
             FROM lanekeeper.stream AS t, generate_series(1, 10000) AS n WHERE t.name = 'runs'",
        )
        .await
        .unwrap();
    let plain = db.connect().await;
    let routes = host_route::open(&plain, "h0").await.unwrap();
    let (_, routes) = routes.into_iter().next().unwrap();
    assert_eq!(routes.len(), 2, "its own, and that of lanes without a host");
    enqueue(&plain, true).await;
    claim_all(&observed, &routes, 1).await;
    let alone = claim_all(&observed, &routes, 2).await;
    enqueue(&plain, false).await;
    let waiting = "SELECT count(*) FROM lanekeeper.ready";
    let waiting: i64 = plain.query_one(waiting, &[]).await.unwrap().get(0);
    assert_eq!(waiting, i64::from(SESSIONS));
    let among_all = claim_all(&observed, &routes, 3).await;
    println!(
        "{} pages and {} rows, then {} and {}",
        alone.buffers, alone.rows, among_all.buffers, among_all.rows
    );
    assert_eq!(among_all.seq_scans, [""; 0]);
    assert_eq!(among_all.rows, alone.rows);
    // Trees have grown a level.
    assert!(among_all.buffers <= alone.buffers + alone.buffers / 10 + 20);
}
