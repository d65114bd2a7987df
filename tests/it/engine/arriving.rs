//! I2, I5, I13: a lane starts as soon as its events arrive, while those of other lanes of the same claim are still on
//! their way.

use lanekeeper_engine::WorkerSettings;

use super::bed::{Bed, LIMIT};
use crate::support::{Line, Protocol, Proxy, Upstream, wait_until};

const LANES: i64 = 200;
/// Of each event: all of them take seconds at the line's pace.
const PAYLOAD_BYTES: i32 = 3_000;
const BYTES_PER_S: u32 = 400_000;

/// The connection ends where some lanes of a claim are being delivered and others have no events yet. The first
/// are dropped, and all are claimed anew: a place that either kind had kept would be missing then.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_while_events_arrive_keeps_no_lane_and_no_place() {
    let bed = Bed::new().await;
    let all_at_once = "UPDATE lanekeeper.subscription SET concurrency = 1000";
    bed.client.batch_execute(all_at_once).await.unwrap();
    bed.client
        .execute(
            "SELECT lanekeeper.enqueue('runs', 's' || s, 'step', to_jsonb(repeat('x', $2::int)))
             FROM generate_series(1, $1::bigint) AS s, generate_series(1, 2)",
            &[&LANES, &PAYLOAD_BYTES],
        )
        .await
        .unwrap();
    let proxy = Proxy::start(Upstream::of(bed.db.url()), Protocol::Postgres).await;
    proxy.set(Line {
        bytes_per_s: Some(BYTES_PER_S),
        ..Line::default()
    });
    let lanes = usize::try_from(LANES).unwrap();
    let settings = WorkerSettings {
        lane_connections: 1,
        max_lanes: Some(lanes),
        mark_after: LIMIT,
        ..WorkerSettings::default()
    };
    bed.fake.hold_all();
    let url = proxy.through(bed.db.url());
    let worker = Bed::start(&url, bed.fake.clone(), settings).await;
    wait_until(LIMIT, "some have started", async || {
        bed.fake.seen().running > 0
    })
    .await;
    proxy.cut();
    let started = bed.fake.seen().deliveries.len();
    assert!(started < lanes, "all had arrived");
    proxy.set(Line::default());
    wait_until(LIMIT, "each is being delivered once", async || {
        let seen = bed.fake.seen();
        seen.running == lanes && seen.deliveries.len() > lanes
    })
    .await;
    bed.fake.release_all();
    bed.drained().await;
    bed.assert_exact(lanes, 2);
    worker.stop().await;
}
