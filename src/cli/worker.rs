//! `lanekeeper worker`: delivers events until it is asked to stop.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

mod process;
pub(crate) mod projection;
mod registry;

use lanekeeper_adapters as adapter;
use lanekeeper_adapters::{Attachments, Environment};
use lanekeeper_config::{Config, RetentionConfig, WorkerConfig};
use lanekeeper_core::memory::Memory;
use lanekeeper_core::subscription::built_in;
use lanekeeper_core::terminal::Terminals;
use lanekeeper_dashboard as dashboard;
use lanekeeper_dashboard::config::DashboardMode;
use lanekeeper_dashboard::{Dashboard, Figures};
use lanekeeper_engine::{
    Destination, DestinationSource, SentMessages, Stopped, TerminalInputs, Worker, WorkerSettings,
    host_name,
};
use lanekeeper_http as http;
use lanekeeper_http::access::Access;
use lanekeeper_http::api::Api;
use lanekeeper_http::events::Desk;
use lanekeeper_http::live::Live;
use lanekeeper_http::operate::{Fleet, Operators};
use lanekeeper_limit::BreakerSettings;
use lanekeeper_postgres::subscription::Subscription;
use lanekeeper_postgres::{Database, connect, pool};
use lanekeeper_producer::Producer;
use lanekeeper_producer::spool::{self, DrainLimits, DrainReport, Spool};
use lanekeeper_streams::hooks::SPOOLED;
use lanekeeper_streams::hooks::registry::SessionRegistry;
use lanekeeper_streams::inbound::{self, Polling};
use lanekeeper_telemetry::{Telemetry, Tracing, names, serving as instruments};

use super::Failure;

/// Connections for looking up access tokens.
const TOKEN_CONNECTIONS: usize = 2;
/// How long requests may still run after the worker has stopped.
const REQUESTS_WITHIN: Duration = Duration::from_secs(5);

/// Deliver events until SIGTERM or SIGINT
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Any number of workers may run on one database; each takes what the others do not hold.

Example:
  DATABASE_URL=postgres://worker@db/app lanekeeper worker")]
pub struct Args {}

pub async fn run(
    _args: Args,
    config: &Config,
    telemetry: Option<&Telemetry>,
) -> Result<ExitCode, Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    // Reports a problem with the database plainly, before the engine runs into it.
    drop(connect::connect(&config.database).await?);
    let database = connect::settings(&config.database)?;
    let serving = Serving::start(config, database, telemetry).await?;
    tracing::info!(http = %serving.address, "serving");
    stop_signal(&mut terminate, &mut interrupt).await;
    serving.stop().await
}

async fn stop_signal(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Sends the events that hook calls spooled on this machine, until `ended`.
async fn drain_spool(
    spool: Spool,
    database: Database,
    every: Duration,
    limits: DrainLimits,
    ended: CancellationToken,
) {
    loop {
        tokio::select! {
            () = ended.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
        match spool.untouched_files(limits.untouched_for, 1) {
            Ok(files) if files.is_empty() => continue,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the spool cannot be read"
                );
                continue;
            }
        }
        match drain_once(&spool, &database, &limits).await {
            Ok(report) => tracing::info!(?report, "spooled events sent"),
            Err(error) => tracing::warn!(
                error = &*error,
                "spooled events wait on; they are sent when this is mended"
            ),
        }
    }
}

/// Reads the spool's depth each time metrics are collected.
fn watch_spool(spool: Spool) {
    opentelemetry::global::meter(names::SCOPE)
        .u64_observable_gauge(names::SPOOL_DEPTH.name)
        .with_unit(names::SPOOL_DEPTH.unit)
        .with_description(names::SPOOL_DEPTH.says)
        .with_callback(move |to| {
            // `drain_spool` logs a folder that cannot be read.
            if let Ok(files) = spool.files() {
                to.observe(files.len() as u64, &[]);
            }
        })
        .build();
}

async fn drain_once(
    spool: &Spool,
    database: &Database,
    limits: &DrainLimits,
) -> Result<DrainReport, Box<dyn std::error::Error + Send + Sync>> {
    let (client, connection) = database.connect().await?;
    tokio::spawn(connection);
    let producer = Producer::new(client, database.clone());
    Ok(spool::drain(&producer, spool, limits).await?)
}

/// Where the worker keeps what people send with their messages.
fn attachments(config: &WorkerConfig) -> Option<Attachments> {
    let dir = config.attachments_dir.clone()?;
    Some(Attachments::new(dir, config.attachments_bytes))
}

/// A worker and its HTTP listener.
pub struct Serving {
    pub address: SocketAddr,
    worker: Worker,
    listening: JoinHandle<()>,
    /// Asks the platforms of sources.
    polling: JoinHandle<()>,
    ended: CancellationToken,
}

impl Serving {
    /// Starts both, on the database that `database` names.
    pub async fn start(
        config: &Config,
        database: Database,
        telemetry: Option<&Telemetry>,
    ) -> Result<Self, Failure> {
        let listener = TcpListener::bind(config.http.listen)
            .await
            .map_err(|source| {
                Failure::failed(ListenError {
                    address: config.http.listen,
                    source,
                })
            })?;
        let address = listener.local_addr().map_err(Failure::failed)?;
        let spooled_to = database.clone();
        let database_of_requests = database.with(http::events::bound_waits);
        let sent_messages = Arc::new(SentMessages::default());
        let environment = Environment::of_process(config.worker.allow_private_targets.clone())
            .with_attachments(attachments(&config.worker));
        let terminal_inputs = Arc::new(TerminalInputs::default());
        let adapters = Adapters {
            environment: environment
                .with_memory(Arc::clone(&sent_messages) as Arc<dyn Memory>)
                .with_terminals(Arc::clone(&terminal_inputs) as Arc<dyn Terminals>),
            sent_messages,
            terminal_inputs,
        };
        let environment_of_requests = adapters.environment.clone();
        let environment_of_sources = adapters.environment.clone();
        let polled_on = database.clone();
        let registry_on = database.clone();
        let followed_on = database.clone();
        let settings = WorkerSettings {
            descriptors: process::prepare(config),
            tracing: telemetry.map_or(Tracing::Off, Telemetry::tracing),
            ..settings(config)
        };
        let worker = Worker::start(database, settings, Arc::new(adapters))
            .await
            .map_err(Failure::failed)?;
        registry::switch(registry_on, config.worker.registry).await;
        let ended = CancellationToken::new();
        let pool = pool::build(
            &database_of_requests,
            config.http.pool_size,
            http::events::POOL_WITHIN,
        )
        .map_err(Failure::failed)?;
        // A pool of its own, so that checking a token does not wait for appends of other requests.
        let judging = pool::build(
            &database_of_requests,
            TOKEN_CONNECTIONS,
            http::events::POOL_WITHIN,
        )
        .map_err(Failure::failed)?;
        let access = Access::new(judging, worker.probe(), config.http.allow_unauthenticated);
        let access = Arc::new(access);
        let live = Live::start(
            &config.live,
            Arc::clone(&access),
            super::link::links(config)?,
            &followed_on,
            worker.worker_id(),
            &ended,
        )
        .map_err(Failure::failed)?;
        let serving = Arc::new(instruments::Serving::new(&opentelemetry::global::meter(
            names::SCOPE,
        )));
        let desk = Desk::new(
            access,
            pool,
            database_of_requests.clone(),
            &config.http,
            Arc::clone(&serving),
            telemetry.map_or(Tracing::Off, Telemetry::tracing),
        );
        let desk = Arc::new(desk);
        let pool = pool::build(
            &database_of_requests,
            http::operate::CONNECTIONS,
            http::events::POOL_WITHIN,
        )
        .map_err(Failure::failed)?;
        let fleet = Fleet {
            frozen_after: Duration::from_millis(config.worker.frozen_after_ms),
            stale_after_s: config.hook.stale_after_s,
        };
        let redis = config.redis.settings();
        let operators = Operators::new(Arc::clone(&desk), pool.clone(), fleet, redis);
        let polling = Polling {
            database: polled_on,
            pool: pool.clone(),
            environment: environment_of_sources,
            worker_id: worker.worker_id(),
            updates: serving.updates().clone(),
        };
        let polling = tokio::spawn(inbound::run(polling, ended.child_token()));
        let api = Api::new(
            Arc::clone(&desk),
            Arc::clone(&live),
            Arc::new(operators),
            environment_of_requests,
            worker.probe(),
            telemetry.map(Telemetry::metrics),
        );
        let mut router = http::api::router(api);
        if !config.durable_streams.streams.is_empty() {
            router = router.merge(http::durable::router(
                Arc::clone(&desk),
                Arc::clone(&live),
                &config.durable_streams,
            ));
        }
        if config.dashboard.mode != DashboardMode::Off {
            let figures = telemetry.map_or_else(Figures::default, |telemetry| {
                Figures::start(telemetry.metrics(), ended.clone())
            });
            let config = config.dashboard.clone();
            let dashboard = Dashboard::new(desk, pool, config, fleet, figures);
            router = router.merge(dashboard::router(Arc::new(dashboard)));
        }
        let (http, until) = (config.http.clone(), ended.clone());
        let max_followers = config.live.max_followers;
        let listening = tokio::spawn(async move {
            http::listener::serve(listener, router, &http, max_followers, serving, until).await;
            live.closed().await;
        });
        match Spool::new(&config.spool, SPOOLED) {
            Ok(spool) => {
                let every = config.spool.interval();
                let limits = DrainLimits {
                    // A running hook call sends its own events.
                    untouched_for: config.hook.timeout(),
                    ..DrainLimits::default()
                };
                watch_spool(spool.clone());
                let until = ended.clone();
                tokio::spawn(drain_spool(spool, spooled_to, every, limits, until));
            }
            // For example in a container without a home directory, where no hook call can have spooled anything.
            Err(error) => tracing::info!(
                error = &error as &dyn std::error::Error,
                "this worker sends no spooled events"
            ),
        }
        Ok(Self {
            address,
            worker,
            listening,
            polling,
            ended,
        })
    }

    /// Stops the worker. The probes answer until it has ended.
    pub async fn stop(self) -> Result<ExitCode, Failure> {
        let stopped = self.worker.stop().await;
        self.ended.cancel();
        if timeout(REQUESTS_WITHIN, self.listening).await.is_err() {
            tracing::warn!("requests that were under way for too long were cut off");
        }
        if timeout(REQUESTS_WITHIN, self.polling).await.is_err() {
            tracing::warn!(
                "the question for a source's messages was cut off; they come again to another worker"
            );
        }
        match stopped {
            Stopped::Clean => Ok(ExitCode::SUCCESS),
            Stopped::Abandoned { lanes } => Err(Failure::failed(AbandonedError { lanes })),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: set LANEKEEPER_HTTP__LISTEN to a free address")]
struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "{lanes} deliveries had not ended when the grace period was over; their events are delivered again by \
     other workers. Raise LANEKEEPER_WORKER__SHUTDOWN_GRACE_MS or lower the subscriptions' timeout"
)]
struct AbandonedError {
    lanes: usize,
}

struct Adapters {
    environment: Environment,
    sent_messages: Arc<SentMessages>,
    terminal_inputs: Arc<TerminalInputs>,
}

impl DestinationSource for Adapters {
    fn connected(&self, pool: &Pool) {
        self.sent_messages.connect(pool);
        self.terminal_inputs.connect(pool);
    }

    fn build(
        &self,
        subscription: &Subscription,
    ) -> Result<Destination, Box<dyn std::error::Error + Send + Sync>> {
        if subscription.adapter == built_in::REGISTRY {
            return Ok(Destination::Handler(Arc::new(SessionRegistry)));
        }
        if subscription.adapter == adapter::projection::KIND {
            let (name, settings) = (&subscription.name, &subscription.settings);
            let projection = projection::of(name, settings, &self.environment)?;
            return Ok(Destination::Projection(Arc::new(projection)));
        }
        adapter::build(
            &subscription.adapter,
            &subscription.name,
            &subscription.settings,
            &self.environment,
        )
        .map(Destination::Adapter)
        .map_err(Into::into)
    }
}

pub(super) fn settings(config: &Config) -> WorkerSettings {
    let WorkerConfig {
        ref host_label,
        lane_connections,
        max_lanes,
        prefetch_bytes,
        batch,
        poll_floor_ms,
        heartbeat_ms,
        frozen_after_ms,
        stalled_after_ms,
        trust_ms,
        mark_after_ms,
        shutdown_grace_ms,
        max_crashes,
        breaker_lanes,
        breaker_open_ms,
        // Read elsewhere in this file. Without `..`, a setting that nobody reads does not compile.
        allow_private_targets: _,
        attachments_dir: _,
        attachments_bytes: _,
        registry: _,
    } = config.worker;
    let RetentionConfig {
        days: retention_days,
        dedupe_days,
        outcome_days,
        history_days,
        document_days,
        dead_letter_days,
        operation_days,
        session_days,
        ref archive_dir,
    } = config.retention;
    WorkerSettings {
        host_label: host_label.clone().unwrap_or_else(host_name),
        lane_connections,
        // Opened if the agent registry is on, which is the only handler of this program, and if there are projections.
        handler_connections: 1,
        pool_size: config.database.pool_size,
        max_lanes: (max_lanes > 0).then_some(max_lanes),
        descriptors: None,
        prefetch_bytes,
        batch,
        poll_floor: Duration::from_millis(poll_floor_ms),
        heartbeat: Duration::from_millis(heartbeat_ms),
        frozen_after: Duration::from_millis(frozen_after_ms),
        stalled_after: Duration::from_millis(stalled_after_ms),
        trust: Duration::from_millis(trust_ms),
        mark_after: Duration::from_millis(mark_after_ms),
        shutdown_grace: Duration::from_millis(shutdown_grace_ms),
        max_crashes: i32::try_from(max_crashes).unwrap_or(i32::MAX),
        retention_days: days(retention_days),
        dedupe_days: days(dedupe_days),
        outcome_days: days(outcome_days),
        history_days: days(history_days),
        document_days: days(document_days),
        dead_letter_days: days(dead_letter_days),
        operation_days: days(operation_days),
        session_days: days(session_days),
        archive_dir: archive_dir.clone(),
        redis: config.redis.settings(),
        breaker: BreakerSettings {
            lanes: breaker_lanes,
            open: Duration::from_millis(breaker_open_ms),
        },
        tracing: Tracing::Off,
    }
}

/// `check/range.rs` keeps loaded settings far below the limit.
fn days(days: u32) -> i32 {
    i32::try_from(days).unwrap_or(i32::MAX)
}
