//! Ordered delivery of a backlog: of one that is there when the worker starts, and then of one that a worker meets which
//! has been running. The row queue beside it does the same: its connections drain twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lanekeeper_engine::Worker;
use lanekeeper_postgres::operate;
use tokio::time::sleep;
use tokio_postgres::Client;

use super::cost::{self, Cost, Drained, Reading};
use super::measure::{Pairs, per_second};
use super::report::{Comparison, Costs, Line};
use super::sink::{Sink, Source};
use super::{Backlog, BenchError, Options, Scratch, backlog, progress, row_queue};

/// What is drained, and by what worker.
#[derive(Clone, Copy)]
pub struct Case {
    backlog: Backlog,
    /// Lanes that the worker and the subscription have room for; `None`: as they are configured.
    lanes: Option<u32>,
    target: Option<f64>,
}

/// Deep lanes; the worst case, a lane per event; and that by a worker with less room, as one of several has it.
const CASES: [Case; 3] = [
    Case {
        backlog: Backlog {
            sessions: 5_000,
            events: 20,
        },
        lanes: None,
        target: Some(5.0),
    },
    Case {
        backlog: Backlog {
            sessions: 100_000,
            events: 1,
        },
        lanes: None,
        target: Some(1.0),
    },
    Case {
        backlog: Backlog {
            sessions: 100_000,
            events: 1,
        },
        lanes: Some(512),
        target: None,
    },
];

pub fn cases(options: &Options) -> Vec<Case> {
    match options.drain {
        Some(backlog) => vec![Case {
            backlog,
            lanes: None,
            target: None,
        }],
        None => CASES.into(),
    }
}

pub async fn measure(
    scratch: &Scratch,
    options: &Options,
    case: Case,
) -> Result<Vec<Line>, BenchError> {
    let Case {
        backlog, target, ..
    } = case;
    let mut options = options.clone();
    let mut name = backlog.to_string();
    if let Some(lanes) = case.lanes {
        options.worker.max_lanes = Some(lanes as usize);
        options.concurrency = lanes;
        name = format!("{name}, room for {lanes} lanes");
    }
    let options = &options;
    let [mut alike, mut flushed, mut started] = [(); 3].map(|()| Pairs::default());
    let (mut costs, mut references) = (Vec::new(), Vec::new());
    for run in 1..=options.runs() {
        progress(&format!("drain {name}, run {run} of {}", options.runs()));
        let drained = drain(scratch, options, backlog).await?;
        let jobs = backlog.total();
        let reference = row_queue::drain(scratch, jobs, "off").await?;
        started.push(drained.started, reference.started);
        let ((value, cost), (rate, reference)) = (drained.running, reference.running);
        costs.push(cost);
        references.push(reference);
        alike.push(value, rate);
        let on = row_queue::drain(scratch, jobs, "on").await?;
        flushed.push(value, on.running.0);
    }
    let line = |case: &str, pairs, commit: &str, target| {
        let connections = row_queue::CONNECTIONS;
        let against = format!(
            "row queue without order, {connections} connections, synchronous_commit {commit}"
        );
        let case = format!("{name}{case}");
        Line::Comparison(Comparison::new(("drain", case), against, pairs, target))
    };
    Ok(vec![
        line("", alike, "off as in the engine", target),
        line("", flushed, "on", None),
        line(
            ", by who just starts",
            started,
            "off as in the engine",
            None,
        ),
        Line::Costs(Costs {
            bench: "drain".to_owned(),
            case: name.clone(),
            value: cost::median(&costs),
            against: "row queue".to_owned(),
            reference: cost::median(&references),
        }),
    ])
}

/// Routes change with a notification, or else with a heartbeat.
const KNOWS_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long ago the first lane connection was open: its first claim is the next thing that it does.
const OPEN_FOR: &str = "
    SELECT extract(epoch FROM clock_timestamp() - min(c.opened_at))::float8 FROM lanekeeper.lane_connection AS c";

/// Two backlogs of this size, one after the other, by one worker.
pub async fn drain(
    scratch: &Scratch,
    options: &Options,
    backlog: Backlog,
) -> Result<Drained, BenchError> {
    scratch.recreate().await?;
    backlog::subscribe(scratch, options.concurrency).await?;
    backlog::load(scratch, "first", backlog).await?;
    let (mut worker, started) = Running::start(scratch, options, backlog.total()).await?;
    let running = worker.drain(scratch, "then", backlog).await?;
    worker.stop().await?;
    Ok(Drained { started, running })
}

/// Drains what is loaded with a worker that ends then: in preparation of something else.
pub async fn deliver(
    scratch: &Scratch,
    options: &Options,
    events: usize,
) -> Result<(), BenchError> {
    let (worker, _) = Running::start(scratch, options, events).await?;
    worker.stop().await
}

/// A worker that has drained something, and waits.
pub struct Running {
    worker: Worker,
    sink: Arc<Sink>,
    watcher: Client,
    delivered: usize,
}

impl Running {
    /// Starts a worker on what is loaded and waits until `events` are delivered and settled. Its rate comes with it.
    pub async fn start(
        scratch: &Scratch,
        options: &Options,
        events: usize,
    ) -> Result<(Self, f64), BenchError> {
        let watcher = scratch.connect().await?;
        let sink = Arc::new(Sink::default());
        sink.expect(events);
        let source = Arc::new(Source::new(Arc::clone(&sink)));
        let worker = Worker::start(scratch.database(), options.worker.clone(), source).await?;
        let running = Self {
            worker,
            sink,
            watcher,
            delivered: events,
        };
        let ended_at = running.settled().await?;
        let started_at = claims_since(&running.watcher).await?;
        Ok((running, per_second(events, ended_at - started_at)))
    }

    /// Loads a backlog while the subscription is paused, and drains it: events per second, from when the worker knows
    /// that it may claim to the last settlement, and what each cost.
    pub async fn drain(
        &mut self,
        scratch: &Scratch,
        prefix: &str,
        backlog: Backlog,
    ) -> Result<(f64, Cost), BenchError> {
        let events = backlog.total();
        operate::pause_subscription(&self.watcher, backlog::SUBSCRIPTION, "loading").await?;
        self.walks(0).await?;
        backlog::load(scratch, prefix, backlog).await?;
        // What the drain before left behind is no part of this one.
        backlog::vacuum(&self.watcher, backlog::TABLES).await?;
        self.delivered += events;
        self.sink.expect(self.delivered);
        let reading = Reading::take(&self.watcher).await?;
        operate::resume_subscription(&self.watcher, backlog::SUBSCRIPTION).await?;
        let started_at = self.walks(1).await?;
        let ended_at = self.settled().await?;
        let cost = reading.cost(&self.watcher, events).await?;
        Ok((per_second(events, ended_at - started_at), cost))
    }

    pub async fn stop(self) -> Result<(), BenchError> {
        self.worker.stop().await;
        let accepted = self.sink.accepted();
        backlog::check_drained(&self.watcher, accepted, self.delivered).await
    }

    async fn walks(&self, routes: usize) -> Result<Instant, BenchError> {
        let known = walks(&self.worker, routes).await;
        known.ok_or_else(|| BenchError::Stalled {
            delivered: self.sink.accepted(),
            expected: self.delivered as u64,
            silent: KNOWS_WITHIN,
        })
    }

    /// Waits until all is delivered and the last settlement was answered; returns when that was seen.
    async fn settled(&self) -> Result<Instant, BenchError> {
        self.sink.wait().await?;
        while self.worker.held() > 0 {
            sleep(LOOK_EVERY).await;
        }
        Ok(Instant::now())
    }
}

/// Waits until the worker scans so many routes; returns when that was not yet so. `None`: it did not come to that.
pub(super) async fn walks(worker: &Worker, routes: usize) -> Option<Instant> {
    let mut before = Instant::now();
    let deadline = before + KNOWS_WITHIN;
    loop {
        let looked_at = Instant::now();
        if worker.routes() == routes {
            return Some(before);
        }
        if looked_at > deadline {
            return None;
        }
        before = looked_at;
        sleep(LOOK_EVERY).await;
    }
}

/// When the worker could claim; rather too early than too late.
async fn claims_since(client: &Client) -> Result<Instant, BenchError> {
    let asked_at = Instant::now();
    let open_for = client
        .query_one(OPEN_FOR, &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(BenchError::on("asking since when lanes were claimed"))?;
    Ok(asked_at - Duration::from_secs_f64(open_for))
}
