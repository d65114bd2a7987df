//! C9, C12: two Lanekeepers talk over HTTP, each with a database and a worker of its own, while a proxy cuts their
//! connections, and their answers in half.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::command::run;
use crate::support::{
    Dice, Line, Protocol, Proxy, Receiver, SECRET_ENV, TestDb, Upstream, WorkerProcess, connect,
    wait_until,
};

const PEER_TOKEN: &str = "PEER_TOKEN";

/// One of the two.
struct House {
    db: TestDb,
    receiver: Receiver,
    worker: WorkerProcess,
}

async fn token(db: &TestDb, name: &str) -> String {
    let arguments = [
        "token", "create", name, "--scope", "produce", "--stream", "inbox",
    ];
    let ran = run(&arguments, &[("DATABASE_URL", db.url())], "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout.trim().to_owned()
}

async fn apply(db: &TestDb, file: &str) {
    let ran = run(&["apply", "-f", "-"], &[("DATABASE_URL", db.url())], file).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

impl House {
    /// `theirs`: the token that the other gave it.
    async fn open(db: TestDb, acknowledge: &str, theirs: &str) -> Self {
        let receiver = Receiver::start(Duration::ZERO).await;
        let file = format!(
            "[stream.inbox]\nacknowledge = \"{acknowledge}\"\n\
             [stream.outbox]\nretry = {{ schedule = [\"50ms\"] }}\n\
             [subscription.app]\nstream = \"inbox\"\nadapter = \"webhook\"\nurl = \"{}\"\n\
             secret_env = \"{SECRET_ENV}\"\n",
            receiver.url()
        );
        apply(&db, &file).await;
        let variables = [
            (PEER_TOKEN, theirs),
            // One host: the cuts are no reason to leave the other alone.
            ("LANEKEEPER_WORKER__BREAKER_LANES", "1000"),
        ];
        let worker = WorkerProcess::start(db.url(), &receiver, &variables).await;
        Self {
            db,
            receiver,
            worker,
        }
    }

    async fn proxy(&self) -> Proxy {
        let address = self.worker.http();
        let address = address.strip_prefix("http://").unwrap().parse().unwrap();
        Proxy::start(Upstream::Tcp(address), Protocol::Http).await
    }

    async fn sends_to(&self, peer: &str, proxy: &Proxy) {
        let file = format!(
            "[subscription.peer]\nstream = \"outbox\"\nadapter = \"agent\"\n\
             url = \"http://127.0.0.1:{}/v1/agents/inbox/frames\"\ntoken_env = \"{PEER_TOKEN}\"\npeer = \"{peer}\"\n\
             ack = \"required\"\nack_timeout = \"3s\"\nwindow = 50\n",
            proxy.port()
        );
        apply(&self.db, &file).await;
    }

    async fn enqueue(&self, sessions: i64, count: i64) {
        let client = connect(self.db.url()).await;
        for from in (1..=count).step_by(100) {
            let bulk = "SELECT lanekeeper.enqueue_many('outbox', (
                 SELECT jsonb_agg(jsonb_build_object('session', 's' || s, 'event_type', 'note', 'payload', n) ORDER BY n, s)
                 FROM generate_series(1, $1::bigint) AS s,
                      generate_series($2::bigint, least($2 + 99, $3::bigint)) AS n))";
            client
                .execute(bulk, &[&sessions, &from, &count])
                .await
                .unwrap();
        }
    }

    /// What arrived is whole, in order, and was handled once each.
    async fn assert_exact(&self, sessions: i64, count: i64) {
        let client = connect(self.db.url()).await;
        let wrong = "SELECT count(*) FROM lanekeeper.event AS e JOIN lanekeeper.session AS n USING (session_id)
                     JOIN lanekeeper.stream AS t USING (stream_id)
                     WHERE t.name = 'inbox' AND e.payload::bigint <> e.seq";
        let wrong: i64 = client.query_one(wrong, &[]).await.unwrap().get(0);
        assert_eq!(wrong, 0, "another order than that of the sender");
        let mut arrived: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for arrival in self.receiver.seen().arrivals {
            arrived
                .entry(arrival.session)
                .or_default()
                .push(arrival.seq);
        }
        assert_eq!(arrived.len(), usize::try_from(sessions).unwrap());
        for (session, seqs) in arrived {
            assert_eq!(seqs, (1..=count).collect::<Vec<_>>(), "{session}");
        }
    }

    /// For the message of a failing test.
    async fn state(&self) -> String {
        let client = connect(self.db.url()).await;
        let row = "SELECT (SELECT count(*) FROM lanekeeper.dead) || ' dead letters, such as ' ||
                       coalesce((SELECT max(error) FROM lanekeeper.dead), 'none') || '; last error ' ||
                       coalesce((SELECT max(p.last_error) FROM lanekeeper.progress AS p), 'none')";
        client.query_one(row, &[]).await.unwrap().get(0)
    }

    /// Everything that it sent is acknowledged.
    async fn is_settled(&self) -> bool {
        let client = connect(self.db.url()).await;
        let behind = "SELECT coalesce(sum(behind), 0)::bigint FROM lanekeeper.lane_status";
        client
            .query_one(behind, &[])
            .await
            .unwrap()
            .get::<_, i64>(0)
            == 0
    }
}

async fn talk(sessions: i64, count: i64, limit: Duration) {
    let (north, south) = (TestDb::new().await, TestDb::new().await);
    for db in [&north, &south] {
        apply(db, "[stream.inbox]\n[stream.outbox]\n").await;
    }
    let to_north = token(&north, "south").await;
    let to_south = token(&south, "north").await;
    let north = House::open(north, "on_commit", &to_south).await;
    let south = House::open(south, "on_handled", &to_north).await;
    let proxies = [north.proxy().await, south.proxy().await];
    south.sends_to("north", &proxies[0]).await;
    north.sends_to("south", &proxies[1]).await;
    let enqueued = async {
        north.enqueue(sessions, count).await;
        south.enqueue(sessions, count).await;
    };
    let seed = 21;
    let dice = Dice::new(seed);
    let trouble = async {
        // Whatever is fast is in trouble once.
        for proxy in &proxies {
            proxy.set(Line {
                answer_bytes: Some(50),
                ..Line::default()
            });
        }
        loop {
            // Long enough for something to pass between, on a slow machine too.
            sleep(Duration::from_millis(300 + dice.roll(500))).await;
            for proxy in &proxies {
                if dice.roll(2) == 0 {
                    proxy.cut();
                    continue;
                }
                let half = usize::try_from(20 + dice.roll(200)).unwrap();
                proxy.set(Line {
                    answer_bytes: Some(half),
                    ..Line::default()
                });
            }
            sleep(Duration::from_millis(100)).await;
            for proxy in &proxies {
                proxy.set(Line::default());
            }
        }
    };
    let began = Instant::now();
    let all = usize::try_from(sessions * count).unwrap();
    let done = async {
        enqueued.await;
        for (house, peer) in [(&north, &south), (&south, &north)] {
            let deadline = began + limit;
            while house.receiver.seen().arrivals.len() < all {
                let arrived = house.receiver.seen().arrivals.len();
                if Instant::now() > deadline {
                    let state = peer.state().await;
                    panic!("seed {seed}: {arrived} of {all} arrived. The sender: {state}");
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    };
    tokio::select! {
        () = done => {}
        () = trouble => {}
    }
    let took = began.elapsed();
    for proxy in &proxies {
        proxy.set(Line::default());
    }
    for house in [&north, &south] {
        wait_until(limit, "everything is acknowledged", async || {
            house.is_settled().await
        })
        .await;
        house.assert_exact(sessions, count).await;
    }
    let halved: usize = proxies.iter().map(Proxy::halved).sum();
    assert!(halved > 0, "seed {seed}: no answer was cut");
    eprintln!(
        "{} messages in {took:?}, {halved} answers cut in half",
        2 * all
    );
    for house in [north, south] {
        house.worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_lanekeepers_exchange_messages_over_lines_that_are_cut_each_once_and_in_order() {
    talk(20, 60, Duration::from_secs(240)).await;
}

/// `cargo nextest run --run-ignored only -E 'test(hundred_thousand)'`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes"]
async fn a_hundred_thousand_messages_between_two_lanekeepers_are_handled_once_each_and_in_order() {
    talk(100, 500, Duration::from_secs(1800)).await;
}
