//! The hot statements, on tables that are full of everything that can pile up.

use lanekeeper_postgres::claim::{self, ClaimedLane, RouteScan, ScanStart};
use lanekeeper_postgres::fetch::{self, Position};
use lanekeeper_postgres::settle::{self, Operation, Settled, Settlement};
use lanekeeper_postgres::worker;
use tokio_postgres::Client;

use super::connection::settlement;
use super::plans::{Observed, Work};
use crate::support::TestDb;

const LANES: i32 = 100;

/// A worker's lane connection by hand.
struct Holder {
    observed: Observed,
    claim: tokio_postgres::Statement,
    fetch: fetch::Fetch,
    settle: settle::Settle,
    unlock: tokio_postgres::Statement,
    connection_id: i64,
    claims: i64,
}

/// What a round of a lane connection cost, statement by statement.
#[derive(Debug)]
struct Cost {
    claim: Work,
    fetch: Work,
    settle: Work,
    finish: Work,
    enqueue: Work,
    enqueue_many: Work,
}

impl Cost {
    fn each(&self) -> [(&'static str, &Work); 6] {
        [
            ("claim", &self.claim),
            ("fetch", &self.fetch),
            ("settle", &self.settle),
            ("finish", &self.finish),
            ("enqueue", &self.enqueue),
            ("enqueue_many", &self.enqueue_many),
        ]
    }
}

impl Holder {
    async fn new(url: &str) -> Self {
        let observed = Observed::new(url).await;
        let client = &observed.client;
        let worker_id = worker::new_worker_id(client).await.unwrap();
        Self {
            claim: claim::prepare(client).await.unwrap(),
            fetch: fetch::prepare(client).await.unwrap(),
            settle: settle::prepare(client).await.unwrap(),
            unlock: client.prepare(settle::UNLOCK).await.unwrap(),
            connection_id: worker::open_lane_connection(client, worker_id)
                .await
                .unwrap(),
            claims: 0,
            observed,
        }
    }

    async fn claim(&mut self, limit: i32) -> Vec<ClaimedLane> {
        self.claims += 1;
        let scan = RouteScan {
            route: 1,
            room: limit,
            start: ScanStart::START,
        };
        let client = &self.observed.client;
        let claim = claim::Claim {
            connection_id: self.connection_id,
            claim_id: self.claims,
            scans: &[scan],
            limit,
            held: &[],
            released: &[],
            finished: &[],
        };
        claim::claim(client, &self.claim, claim)
            .await
            .unwrap()
            .lanes
    }

    /// Settles one event of each lane, and lets the lanes go.
    async fn pass_one(
        &mut self,
        lanes: &[ClaimedLane],
        operation: Operation,
        expected: Settled,
    ) -> Work {
        self.observed.forget();
        let passed = |lane: &ClaimedLane| Settlement {
            changed: true,
            cursor: lane.cursor + 1,
            ..settlement(lane, operation)
        };
        let settlements: Vec<_> = lanes
            .iter()
            .map(|lane| (passed(lane), lane.entry))
            .collect();
        let client = &self.observed.client;
        let settled = settle::settle(client, &self.settle, 1, &settlements)
            .await
            .unwrap();
        let work = self.observed.work();
        assert_eq!(settled, vec![expected; LANES as usize]);
        let ids: Vec<i64> = lanes.iter().map(|lane| lane.lane_id).collect();
        let (connection_id, claims) = (self.connection_id, [self.claims]);
        settle::unlock(client, &self.unlock, &ids, connection_id, &claims)
            .await
            .unwrap();
        self.observed.forget();
        work
    }

    /// Claims, reads on, settles one event of each lane and lets the lanes go, and so once more.
    async fn round(&mut self) -> Cost {
        self.observed.forget();
        let lanes = self.claim(LANES).await;
        let claim = self.observed.work();
        assert_eq!(lanes.len(), LANES as usize);
        let client = &self.observed.client;
        let positions: Vec<Position> = lanes
            .iter()
            .map(|lane| Position {
                session_id: lane.session_id,
                cursor: lane.cursor,
                cursor_day: lane.cursor_day,
                subscription_id: lane.entry.route,
            })
            .collect();
        let events = fetch::fetch(client, &self.fetch, &positions, 20, 4096)
            .await
            .unwrap();
        let fetch = self.observed.work();
        assert!(events.iter().all(|events| events.len() == 20));

        let settle = self.pass_one(&lanes, Operation::Yield, Settled::Done).await;
        let lanes = self.claim(LANES).await;
        let finish = self
            .pass_one(&lanes, Operation::Finish, Settled::More)
            .await;

        let client = &self.observed.client;
        let one = "SELECT * FROM lanekeeper.enqueue('runs', 's7', 'step', '{}')";
        client.execute(one, &[]).await.unwrap();
        let enqueue = self.observed.work();
        enqueue_bulk(client, 100, 1).await;
        let enqueue_many = self.observed.work();
        Cost {
            claim,
            fetch,
            settle,
            finish,
            enqueue,
            enqueue_many,
        }
    }
}

async fn enqueue_bulk(client: &Client, sessions: i64, count: i64) {
    client
        .execute(
            "SELECT count(*) FROM lanekeeper.enqueue_many('runs', (
                 SELECT jsonb_agg(jsonb_build_object('session', 's' || s, 'event_type', 'step', 'payload', n))
                 FROM generate_series(1, $1::bigint) AS s, generate_series(1, $2::bigint) AS n))",
            &[&sessions, &count],
        )
        .await
        .unwrap();
}

/// What piles up: a million entries that are not due, the due ones of a paused subscription, and row
/// versions that a snapshot keeps.
async fn pile_up(client: &Client) {
    client
        .batch_execute(
            "INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
             SELECT 1, 0, now() + interval '1 hour' + n * interval '1 ms', 1 + n % 2000
             FROM generate_series(1, 1000000) AS n;
             INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id)
             SELECT 2, 0, now() - n * interval '1 ms', 1 + n % 2000 FROM generate_series(1, 100000) AS n",
        )
        .await
        .unwrap();
    for _ in 0..10 {
        client
            .batch_execute(
                "WITH gone AS (DELETE FROM lanekeeper.progress RETURNING *)
                 INSERT INTO lanekeeper.progress (lane_id, version, cursor, cursor_day)
                 SELECT lane_id, version + 1, cursor, cursor_day FROM gone",
            )
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_statements_cost_the_same_whatever_has_piled_up() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    client
        .batch_execute(
            "INSERT INTO lanekeeper.subscription (stream_id, name, adapter, retry_schedule_ms, max_attempts,
                                                  on_exhausted, coalesce)
             SELECT stream_id, 'out', 'fake', '{1000}', 0, 'park', false FROM lanekeeper.stream WHERE name = 'runs'",
        )
        .await
        .unwrap();
    // Plans are made while there is next to nothing, and kept.
    let mut holder = Holder::new(db.url()).await;
    enqueue_bulk(&client, 100, 20).await;
    holder.round().await;
    enqueue_bulk(&client, 2000, 20).await;
    let before = holder.round().await;

    let snapshot = db.connect().await;
    snapshot
        .batch_execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lanekeeper.lane",
        )
        .await
        .unwrap();
    for _ in 0..8 {
        enqueue_bulk(&client, 2000, 10).await;
    }
    pile_up(&client).await;
    let events = client
        .query_one("SELECT count(*) FROM lanekeeper.event", &[])
        .await
        .unwrap();
    assert!(events.get::<_, i64>(0) > 200_000);
    let after = holder.round().await;
    snapshot.batch_execute("COMMIT").await.unwrap();

    for ((name, before), (_, after)) in before.each().into_iter().zip(after.each()) {
        println!(
            "{name}: {} pages and {} rows, then {} and {}",
            before.buffers, before.rows, after.buffers, after.rows
        );
        assert_eq!(after.seq_scans, [""; 0], "{name}");
        assert!(after.rows <= before.rows + before.rows / 4 + 20, "{name}");
        // Trees have grown a level or two.
        assert!(after.buffers <= before.buffers * 2 + 50, "{name}");
    }
}
