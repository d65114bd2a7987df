//! How long an idle worker takes from an enqueue to the start of the delivery, and how long a bare
//! NOTIFY takes to a listener: the least that waking can cost.
//!
//! Both ends are in this process and read one clock. A delivery may start before the producer has
//! seen the answer to its commit: such a sample counts as 0 after the commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::poll_fn;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_engine::Worker;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Json;
use tokio_postgres::{AsyncMessage, Client};

use super::backlog::{self, STREAM};
use super::report::{Distribution, Line, Targets};
use super::sink::Source;
use super::{BenchError, Options, Scratch, prepare, progress};

const ENQUEUE: &str = "SELECT * FROM lanekeeper.enqueue($1, $2, 'message', $3)";
/// Events go to these sessions in turn.
const SESSIONS: usize = 20;
/// Events before the measured ones: sessions, plans and caches are warm then.
const WARM_UP: usize = 2 * SESSIONS;
/// Between two events: the worker is idle again by then.
const SPACING: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(10);
const TARGETS: Targets = Targets {
    p50_ms: Some(1.5),
    p99_ms: Some(5.0),
};

/// Samples of one kind of waking.
#[derive(Default)]
struct Samples {
    from_call: Vec<Duration>,
    from_answer: Vec<Duration>,
}

impl Samples {
    fn push(&mut self, called_at: Instant, answered_at: Instant, started_at: Instant) {
        self.from_call.push(started_at - called_at);
        self.from_answer
            .push(started_at.saturating_duration_since(answered_at));
    }
}

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Vec<Line>, BenchError> {
    progress("latency");
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    let deliveries = deliveries(scratch, options).await?;
    progress("latency of a bare NOTIFY");
    let notifications = notifications(scratch, options.samples).await?;
    let line = |case, samples, targets| {
        Line::Distribution(Distribution::new("latency", case, samples, targets))
    };
    Ok(vec![
        line(
            "commit answered to delivery start",
            deliveries.from_answer,
            TARGETS,
        ),
        line(
            "enqueue called to delivery start",
            deliveries.from_call,
            Targets::default(),
        ),
        line(
            "limit: bare NOTIFY answered to notification",
            notifications.from_answer,
            Targets::default(),
        ),
        line(
            "limit: bare NOTIFY called to notification",
            notifications.from_call,
            Targets::default(),
        ),
    ])
}

/// Tells when each delivery started.
struct Starts(mpsc::UnboundedSender<Instant>);

#[async_trait]
impl Adapter for Starts {
    async fn deliver(&self, _delivery: &Delivery<'_>) -> Verdict {
        // Nobody listens any more when the measurement has ended.
        let _ = self.0.send(Instant::now());
        Verdict::Accepted
    }
}

async fn deliveries(scratch: &Scratch, options: &Options) -> Result<Samples, BenchError> {
    let (sender, mut starts) = mpsc::unbounded_channel();
    let source = Arc::new(Source::new(Arc::new(Starts(sender))));
    let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
    let client = scratch.connect().await?;
    let statement = prepare(&client, ENQUEUE).await?;
    let payload = backlog::payload();
    let mut samples = Samples::default();
    for event in 0..WARM_UP + options.samples {
        sleep(jittered()).await;
        let called_at = Instant::now();
        enqueue(&client, &statement, event, &payload).await?;
        let answered_at = Instant::now();
        let started_at = timeout(PATIENCE, starts.recv())
            .await
            .ok()
            .flatten()
            .ok_or(BenchError::Stalled {
                delivered: event as u64,
                expected: (WARM_UP + options.samples) as u64,
                silent: PATIENCE,
            })?;
        if event >= WARM_UP {
            samples.push(called_at, answered_at, started_at);
        }
    }
    worker.stop().await;
    Ok(samples)
}

async fn enqueue(
    client: &Client,
    statement: &tokio_postgres::Statement,
    event: usize,
    payload: &RawValue,
) -> Result<(), BenchError> {
    let session = format!("s-{}", event % SESSIONS);
    client
        .query_one(statement, &[&STREAM, &session, &Json(payload)])
        .await
        .map(drop)
        .map_err(BenchError::on("enqueuing an event"))
}

async fn notifications(scratch: &Scratch, count: usize) -> Result<Samples, BenchError> {
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    let (listener, mut connection) = scratch
        .database()
        .connect()
        .await
        .map_err(BenchError::Connect)?;
    let reading = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_))
                && sender.send(Instant::now()).is_err()
            {
                return;
            }
        }
    });
    listener
        .batch_execute("LISTEN bench")
        .await
        .map_err(BenchError::on("listening"))?;
    let client = scratch.connect().await?;
    let mut samples = Samples::default();
    for _ in 0..count {
        sleep(jittered()).await;
        let called_at = Instant::now();
        client
            .batch_execute("NOTIFY bench")
            .await
            .map_err(BenchError::on("notifying"))?;
        let answered_at = Instant::now();
        let arrived_at = timeout(PATIENCE, arrivals.recv())
            .await
            .ok()
            .flatten()
            .ok_or(BenchError::NotNotified(PATIENCE))?;
        samples.push(called_at, answered_at, arrived_at);
    }
    reading.abort();
    Ok(samples)
}

/// So that no timer of the worker keeps step with the producer.
fn jittered() -> Duration {
    let random = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
    SPACING.mul_f64(0.75 + 0.5 * random)
}
