//! The processes of a run and the proxies between them: workers, each behind its own to Postgres and to
//! Redis, the receiver behind another, and the producers behind one more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use crate::ground::Ground;
use crate::oracle::{Lane, LaneName, Letter, Limit, Logged, Subscription};
use crate::plan::{Fault, Plan};
use crate::receiver::Receiver;
use crate::support::{
    Line, Protocol, Proxy, RedisServer, SECRET_ENV, Upstream, WorkerProcess, connect, lanekeeper,
};
use crate::workload::STREAM;

/// What a worker process may take to start on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(60);
const FAKETIME: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
];

pub const SUBSCRIPTIONS: [Subscription; 3] = [
    Subscription {
        name: "all",
        events: None,
        max_attempts: 0,
    },
    Subscription {
        name: "some",
        events: Some(&["a"]),
        max_attempts: 0,
    },
    Subscription {
        name: "bounded",
        events: Some(&["a", "b"]),
        max_attempts: 6,
    },
];

/// Which of them has its receiver refuse some events for good, where a plan has an operator for them.
pub const REFUSED: &str = "bounded";

/// Which of them has its messages acknowledged, where a plan has a consumer for that.
pub const ACKNOWLEDGED: &str = "some";

/// Which of them has a limit, where a plan has one: less than its load at times, more than it on the whole.
pub const LIMITED: &str = "all";
pub const LIMIT: Limit = Limit {
    rate: 400,
    burst: 40,
};

/// The same figures as by default, in a tenth of the time.
const SOON: [(&str, &str); 3] = [
    ("LANEKEEPER_WORKER__FROZEN_AFTER_MS", "3000"),
    ("LANEKEEPER_WORKER__TRUST_MS", "1000"),
    ("LANEKEEPER_WORKER__HEARTBEAT_MS", "500"),
];

/// A worker's place: the process in it may change.
pub struct Place {
    pub proxy: Proxy,
    /// To Redis, where there is one.
    pub redis: Option<Proxy>,
    pub process: Option<WorkerProcess>,
    sender: (usize, String),
    pub frozen: bool,
    /// Where its clock is told how far it is off, if that can be done here.
    pub clock: Option<PathBuf>,
}

pub struct Scene {
    pub ground: Ground,
    /// Past all proxies.
    pub client: Client,
    pub workers: Vec<Place>,
    pub receiver: Receiver,
    pub receiver_proxy: Proxy,
    pub producers_proxy: Proxy,
    /// Where a limit is shared, if there is one.
    pub redis: Option<RedisServer>,
    soon: bool,
    delivery: Duration,
    _dir: TempDir,
}

impl Scene {
    pub async fn new(mut ground: Ground, plan: &Plan) -> Self {
        if plan.has(Fault::FailOver) {
            ground.replicate().await;
        }
        let clocks = plan.has(Fault::JumpClock);
        let dir = tempfile::tempdir().unwrap();
        let refused = plan.requeued.then_some(REFUSED);
        let (receiver, port) = Receiver::refusing(dir.path(), refused).await;
        let here = |port| Upstream::Tcp(([127, 0, 0, 1], port).into());
        let receiver_proxy = Proxy::start(here(port), Protocol::Http).await;
        let port = receiver_proxy.port();
        apply(ground.url(), port, plan.limited, plan.acknowledged).await;
        let upstream = Upstream::of(ground.url());
        let faketime = FAKETIME.iter().any(|path| Path::new(path).exists());
        let redis = plan.limited.then(RedisServer::start);
        let mut places = Vec::new();
        for number in 0..plan.workers {
            places.push(Place {
                proxy: Proxy::start(upstream.clone(), Protocol::Postgres).await,
                redis: match &redis {
                    Some(redis) => Some(Proxy::start(here(redis.port()), Protocol::Redis).await),
                    None => None,
                },
                process: None,
                sender: (0, String::new()),
                frozen: false,
                clock: (clocks && faketime).then(|| dir.path().join(format!("clock{number}"))),
            });
        }
        let mut scene = Self {
            client: connect(ground.url()).await,
            producers_proxy: Proxy::start(upstream, Protocol::Postgres).await,
            ground,
            workers: places,
            receiver,
            receiver_proxy,
            redis,
            soon: plan.soon,
            delivery: Duration::from_millis(plan.delivery_ms),
            _dir: dir,
        };
        scene.receiver_proxy.set(scene.calm_receiver());
        for place in 0..plan.workers {
            scene.employ(place);
        }
        scene.all_serve().await;
        scene
    }

    /// Deliveries take long enough to be caught in the act.
    pub fn calm_receiver(&self) -> Line {
        Line {
            delay: self.delivery,
            ..Line::default()
        }
    }

    /// Puts a new worker into a place, unless there is one.
    pub fn employ(&mut self, place: usize) {
        if self.workers[place].process.is_none() {
            self.workers[place].sender = self.receiver.new_secret();
            self.spawn(place);
        }
    }

    fn spawn(&mut self, number: usize) {
        let url = self.workers[number].proxy.through(self.ground.url());
        let place = &mut self.workers[number];
        let mut variables: Vec<(&str, &str)> = Vec::new();
        if self.soon {
            variables.extend(SOON);
        }
        let redis = place.redis.as_ref();
        let redis = redis.map(|proxy| format!("redis://127.0.0.1:{}", proxy.port()));
        if let Some(redis) = &redis {
            variables.push(("REDIS_URL", redis));
        }
        let file = place.clock.as_ref().map(|file| {
            std::fs::write(file, "+0").unwrap();
            file.to_str().unwrap().to_owned()
        });
        if let Some(file) = &file {
            let library = FAKETIME.iter().find(|path| Path::new(path).exists());
            variables.extend([
                ("LD_PRELOAD", *library.expect("it was there")),
                ("FAKETIME_TIMESTAMP_FILE", file.as_str()),
                ("FAKETIME_CACHE_DURATION", "1"),
                // Wall clocks jump; a monotonic clock that did would be broken hardware.
                ("DONT_FAKE_MONOTONIC", "1"),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ]);
        }
        let (sender, secret) = &place.sender;
        place.process = Some(WorkerProcess::spawn(&url, *sender, secret, &variables));
        place.frozen = false;
    }

    /// Waits until there is a worker at work in every place. One that found no database ends with an
    /// error, as it should, and is started again, as whoever runs it would.
    pub async fn all_serve(&mut self) {
        let deadline = Instant::now() + START_WITHIN;
        for number in 0..self.workers.len() {
            loop {
                let process = self.workers[number].process.as_mut().expect("an employee");
                if process.logged("serving") {
                    break;
                }
                assert!(Instant::now() < deadline, "no worker:\n{}", process.log());
                if process.has_ended() {
                    self.spawn(number);
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// The lanes with something to deliver that the worker in this place holds.
    pub async fn held(&self, place: usize) -> Vec<LaneName> {
        let process = self.workers[place].process.as_ref();
        let pid = process.expect("an employee").pid();
        let query = "SELECT s.subscription, s.session FROM lanekeeper.lane_status AS s
                     JOIN lanekeeper.worker AS w ON w.worker_id = s.held_by
                     WHERE w.pid = $1 AND s.head_seq IS NOT NULL";
        let rows = self.client.query(query, &[&pid]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    pub fn signal(&self, place: usize, signal: Signal) {
        let process = self.workers[place].process.as_ref();
        process.expect("an employee").signal(signal);
    }

    /// Transactions of producers and operators that are open at the server, whoever still waits for them.
    pub async fn at_work(&self) -> i64 {
        let query = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()
                       AND (query LIKE '%lanekeeper.enqueue%' OR query LIKE '%lanekeeper.requeue%')";
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Events that pass a filter and are not settled.
    pub async fn unsettled(&self) -> i64 {
        let query = "SELECT count(*) FROM lanekeeper.lane_status WHERE head_seq IS NOT NULL";
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// What workers said last, and which lanes wait: for the message of a failing run.
    pub async fn despair(&self) -> String {
        let query =
            "SELECT s::text FROM lanekeeper.lane_status AS s WHERE head_seq IS NOT NULL LIMIT 20";
        let rows = self.client.query(query, &[]).await;
        let mut text: Vec<String> = rows
            .unwrap_or_default()
            .iter()
            .map(|row| row.get(0))
            .collect();
        for process in self.workers.iter().filter_map(|one| one.process.as_ref()) {
            let log = process.log();
            let lines: Vec<&str> = log.lines().collect();
            text.push(lines[lines.len().saturating_sub(25)..].join("\n"));
        }
        text.join("\n")
    }
}

/// The log, by session.
pub async fn log(client: &Client) -> Result<BTreeMap<String, Vec<Logged>>, tokio_postgres::Error> {
    let query = "SELECT s.name, e.seq, e.message_id, e.event_type FROM lanekeeper.event AS e
                 JOIN lanekeeper.session AS s USING (session_id) ORDER BY s.name, e.seq";
    let mut log: BTreeMap<String, Vec<Logged>> = BTreeMap::new();
    for row in client.query(query, &[]).await? {
        log.entry(row.get(0)).or_default().push(Logged {
            seq: row.get(1),
            id: row.get(2),
            event_type: row.get(3),
        });
    }
    Ok(log)
}

/// Where every lane stands. One statement: one snapshot.
pub async fn lanes(client: &Client) -> Result<BTreeMap<LaneName, Lane>, tokio_postgres::Error> {
    let query = "SELECT u.name, s.name, p.cursor, o.seqs, o.kinds, d.seqs, d.redelivered, d.requeued, d.died_ms
                 FROM lanekeeper.lane AS l
                 JOIN lanekeeper.subscription AS u USING (subscription_id)
                 JOIN lanekeeper.session AS s ON s.session_id = l.session_id
                 CROSS JOIN LATERAL (SELECT p.cursor FROM lanekeeper.progress AS p
                     WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1) AS p
                 CROSS JOIN LATERAL (
                     SELECT coalesce(array_agg(o.seq), '{}') AS seqs, coalesce(array_agg(o.kind), '{}') AS kinds
                     FROM lanekeeper.outcome AS o WHERE o.lane_id = l.lane_id) AS o
                 CROSS JOIN LATERAL (
                     SELECT coalesce(array_agg(d.seq), '{}') AS seqs,
                            coalesce(array_agg(d.resolution IS NOT DISTINCT FROM 'requeued'), '{}') AS redelivered,
                            coalesce(array_agg(d.requeued_at IS NOT NULL), '{}') AS requeued,
                            coalesce(array_agg(floor(extract(epoch FROM d.died_at) * 1000)::bigint), '{}') AS died_ms
                     FROM lanekeeper.dead AS d WHERE d.lane_id = l.lane_id) AS d";
    let rows = client.query(query, &[]).await?;
    let lane = |row: &tokio_postgres::Row| {
        let (seqs, kinds): (Vec<i64>, Vec<String>) = (row.get(3), row.get(4));
        Lane {
            cursor: row.get(2),
            outcomes: seqs.into_iter().zip(kinds).collect(),
            letters: letters(row),
        }
    };
    Ok(rows
        .iter()
        .map(|row| ((row.get(0), row.get(1)), lane(row)))
        .collect())
}

/// The dead letters of a row of [`lanes`].
fn letters(row: &tokio_postgres::Row) -> BTreeMap<i64, Letter> {
    let seqs: Vec<i64> = row.get(5);
    let (redelivered, requeued): (Vec<bool>, Vec<bool>) = (row.get(6), row.get(7));
    let died_ms: Vec<i64> = row.get(8);
    let mut letters = BTreeMap::new();
    for (at, seq) in seqs.into_iter().enumerate() {
        let letter = Letter {
            is_redelivered: redelivered[at],
            is_requeued: requeued[at],
            died_ms: died_ms[at],
        };
        let twice = letters.insert(seq, letter);
        assert!(twice.is_none(), "seq {seq} is two dead letters of its lane");
    }
    letters
}

pub async fn apply(url: &str, port: u16, limited: bool, acknowledged: bool) {
    let file: String = SUBSCRIPTIONS
        .iter()
        .map(|subscription| {
            let Subscription {
                name, max_attempts, ..
            } = subscription;
            let events = subscription
                .events
                .map_or(String::new(), |events| format!("events = {events:?}\n"));
            let limit = if limited && *name == LIMITED {
                format!("limit = {{ rate = \"{}/s\", burst = {} }}\n", LIMIT.rate, LIMIT.burst)
            } else {
                String::new()
            };
            let ack = if acknowledged && *name == ACKNOWLEDGED {
                "ack = \"required\"\nack_timeout = \"2s\"\nwindow = 8\n"
            } else {
                ""
            };
            format!(
                "[subscription.{name}]\nstream = \"{STREAM}\"\n{events}adapter = \"webhook\"\n\
                 url = \"http://127.0.0.1:{port}/{name}\"\nsecret_env = \"{SECRET_ENV}\"\n\
                 timeout = \"5s\"\nhistory = true\n{limit}{ack}\
                 retry = {{ schedule = [\"50ms\", \"100ms\", \"200ms\"], max_attempts = {max_attempts} }}\n"
            )
        })
        .collect();
    let mut child = lanekeeper()
        .args(["apply", "-f", "-"])
        .env("DATABASE_URL", url)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(file.as_bytes()).await.unwrap();
    drop(stdin);
    let ran = child.wait_with_output().await.unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
