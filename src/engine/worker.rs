//! Starting and stopping a worker.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_limit::{Limiter, View};
use lanekeeper_postgres::lane_connection::{self, OpenError};
use lanekeeper_postgres::migrate::{self, Unfit};
use lanekeeper_postgres::worker as peers;
use lanekeeper_postgres::worker::Identity;
use lanekeeper_postgres::{Database, StoreError, pool};
use lanekeeper_telemetry::names;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::claiming::{backstop, claimer};
use crate::delivering::handler_lane::Feeds;
use crate::delivering::{handler_lane, pauses};
use crate::maintenance::archive::{self, FolderError};
use crate::maintenance::{gauges, message_counts, message_feed, statistics};
use crate::peers::clock::ServerClock;
use crate::peers::control::DestinationSource;
use crate::peers::{control, lock_table};
use crate::settings::{WorkerSettings, host_name};
use crate::shared::Shared;
use crate::waking::{doorbell, listener};

/// The longest wait for a pooled connection.
const POOL_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for lanes that are aborted after the grace period to be settled.
const HAND_BACK_WITHIN: Duration = Duration::from_secs(3);
/// The longest wait for terminated backends to be gone. They need milliseconds.
const GONE_WITHIN: Duration = Duration::from_secs(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// A claim loop runs several times within the validity window; a minute without a run means that it hangs.
const LIVE_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the database is not migrated: run `lanekeeper migrate` first. Nothing was changed")]
    NotMigrated,
    #[error(
        "the schema has version {found} and this worker needs {needed}: run `lanekeeper migrate` of this release. Nothing was changed"
    )]
    SchemaTooOld { found: i32, needed: i32 },
    #[error(
        "the schema has version {found}, for workers of version {oldest} or newer, and this worker knows {known}: run the release that migrated it, or a newer one. Nothing was changed"
    )]
    SchemaTooNew { found: i32, oldest: i32, known: i32 },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Archive(#[from] FolderError),
    #[error("cannot set up the connection pool")]
    Pool(#[from] deadpool_postgres::BuildError),
}

/// A running worker.
pub struct Worker {
    shared: Arc<Shared>,
    claimers: Vec<JoinHandle<()>>,
    /// Appends what lanes tell of messages, and what is left of it at the end.
    feed: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
    ended: CancellationToken,
}

/// How a worker stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every lane was released.
    Clean,
    /// Deliveries were still running when the grace period ended. They are repeated by other workers.
    Abandoned { lanes: usize },
}

impl Worker {
    /// Connects, checks schema and session, and starts to deliver.
    ///
    /// # Errors
    /// If the database cannot be reached, has another schema version, or is behind a pooler, or if the archive folder
    /// cannot be written to.
    pub async fn start(
        database: Database,
        settings: WorkerSettings,
        source: Arc<dyn DestinationSource>,
    ) -> Result<Self, StartError> {
        let client = lane_connection::open(&database, "start").await?.client;
        check_schema(&client).await?;
        if let Some(folder) = &settings.archive_dir {
            archive::prepare(folder).await?;
        }
        let identity = Identity {
            worker_id: peers::new_worker_id(&client).await?,
            host: host_name(),
            pid: i32::try_from(std::process::id()).unwrap_or(0),
        };
        let asked = Instant::now();
        let shown = peers::clock(&client).await?;
        let clock = ServerClock::read(asked, shown, Instant::now());
        let most = match settings.max_lanes {
            Some(lanes) => lanes,
            None => lanes_of_newcomer(&client, identity.worker_id, &settings).await?,
        };
        let pool = pool::build(&database, settings.pool_size, POOL_TIMEOUT)?;
        source.connected(&pool);
        let ended = CancellationToken::new();
        let connections = settings.lane_connections;
        let shared = Arc::new(Shared::new(database, pool, settings, identity, clock, most));
        tracing::info!(
            worker_id = shared.peers.worker_id(),
            lane_connections = connections,
            max_lanes = most,
            "worker started"
        );
        // Before the first claim: an event that kills every worker at once would otherwise be claimed again, for ever,
        // before the last crashes are charged to it.
        control::take_over(&client, &shared).await?;
        pauses::read(&client, &shared).await?;
        gauges::register(&opentelemetry::global::meter(names::SCOPE), &shared);
        let others = vec![
            // Listening starts before the first claim, so that no event is missed between the two.
            tokio::spawn(listener::listen(Arc::clone(&shared))),
            tokio::spawn(doorbell::run(Arc::clone(&shared))),
            tokio::spawn(control::run(Arc::clone(&shared), source, ended.clone())),
            tokio::spawn(share_limits(Arc::clone(&shared), ended.clone())),
            tokio::spawn(statistics::run(Arc::clone(&shared))),
            tokio::spawn(message_counts::run(Arc::clone(&shared))),
            tokio::spawn(backstop::run(Arc::clone(&shared))),
        ];
        let adapters = (0..connections).map(|_| tokio::spawn(claimer::run(Arc::clone(&shared))));
        let handlers = (0..shared.settings.handler_connections)
            .flat_map(|_| [Feeds::Handlers, Feeds::Projections])
            .map(|feeds| tokio::spawn(handler_lane::run(Arc::clone(&shared), feeds)));
        let claimers = adapters.chain(handlers).collect();
        let feed = tokio::spawn(message_feed::run(Arc::clone(&shared)));
        Ok(Self {
            shared,
            claimers,
            feed,
            others,
            ended,
        })
    }

    pub fn id(&self) -> i64 {
        self.shared.peers.worker_id()
    }

    /// How many lanes it holds.
    pub fn held(&self) -> usize {
        self.shared.claiming.held()
    }

    /// How many routes it delivers: the subscriptions that are not paused, as far as it knows.
    pub fn routes(&self) -> usize {
        self.shared.claiming.routes().iter().count()
    }

    /// Its number, under which its connections are known to its peers.
    pub fn worker_id(&self) -> i64 {
        self.shared.peers.worker_id()
    }

    /// For probes, which live longer than any borrow of the worker.
    pub fn probe(&self) -> Probe {
        Probe {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Stops claiming, lets running deliveries finish within the grace period, and releases all lanes.
    pub async fn stop(self) -> Stopped {
        self.shared.stopping.cancel();
        let mut draining = futures_util::future::join_all(self.claimers);
        let stopped = if timeout(self.shared.settings.shutdown_grace, &mut draining)
            .await
            .is_ok()
        {
            Stopped::Clean
        } else {
            let lanes = self.shared.claiming.held();
            self.shared.aborting.cancel();
            if timeout(HAND_BACK_WITHIN, &mut draining).await.is_err() {
                tracing::warn!("lanes could not be released in time; other workers take them over");
            }
            Stopped::Abandoned { lanes }
        };
        drop(draining);
        self.ended.cancel();
        for task in self.others {
            task.abort();
        }
        self.shared.maintenance.message_feed.end();
        let feed = self.feed.abort_handle();
        if timeout(HAND_BACK_WITHIN, self.feed).await.is_err() {
            feed.abort();
            tracing::warn!(
                "messages are missing from the lifecycle feed: Postgres does not answer"
            );
        }
        message_counts::write(&self.shared).await;
        match timeout(HAND_BACK_WITHIN, depart(&self.shared)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = &*error, "the worker's row could not be removed")
            }
            Err(_) => tracing::warn!("Postgres does not answer; the worker's row stays"),
        }
        tracing::info!(
            worker_id = self.shared.peers.worker_id(),
            ?stopped,
            "worker stopped"
        );
        stopped
    }
}

/// Reads a worker's state from outside.
#[derive(Clone)]
pub struct Probe {
    shared: Arc<Shared>,
}

/// Why a worker should get no traffic.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotReady {
    #[error("the worker is draining")]
    Draining,
    #[error("Postgres has not answered yet")]
    NeverAnswered,
    #[error("Postgres has not answered for {} s", .0.as_secs())]
    Silent(Duration),
    #[error(
        "the worker cannot get its liveness lock: {0} holds it; end that with pg_terminate_backend"
    )]
    Unlocked(String),
    #[error("a claim loop has stood still for {} s: restart the worker", .0.as_secs())]
    StandsStill(Duration),
}

impl Probe {
    /// Whether the claim loops run, whatever Postgres does.
    pub fn is_live(&self) -> bool {
        let health = &self.shared.maintenance.health;
        let stands = health.standing_for().is_some_and(|it| it >= LIVE_WITHIN);
        health.since_loop_turned() < LIVE_WITHIN && !stands
    }

    /// # Errors
    /// Why not.
    pub fn is_ready(&self) -> Result<(), NotReady> {
        if self.shared.stopping.is_cancelled() {
            return Err(NotReady::Draining);
        }
        if let Some(standing) = self.shared.maintenance.health.standing_for() {
            return Err(NotReady::StandsStill(standing));
        }
        match self.shared.maintenance.health.since_answered() {
            None => Err(NotReady::NeverAnswered),
            Some(silent) if silent > self.shared.settings.trust => Err(NotReady::Silent(silent)),
            Some(_) => {
                let health = &self.shared.maintenance.health;
                let holder = health.lock_holder(self.shared.settings.trust);
                holder.map_or(Ok(()), |holder| Err(NotReady::Unlocked(holder)))
            }
        }
    }

    /// The limiter, for other parts of the same process.
    pub fn limiter(&self) -> &Limiter {
        &self.shared.delivering.limiter
    }

    /// Where limits are decided now.
    pub fn limits(&self) -> View {
        self.shared.delivering.limiter.view()
    }

    /// Whether Postgres has ever answered.
    pub fn has_started(&self) -> bool {
        self.shared.maintenance.health.since_answered().is_some()
    }
}

/// Removes the worker's row, unless the server still has a connection that was abandoned: peers end the connections of
/// a worker by the age of that row.
async fn depart(shared: &Shared) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let client = shared.pool.get().await?;
    let worker_id = shared.peers.worker_id();
    if !shared.peers.abandoned.is_empty() {
        if !ended(shared, &client).await? {
            tracing::warn!(
                "abandoned connections do not end at the server; the worker's row stays"
            );
            return Ok(());
        }
        // Otherwise survivors would take it for a death and charge it.
        let frozen_after_ms = frozen_after_ms(&shared.settings);
        peers::take_over(
            &client,
            worker_id,
            frozen_after_ms,
            &shared.peers.live.ids(),
        )
        .await?;
    }
    Ok(peers::leave(&client, worker_id).await?)
}

/// Waits until the abandoned backends are gone. Returns whether they are.
async fn ended(shared: &Shared, client: &tokio_postgres::Client) -> Result<bool, StoreError> {
    let terminated_at = Instant::now();
    loop {
        shared.peers.abandoned.end(client).await?;
        let gone = shared.peers.abandoned.is_empty();
        if gone || terminated_at.elapsed() >= GONE_WITHIN {
            return Ok(gone);
        }
        sleep(CHECK_INTERVAL).await;
    }
}

fn frozen_after_ms(settings: &WorkerSettings) -> i64 {
    i64::try_from(settings.frozen_after.as_millis()).unwrap_or(i64::MAX)
}

async fn share_limits(shared: Arc<Shared>, ended: CancellationToken) {
    shared.delivering.limiter.run(ended).await;
}

/// How many lanes a worker may hold that has no row yet.
async fn lanes_of_newcomer(
    client: &tokio_postgres::Client,
    worker_id: i64,
    settings: &WorkerSettings,
) -> Result<usize, StoreError> {
    let entries = peers::lock_table(client).await?;
    let others = peers::fleet(client, worker_id, frozen_after_ms(settings)).await?;
    Ok(lock_table::lanes_of_newcomer(entries, others.replicas))
}

async fn check_schema(client: &tokio_postgres::Client) -> Result<(), StartError> {
    let needed = migrate::latest();
    let version = migrate::version(client).await?;
    let version = version.ok_or(StartError::NotMigrated)?;
    version.admits(needed).map_err(|unfit| match unfit {
        Unfit::TooOld { found } => StartError::SchemaTooOld { found, needed },
        Unfit::TooNew { found } => StartError::SchemaTooNew {
            found: found.number,
            oldest: found.oldest_worker,
            known: needed,
        },
    })
}
