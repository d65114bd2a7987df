//! Appending: `lanekeeper.enqueue` and `enqueue_many` against the bare INSERT, with the server's own
//! commit settings, while no worker, a worker that keeps up, or a busy worker is there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lanekeeper_engine::Worker;
use lanekeeper_http::config::HttpConfig;
use lanekeeper_http::events::POOL_WITHIN;
use lanekeeper_postgres::append::NewEvent;
use lanekeeper_postgres::appender::Appender;
use lanekeeper_postgres::pool;
use tokio_postgres::Client;
use tokio_postgres::types::Json;

use super::backlog::{self, BULK, STREAM};
use super::bare::{self, Numbers};
use super::measure::{Pairs, per_second};
use super::report::{Comparison, Line};
use super::sink::{PACED, Sink, Source};
use super::{Backlog, BenchError, Options, Scratch, prepare, progress};

const ENQUEUE: &str = "SELECT * FROM lanekeeper.enqueue($1, $2, $3, $4)";
/// Sessions of each producer; they exist before the measurement, with one event each.
const SESSIONS: usize = 125;
/// Of each run.
const SECONDS: f64 = 2.0;
const EVENT_TYPE: &str = "message";
/// Keeps a worker busy, a few thousand deliveries a second, for as long as a case takes.
const BUSY: Backlog = Backlog {
    sessions: 64,
    events: 4_000,
};

#[derive(Clone, Copy, Debug)]
pub struct Case {
    clients: usize,
    unit: Unit,
    way: Way,
    worker: Presence,
    target: Option<f64>,
}

/// How clients reach the server.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Each has a connection of its own.
    Connections,
    /// All are callers of one [`Appender`], as requests to a worker's HTTP API are.
    Appender,
}

/// What one transaction appends.
#[derive(Clone, Copy, Debug)]
enum Unit {
    One,
    Bulk,
}

#[derive(Clone, Copy, Debug)]
enum Presence {
    None,
    /// Idle until there is something: producers meet its doorbell.
    Idle,
    /// Has a backlog of slow deliveries the whole time.
    Busy,
}

const fn one(clients: usize, worker: Presence, target: Option<f64>) -> Case {
    Case {
        clients,
        unit: Unit::One,
        way: Way::Connections,
        worker,
        target,
    }
}

const fn callers(clients: usize) -> Case {
    Case {
        way: Way::Appender,
        ..one(clients, Presence::None, None)
    }
}

const fn bulk(clients: usize) -> Case {
    Case {
        unit: Unit::Bulk,
        ..one(clients, Presence::None, Some(0.8))
    }
}

pub const CASES: [Case; 10] = [
    one(8, Presence::None, Some(0.75)),
    one(8, Presence::Idle, None),
    one(8, Presence::Busy, None),
    one(1, Presence::None, Some(0.75)),
    one(1, Presence::Idle, None),
    one(1, Presence::Busy, None),
    callers(8),
    callers(64),
    bulk(1),
    bulk(4),
];

#[derive(Clone, Copy)]
enum Method {
    Enqueue,
    Bare,
}

pub async fn measure(scratch: &Scratch, options: &Options, case: Case) -> Result<Line, BenchError> {
    let name = case.name();
    progress(&format!("enqueue, {name}"));
    scratch.recreate().await?;
    bare::create(scratch).await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    for client in 0..case.clients {
        let sessions = Backlog {
            sessions: SESSIONS,
            events: 1,
        };
        backlog::load(scratch, &prefix(client), sessions).await?;
    }
    if matches!(case.worker, Presence::Busy) {
        backlog::load(scratch, PACED, BUSY).await?;
    }
    let worker = case.start_worker(scratch, options).await?;

    let mut pairs = Pairs::default();
    let appender = case.appender(scratch)?.map(Arc::new);
    let mut producers = Vec::new();
    for client in 0..case.clients {
        producers.push(Producer::new(scratch, client, appender.clone()).await?);
    }
    let time = Duration::from_secs_f64(options.seconds.unwrap_or(SECONDS));
    for _ in 0..options.runs() {
        let value = together(&mut producers, case.unit, Method::Enqueue, time).await?;
        let reference = together(&mut producers, case.unit, Method::Bare, time).await?;
        pairs.push(value, reference);
    }
    if let Some(worker) = worker {
        worker.stop().await;
    }
    let against = match case.unit {
        Unit::One => "bare INSERT",
        Unit::Bulk => "bare bulk INSERT",
    };
    Ok(Line::Comparison(Comparison::new(
        ("enqueue", name),
        against,
        pairs,
        case.target,
    )))
}

impl Case {
    fn name(self) -> String {
        let clients = match (self.way, self.clients) {
            (Way::Connections, 1) => "1 client".to_owned(),
            (Way::Connections, n) => format!("{n} clients"),
            (Way::Appender, n) => format!("{n} callers of one appender"),
        };
        let unit = match self.unit {
            Unit::One => "one event per transaction".to_owned(),
            Unit::Bulk => format!("{BULK} events per call"),
        };
        let worker = match self.worker {
            Presence::None => "no worker",
            Presence::Idle => "a worker that keeps up",
            Presence::Busy => "a busy worker",
        };
        format!("{clients}, {unit}, {worker}")
    }

    fn appender(self, scratch: &Scratch) -> Result<Option<Appender>, BenchError> {
        if matches!(self.way, Way::Connections) {
            return Ok(None);
        }
        let database = scratch.database();
        // As a worker has it for requests by default.
        let size = HttpConfig::default().pool_size;
        let pool = pool::build(&database, size, POOL_WITHIN).map_err(BenchError::Pool)?;
        Ok(Some(Appender::new(pool, database)))
    }

    async fn start_worker(
        self,
        scratch: &Scratch,
        options: &Options,
    ) -> Result<Option<Worker>, BenchError> {
        if matches!(self.worker, Presence::None) {
            return Ok(None);
        }
        let sink = Arc::new(Sink::default());
        sink.expect(self.clients * SESSIONS);
        let source = Arc::new(Source::new(Arc::clone(&sink)));
        let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
        sink.wait().await?;
        Ok(Some(worker))
    }
}

fn prefix(client: usize) -> String {
    format!("c{client}")
}

/// Runs all producers for `time`; events per second of all together.
async fn together(
    producers: &mut [Producer],
    unit: Unit,
    method: Method,
    time: Duration,
) -> Result<f64, BenchError> {
    let started_at = Instant::now();
    let until = started_at + time;
    let producing = producers
        .iter_mut()
        .map(|producer| producer.run(unit, method, until));
    let counts = futures_util::future::try_join_all(producing).await?;
    Ok(per_second(counts.iter().sum(), started_at.elapsed()))
}

struct Producer {
    client: Client,
    /// Where single events go through one.
    appender: Option<Arc<Appender>>,
    names: Vec<String>,
    numbers: Numbers,
    payload: Box<serde_json::value::RawValue>,
    enqueue: tokio_postgres::Statement,
    enqueue_many: tokio_postgres::Statement,
    insert: tokio_postgres::Statement,
    insert_many: tokio_postgres::Statement,
}

impl Producer {
    async fn new(
        scratch: &Scratch,
        number: usize,
        appender: Option<Arc<Appender>>,
    ) -> Result<Self, BenchError> {
        let client = scratch.connect().await?;
        Ok(Self {
            names: (0..SESSIONS)
                .map(|session| format!("{}-{session}", prefix(number)))
                .collect(),
            numbers: Numbers::new(number, SESSIONS, 1),
            payload: backlog::payload(),
            enqueue: prepare(&client, ENQUEUE).await?,
            enqueue_many: prepare(&client, backlog::ENQUEUE_MANY).await?,
            insert: prepare(&client, bare::INSERT).await?,
            insert_many: prepare(&client, bare::INSERT_MANY).await?,
            appender,
            client,
        })
    }

    /// Appends until the time is over; returns how many events.
    async fn run(
        &mut self,
        unit: Unit,
        method: Method,
        until: Instant,
    ) -> Result<usize, BenchError> {
        let mut count = 0;
        while Instant::now() < until {
            match unit {
                Unit::One => {
                    self.append(method, count % SESSIONS).await?;
                    count += 1;
                }
                Unit::Bulk => {
                    self.append_many(method).await?;
                    count += BULK;
                }
            }
        }
        Ok(count)
    }

    async fn append(&mut self, method: Method, session: usize) -> Result<(), BenchError> {
        let payload = &*self.payload;
        match (method, &self.appender) {
            (Method::Enqueue, Some(appender)) => {
                let event = NewEvent::new(&self.names[session], EVENT_TYPE, payload.get());
                let appended = appender.append(STREAM, &[event]).await;
                appended.map(drop).map_err(BenchError::Append)
            }
            (Method::Enqueue, None) => self
                .client
                .query_one(
                    &self.enqueue,
                    &[&STREAM, &self.names[session], &EVENT_TYPE, &Json(payload)],
                )
                .await
                .map(drop)
                .map_err(BenchError::on("enqueuing an event")),
            (Method::Bare, _) => {
                self.numbers
                    .insert(&self.client, &self.insert, session, payload)
                    .await
            }
        }
    }

    async fn append_many(&mut self, method: Method) -> Result<(), BenchError> {
        let sessions = (0..BULK).map(|event| event % SESSIONS);
        match method {
            Method::Enqueue => {
                let events: Vec<_> = sessions
                    .map(|session| backlog::event(&self.names[session], &self.payload))
                    .collect();
                backlog::enqueue_many(&self.client, &self.enqueue_many, &events).await
            }
            Method::Bare => {
                self.numbers
                    .insert_many(&self.client, &self.insert_many, sessions, &self.payload)
                    .await
            }
        }
    }
}
