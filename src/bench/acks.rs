//! Acknowledged delivery: by the answer of the send, by a consumer that acknowledges in groups, one message after the other,
//! and what lanes cost that wait for an acknowledgement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_engine::Worker;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;
use tokio_postgres::types::Json;
use uuid::Uuid;

use super::cost::Reading;
use super::drain::{self, Running};
use super::measure::{Pairs, per_second};
use super::report::{Comparison, Distribution, Line, Targets};
use super::sink::{Sink, Source, WAITING};
use super::{Backlog, BenchError, Options, Scratch, backlog, prepare, progress};

const USUAL: Backlog = Backlog {
    sessions: 5_000,
    events: 20,
};
/// Acknowledgements are not late in these measurements.
const BY_ANSWER: &str = "adapter = \"webhook\"\nurl = \"http://localhost/\"\nack = \"response\"";
const BY_CALL: &str = "adapter = \"stdout\"\nack = \"required\"\nack_timeout = \"1h\"\nwindow = 20";
const ONE_BY_ONE: &str = "adapter = \"stdout\"\nack = \"required\"\nack_timeout = \"1h\"";
const ACK: &str = "SELECT lanekeeper.ack($1)";
const ACK_MANY: &str =
    "SELECT count(*) FILTER (WHERE a.result = 'acked') FROM lanekeeper.ack_many($1) AS a";
const ENQUEUE: &str = "SELECT * FROM lanekeeper.enqueue($1, 's', 'message', $2)";
/// Messages of one call, and connections that call.
const GROUP: usize = 100;
const CONSUMERS: usize = 4;
/// The longest that a consumer waits for its group to be full.
const GATHERS_FOR: Duration = Duration::from_millis(50);
const WARM_UP: usize = 40;
const PATIENCE: Duration = Duration::from_secs(30);
const IDLE_SECONDS: f64 = 20.0;
const COMMITS: &str = "
    SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname = current_database()";
const WITH: &str = "waiting";
const WITHOUT: &str = "none";

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Vec<Line>, BenchError> {
    let backlog = options.drain.unwrap_or(USUAL);
    let mut lines = rates(scratch, options, backlog).await?;
    lines.push(next_message(scratch, options).await?);
    lines.extend(idle(scratch, options).await?);
    Ok(lines)
}

/// A backlog acknowledged by the answers, and one acknowledged by consumers, each beside one without acknowledgements.
async fn rates(
    scratch: &Scratch,
    options: &Options,
    backlog: Backlog,
) -> Result<Vec<Line>, BenchError> {
    let [mut answers, mut calls] = [(); 2].map(|()| Pairs::default());
    for run in 1..=options.runs() {
        progress(&format!("acks {backlog}, run {run} of {}", options.runs()));
        let (plain, _) = drain::drain(scratch, options, backlog).await?.running;
        scratch.recreate().await?;
        backlog::subscribe_with(scratch, options.concurrency, BY_ANSWER).await?;
        backlog::load(scratch, "first", backlog).await?;
        let (mut worker, _) = Running::start(scratch, options, backlog.total()).await?;
        let (answered, _) = worker.drain(scratch, "then", backlog).await?;
        worker.stop().await?;
        answers.push(answered, plain);
        calls.push(consumed(scratch, options, backlog).await?, plain);
    }
    let line = |case: String, pairs, target| {
        let against = "the same without acknowledgements";
        Line::Comparison(Comparison::new(("acks", case), against, pairs, target))
    };
    Ok(vec![
        line(
            format!("{backlog}, acknowledged by the answer"),
            answers,
            Some(0.6),
        ),
        line(
            format!("{backlog}, by ack_many of {GROUP}, window 20, {CONSUMERS} consumers"),
            calls,
            None,
        ),
    ])
}

/// Hands on what it is sent, and when.
struct Handed(mpsc::UnboundedSender<(Uuid, Instant)>);

#[async_trait]
impl Adapter for Handed {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        // Nobody listens any more when the measurement has ended.
        let _ = self.0.send((delivery.event.message_id, Instant::now()));
        Verdict::Sent
    }
}

type Sent = mpsc::UnboundedReceiver<(Uuid, Instant)>;

async fn worker(scratch: &Scratch, options: &Options) -> Result<(Worker, Sent), BenchError> {
    let (sender, sent) = mpsc::unbounded_channel();
    let source = Arc::new(Source::new(Arc::new(Handed(sender))));
    let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
    Ok((worker, sent))
}

/// Messages per second, from the first that is sent to the last acknowledgement.
async fn consumed(
    scratch: &Scratch,
    options: &Options,
    backlog: Backlog,
) -> Result<f64, BenchError> {
    scratch.recreate().await?;
    backlog::subscribe_with(scratch, options.concurrency, BY_CALL).await?;
    backlog::load(scratch, "first", backlog).await?;
    let clients = clients(scratch).await?;
    let (worker, mut sent) = worker(scratch, options).await?;
    let first = received(&mut sent, 0, backlog.total()).await?;
    let sent = Arc::new(Mutex::new(sent));
    let mut consumers = JoinSet::new();
    for (index, client) in clients.into_iter().enumerate() {
        let held = (index == 0).then_some(first.0);
        consumers.spawn(acknowledge(client, Arc::clone(&sent), held));
    }
    let mut acked = 0;
    // Each ends when nothing is sent any more: the worker is stopped when all is acknowledged.
    let client = scratch.connect().await?;
    let began = first.1;
    let done = settled(&client, backlog).await;
    let took = began.elapsed();
    worker.stop().await;
    while let Some(consumer) = consumers.join_next().await {
        acked += consumer??;
    }
    done?;
    backlog::check_drained(&client, acked, backlog.total()).await?;
    Ok(per_second(backlog.total(), took))
}

async fn clients(scratch: &Scratch) -> Result<Vec<Client>, BenchError> {
    let mut clients = Vec::with_capacity(CONSUMERS);
    for _ in 0..CONSUMERS {
        clients.push(scratch.connect().await?);
    }
    Ok(clients)
}

async fn received(
    sent: &mut Sent,
    delivered: usize,
    expected: usize,
) -> Result<(Uuid, Instant), BenchError> {
    let received = timeout(PATIENCE, sent.recv()).await.ok().flatten();
    received.ok_or(BenchError::Stalled {
        delivered: delivered as u64,
        expected: expected as u64,
        silent: PATIENCE,
    })
}

/// One consumer: acknowledges groups until the worker has ended; returns how many it acknowledged.
async fn acknowledge(
    client: Client,
    sent: Arc<Mutex<Sent>>,
    first: Option<Uuid>,
) -> Result<u64, BenchError> {
    let statement = prepare(&client, ACK_MANY).await?;
    let mut group: Vec<Uuid> = first.into_iter().collect();
    let mut acked = 0;
    loop {
        let mut gathered = sent.lock().await;
        let full_by = tokio::time::Instant::now() + GATHERS_FOR;
        let ended = loop {
            if group.len() == GROUP {
                break false;
            }
            let message = if group.is_empty() {
                gathered.recv().await
            } else {
                match tokio::time::timeout_at(full_by, gathered.recv()).await {
                    Ok(message) => message,
                    Err(_elapsed) => break false,
                }
            };
            match message {
                Some((message_id, _)) => group.push(message_id),
                None => break true,
            }
        };
        drop(gathered);
        if !group.is_empty() {
            let row = client
                .query_one(&statement, &[&group])
                .await
                .map_err(BenchError::on("acknowledging"))?;
            acked += u64::try_from(row.get::<_, i64>(0)).unwrap_or_default();
            group.clear();
        }
        if ended {
            return Ok(acked);
        }
    }
}

/// Waits until every cursor is at the end.
async fn settled(client: &Client, backlog: Backlog) -> Result<(), BenchError> {
    let (mut last, mut moved_at) = (i64::MAX, Instant::now());
    loop {
        let undelivered = backlog::undelivered(client).await?;
        if undelivered == 0 {
            return Ok(());
        }
        if undelivered < last {
            (last, moved_at) = (undelivered, Instant::now());
        } else if moved_at.elapsed() > PATIENCE {
            return Err(BenchError::Stalled {
                delivered: (backlog.total() as u64).saturating_sub(undelivered.unsigned_abs()),
                expected: backlog.total() as u64,
                silent: PATIENCE,
            });
        }
        // Each look reads all lanes.
        sleep(Duration::from_millis(500)).await;
    }
}

/// From the answer to an acknowledgement to the start of the next message's delivery.
async fn next_message(scratch: &Scratch, options: &Options) -> Result<Line, BenchError> {
    progress("acks, one message after the other");
    scratch.recreate().await?;
    backlog::subscribe_with(scratch, options.concurrency, ONE_BY_ONE).await?;
    let client = scratch.connect().await?;
    let enqueue = prepare(&client, ENQUEUE).await?;
    let ack = prepare(&client, ACK).await?;
    let payload = backlog::payload();
    let total = WARM_UP + options.samples;
    for _ in 0..=total {
        client
            .query_one(&enqueue, &[&backlog::STREAM, &Json(&payload)])
            .await
            .map_err(BenchError::on("enqueuing an event"))?;
    }
    let (worker, mut sent) = worker(scratch, options).await?;
    let mut samples = Vec::with_capacity(options.samples);
    let (mut message_id, _) = received(&mut sent, 0, total).await?;
    for event in 0..total {
        // The worker is idle again by then.
        sleep(Duration::from_millis(20)).await;
        client
            .query_one(&ack, &[&message_id])
            .await
            .map_err(BenchError::on("acknowledging"))?;
        let answered_at = Instant::now();
        let (next, started_at) = received(&mut sent, event, total).await?;
        message_id = next;
        if event >= WARM_UP {
            samples.push(started_at.saturating_duration_since(answered_at));
        }
    }
    worker.stop().await;
    let targets = Targets {
        p50_ms: Some(3.0),
        ..Targets::default()
    };
    let case = "ack answered to the start of the next delivery";
    Ok(Line::Distribution(Distribution::new(
        "acks", case, samples, targets,
    )))
}

/// What an idle worker costs beside lanes that wait for an acknowledgement, against one beside none. As rates, so that more is
/// better: how long it may idle for a second of CPU, of server and worker together, and for a transaction.
async fn idle(scratch: &Scratch, options: &Options) -> Result<Vec<Line>, BenchError> {
    let waiting = Backlog {
        sessions: options.resting,
        events: 1,
    };
    progress(&format!("acks, loading {} lanes", options.resting));
    for (base, lanes) in [(WITH, waiting.sessions), (WITHOUT, 0)] {
        scratch.recreate().await?;
        backlog::subscribe_with(scratch, options.concurrency, ONE_BY_ONE).await?;
        if lanes > 0 {
            backlog::load(scratch, WAITING, waiting).await?;
            let sink = Arc::new(Sink::default());
            sink.expect(lanes);
            let source = Arc::new(Source::new(Arc::clone(&sink)));
            let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
            sink.wait().await?;
            worker.stop().await;
        }
        scratch.freeze(base).await?;
    }
    let [mut cpu, mut commits] = [(); 2].map(|()| Pairs::default());
    for run in 1..=options.runs() {
        progress(&format!(
            "acks, idling beside {} waiting lanes, run {run} of {}",
            options.resting,
            options.runs()
        ));
        scratch.restore(WITH).await?;
        let with = idled(scratch, options).await?;
        scratch.restore(WITHOUT).await?;
        let without = idled(scratch, options).await?;
        // CPU time is counted in hundredths of a second.
        if let Some((with, without)) = with.0.zip(without.0)
            && with.min(without) > 0.0
        {
            cpu.push(1.0 / with, 1.0 / without);
        }
        commits.push(1.0 / with.1, 1.0 / without.1);
    }
    let line = |unit: &str, pairs| {
        let case = format!("idle beside {} lanes that wait", options.resting);
        let mut line = Comparison::new(("acks", case), "beside none", pairs, Some(0.95));
        unit.clone_into(&mut line.unit);
        Line::Comparison(line)
    };
    let mut lines = vec![line("s per transaction", commits)];
    if !cpu.values.is_empty() {
        lines.push(line("s per s of CPU", cpu));
    }
    Ok(lines)
}

/// Seconds of CPU and transactions, each per second. `None`: the server's processes cannot be seen from here.
async fn idled(scratch: &Scratch, options: &Options) -> Result<(Option<f64>, f64), BenchError> {
    let client = scratch.connect().await?;
    let source = Arc::new(Source::new(Arc::new(Sink::default())));
    let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
    let idle_for = Duration::from_secs_f64(options.seconds.unwrap_or(IDLE_SECONDS));
    // It has looked at everything once by then.
    sleep(idle_for / 4).await;
    let (before, commits_before) = (Reading::take(&client).await?, commits(&client).await?);
    let began = Instant::now();
    sleep(idle_for).await;
    let (after, commits_after) = (Reading::take(&client).await?, commits(&client).await?);
    let seconds = began.elapsed().as_secs_f64();
    worker.stop().await;
    let cost = after.since(before, 1);
    let cpu = cost.server_cpu_us.zip(cost.client_cpu_us);
    Ok((
        cpu.map(|(server, client)| (server + client) / 1e6 / seconds),
        (commits_after - commits_before) / seconds,
    ))
}

async fn commits(client: &Client) -> Result<f64, BenchError> {
    client
        .query_one(COMMITS, &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(BenchError::on("counting transactions"))
}
