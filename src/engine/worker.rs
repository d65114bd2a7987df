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

use super::archive::{self, FolderError};
use super::control::DestinationSource;
use super::settings::WorkerSettings;
use super::shared::Shared;
use super::{behind, claimer, control, doorbell, gauges, lock_table, survey, transactional, wake};

/// For a pooled connection: a large payload waits no longer.
const POOL_TIMEOUT: Duration = Duration::from_secs(5);
/// For settling what was aborted after the grace period.
const HAND_BACK_WITHIN: Duration = Duration::from_secs(3);
/// For backends that were told to end to be gone: they need milliseconds.
const GONE_WITHIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A claim loop comes around several times within the trust window; a minute means that it hangs.
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
    others: Vec<JoinHandle<()>>,
    ended: CancellationToken,
}

/// How a worker stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every lane was handed back.
    Clean,
    /// Deliveries were still running when the grace period ended; they are repeated elsewhere.
    Abandoned { lanes: usize },
}

impl Worker {
    /// Connects, checks schema and session, and starts to deliver.
    ///
    /// # Errors
    /// Where the database is not there, not migrated by this release, or behind a pooler; or where there is an archive
    /// that cannot be written to.
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
            host: host(),
            pid: i32::try_from(std::process::id()).unwrap_or(0),
        };
        // Before the first claim: an event that kills every worker at once would otherwise be claimed
        // again before the crashes of the last ones are charged to it, for ever.
        peers::take_over(&client, identity.worker_id, frozen_after_ms(&settings)).await?;
        let most = match settings.max_lanes {
            Some(lanes) => lanes,
            None => lanes_of_newcomer(&client, identity.worker_id, &settings).await?,
        };
        let pool = pool::build(&database, settings.pool_size, POOL_TIMEOUT)?;
        source.connected(&pool);
        let ended = CancellationToken::new();
        let connections = settings.lane_connections;
        let shared = Arc::new(Shared::new(database, pool, settings, identity, most));
        tracing::info!(
            worker_id = shared.identity.worker_id,
            lane_connections = connections,
            max_lanes = most,
            "worker started"
        );
        gauges::register(&opentelemetry::global::meter(names::SCOPE), &shared);
        let others = vec![
            // Listening comes before the first claim, so that nothing falls between them.
            tokio::spawn(wake::listen(Arc::clone(&shared))),
            tokio::spawn(doorbell::ring_me(Arc::clone(&shared))),
            tokio::spawn(control::run(Arc::clone(&shared), source, ended.clone())),
            tokio::spawn(share_limits(Arc::clone(&shared), ended.clone())),
            tokio::spawn(survey::run(Arc::clone(&shared))),
            tokio::spawn(behind::run(Arc::clone(&shared))),
        ];
        let adapters = (0..connections).map(|_| tokio::spawn(claimer::run(Arc::clone(&shared))));
        let handlers = (0..shared.settings.handler_connections)
            .map(|_| tokio::spawn(transactional::run(Arc::clone(&shared))));
        let claimers = adapters.chain(handlers).collect();
        Ok(Self {
            shared,
            claimers,
            others,
            ended,
        })
    }

    pub fn id(&self) -> i64 {
        self.shared.identity.worker_id
    }

    /// Lanes that it holds.
    pub fn held(&self) -> usize {
        self.shared.held()
    }

    /// Routes that it walks: of the subscriptions that are not paused, as far as it knows.
    pub fn routes(&self) -> usize {
        self.shared.routes().iter().count()
    }

    /// For probes, which outlive any borrow of the worker.
    pub fn probe(&self) -> Probe {
        Probe {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Stops claiming, lets running deliveries finish within the grace period, hands lanes back.
    pub async fn stop(self) -> Stopped {
        self.shared.stopping.cancel();
        let mut draining = futures_util::future::join_all(self.claimers);
        let stopped = if timeout(self.shared.settings.shutdown_grace, &mut draining)
            .await
            .is_ok()
        {
            Stopped::Clean
        } else {
            let lanes = self.shared.held();
            self.shared.aborting.cancel();
            if timeout(HAND_BACK_WITHIN, &mut draining).await.is_err() {
                tracing::warn!("lanes could not be handed back in time; survivors take them over");
            }
            Stopped::Abandoned { lanes }
        };
        drop(draining);
        self.ended.cancel();
        for task in self.others {
            task.abort();
        }
        match timeout(HAND_BACK_WITHIN, depart(&self.shared)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = &*error, "the worker's row stays behind"),
            Err(_) => tracing::warn!("Postgres is silent; the worker's row stays behind"),
        }
        tracing::info!(
            worker_id = self.shared.identity.worker_id,
            ?stopped,
            "worker stopped"
        );
        stopped
    }
}

/// Looks at a worker from outside.
#[derive(Clone)]
pub struct Probe {
    shared: Arc<Shared>,
}

/// Why a worker should get no traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotReady {
    #[error("the worker is draining")]
    Draining,
    #[error("Postgres has not answered yet")]
    NeverAnswered,
    #[error("Postgres has not answered for {} s", .0.as_secs())]
    Silent(Duration),
}

impl Probe {
    /// Whether the claim loops turn, whatever Postgres does.
    pub fn is_live(&self) -> bool {
        self.shared.vital_signs.since_turned() < LIVE_WITHIN
    }

    /// # Errors
    /// Why not.
    pub fn is_ready(&self) -> Result<(), NotReady> {
        if self.shared.stopping.is_cancelled() {
            return Err(NotReady::Draining);
        }
        match self.shared.vital_signs.since_answered() {
            None => Err(NotReady::NeverAnswered),
            Some(silent) if silent > self.shared.settings.trust => Err(NotReady::Silent(silent)),
            Some(_) => Ok(()),
        }
    }

    /// How fast things may be done, for what the same process serves.
    pub fn limiter(&self) -> &Limiter {
        &self.shared.limiter
    }

    /// Where limits are decided.
    pub fn limits(&self) -> View {
        self.shared.limiter.view()
    }

    /// Whether Postgres has ever answered.
    pub fn has_started(&self) -> bool {
        self.shared.vital_signs.since_answered().is_some()
    }
}

/// Removes the worker's row, unless the server still has a connection that was given up: peers end the
/// connections of workers by the age of that row.
async fn depart(shared: &Shared) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let client = shared.pool.get().await?;
    let worker_id = shared.identity.worker_id;
    if !shared.given_up.is_empty() {
        if !ended(shared, &client).await? {
            tracing::warn!(
                "connections that were given up do not end at the server; the worker's row stays behind"
            );
            return Ok(());
        }
        // Survivors would take it for a death and charge it.
        peers::take_over(&client, worker_id, frozen_after_ms(&shared.settings)).await?;
    }
    Ok(peers::leave(&client, worker_id).await?)
}

/// Whether the backends that were given up are gone, which is waited for.
async fn ended(shared: &Shared, client: &tokio_postgres::Client) -> Result<bool, StoreError> {
    let told_at = Instant::now();
    loop {
        shared.given_up.end(client).await?;
        let gone = shared.given_up.is_empty();
        if gone || told_at.elapsed() >= GONE_WITHIN {
            return Ok(gone);
        }
        sleep(LOOK_AGAIN).await;
    }
}

fn frozen_after_ms(settings: &WorkerSettings) -> i64 {
    i64::try_from(settings.frozen_after.as_millis()).unwrap_or(i64::MAX)
}

async fn share_limits(shared: Arc<Shared>, ended: CancellationToken) {
    shared.limiter.run(ended).await;
}

/// What a worker may hold that has no row among the others yet.
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

fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
