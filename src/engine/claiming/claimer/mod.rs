//! A lane connection and its loop: claim, fetch, hand lanes to tasks, settle what they report (I2, I5).
//!
//! One task owns the connection. Lane tasks send it requests over a channel and never use it themselves. All
//! requests that wait in the channel are settled in one call, so settlements group themselves under load.
//!
//! # Planner settings
//!
//! Connections that claim pin the planner: no sequential scans, no bitmaps, no hash or merge joins, generic plans.
//! A plan made on an empty table stays right on a full one, and the newest row is read in index order. To the
//! planner, which counts no dead rows, a bitmap of all versions of a lane looks as cheap; behind a held snapshot
//! that is 1,500 pages. The append functions pin the same settings, so no append is planned anew however many
//! partitions there are. For all other sessions the schema declares that a lane has fifty versions (`n_distinct`).
//! No plan may join by anything but the ctid (`lane_id + 0`), or a plan made on a small table would read all of a
//! large one.
//!
//! # Failures
//!
//! | failure | what happens |
//! |---|---|
//! | the connection ends, or an answer takes longer than the validity window | all lanes of the connection are dropped where they are, nothing is settled; the backend is ended if the server still has it; a new connection claims from the rows |
//! | a claim fails half-way | locks may be held that this worker does not know of: the connection is closed |
//! | the server refuses a settlement for good | the lanes are settled one by one; the one at fault waits a minute, and its error is logged |
//! | the process dies | the server releases the locks; ready entries and claims are still there for the survivors |

mod claim_lanes;
mod held;
mod settle_lanes;
mod size;
mod standstill;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lanekeeper_fault::CrashPoint;
#[cfg(feature = "crash-points")]
use lanekeeper_fault::Hang;
use lanekeeper_postgres::lane_connection::{self, Backend, OpenError, Opened};
use lanekeeper_postgres::settle;
use lanekeeper_postgres::{ErrorClass, StoreError, claim, fetch, worker};
use lanekeeper_telemetry::Tracing;
use lanekeeper_telemetry::instruments::Cause;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::{Client, Statement};

use self::held::Holdings;
use self::size::ClaimSize;
use self::standstill::Standstill;
use crate::claiming::kind::Kind;
use crate::claiming::request::{Batch, Reply, Request};
use crate::claiming::scan::Scans;
use crate::peers::lock_validity::{LockValidity, Loss};
use crate::shared::{Shared, random};

use crate::delivering::adapter_lane::LaneContext;

/// Between two attempts to open the connection.
const REOPEN_DELAY: Duration = Duration::from_millis(250);

#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("cannot open a lane connection")]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the validity window passed without an answer from Postgres")]
    ValidityLost,
    #[error("Postgres or the network closed the connection")]
    Closed,
    #[error("the task of a lane failed; its panic is in the log")]
    TaskFailed,
}

impl SessionError {
    fn of(validity: &LockValidity) -> Self {
        match validity.why() {
            Some(Loss::Closed) => Self::Closed,
            Some(Loss::TaskFailed) => Self::TaskFailed,
            Some(Loss::WindowPassed) | None => Self::ValidityLost,
        }
    }
}

/// Runs one lane connection after another until the worker stops.
pub async fn run(shared: Arc<Shared>) {
    while !shared.stopping.is_cancelled() {
        shared.maintenance.health.loop_turned();
        let Err(error) = session(&shared).await else {
            return;
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "lane connection lost; its lanes are claimed again, no event is lost"
        );
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(REOPEN_DELAY.mul_f64(1.0 + random())) => {}
        }
    }
}

async fn session(shared: &Arc<Shared>) -> Result<(), SessionError> {
    let Opened {
        client,
        task,
        backend,
    } = lane_connection::open(&shared.database, "lanes").await?;
    let held = hold(shared, client, task, backend).await;
    if held.is_err() {
        // Only now: the validity of its locks ended with `hold`.
        shared.peers.abandoned.enter(backend);
    }
    held
}

async fn hold(
    shared: &Arc<Shared>,
    client: Client,
    connection: JoinHandle<()>,
    backend: Backend,
) -> Result<(), SessionError> {
    let window = shared.settings.trust;
    let asked_at = Instant::now();
    let validity = Arc::new(LockValidity::new(window));
    let (statements, connection_id) = timeout(window, async {
        let statements = Statements::prepare(&client).await?;
        let id = worker::open_lane_connection(&client, shared.peers.worker_id()).await?;
        Ok::<_, StoreError>((statements, id))
    })
    .await
    .map_err(|_| SessionError::ValidityLost)??;
    validity.confirm(asked_at);
    let _in_use = shared.peers.live.enter(connection_id);
    let _guard = ValidityGuard::new(&validity, connection);
    let _watched = Standstill::watch(shared, &validity, backend);

    let (requests, incoming) = mpsc::unbounded_channel();
    let context = Arc::new(LaneContext {
        shared: Arc::clone(shared),
        validity: Arc::clone(&validity),
        requests,
    });
    let mut session = Session {
        shared,
        client,
        statements,
        connection_id,
        context,
        incoming,
        holdings: Holdings::default(),
        released: Vec::new(),
        next_claim_id: 1,
        size: ClaimSize::new(),
        scans: Scans::new(&shared.claiming.poll_floors, Kind::Adapters),
    };
    let result = session.run().await;
    shared.waking.idle.leave(connection_id);
    result
}

/// Ends validity when the connection ends, when the window has passed, and when the session ends.
struct ValidityGuard {
    validity: Arc<LockValidity>,
    tasks: [JoinHandle<()>; 2],
}

impl ValidityGuard {
    fn new(validity: &Arc<LockValidity>, connection: JoinHandle<()>) -> Self {
        let watching = Arc::clone(validity);
        let watch = tokio::spawn(async move { watching.watch().await });
        let losing = Arc::clone(validity);
        let end = tokio::spawn(async move {
            // This task ends with the connection, for whatever reason.
            let _ = connection.await;
            losing.lose(Loss::Closed);
        });
        Self {
            validity: Arc::clone(validity),
            tasks: [watch, end],
        }
    }
}

impl Drop for ValidityGuard {
    fn drop(&mut self) {
        self.validity.lose(Loss::Closed);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct Statements {
    claim: Statement,
    fetch: fetch::Fetch,
    settle: settle::Settle,
    unlock: Statement,
    in_flight: Statement,
}

impl Statements {
    async fn prepare(client: &Client) -> Result<Self, StoreError> {
        Ok(Self {
            claim: claim::prepare(client).await?,
            fetch: fetch::prepare(client).await?,
            settle: settle::prepare(client).await?,
            unlock: client
                .prepare(settle::UNLOCK)
                .await
                .map_err(StoreError::on("preparing the unlock"))?,
            in_flight: client
                .prepare(settle::RECORD_IN_FLIGHT)
                .await
                .map_err(StoreError::on("preparing the in-flight record"))?,
        })
    }
}

struct Session<'a> {
    shared: &'a Arc<Shared>,
    client: Client,
    statements: Statements,
    connection_id: i64,
    context: Arc<LaneContext>,
    incoming: mpsc::UnboundedReceiver<Request>,
    holdings: Holdings,
    /// Released lanes whose locks are given back with the next claim, or before the next wait.
    released: Vec<i64>,
    next_claim_id: i64,
    size: ClaimSize,
    scans: Scans,
}

impl Session<'_> {
    async fn run(&mut self) -> Result<(), SessionError> {
        loop {
            self.shared.maintenance.health.loop_turned();
            #[cfg(feature = "crash-points")]
            if !self.holdings.is_empty() {
                Hang::Claim.stand().await;
            }
            self.serve().await?;
            let stopping = self.shared.stopping.is_cancelled();
            if stopping && self.holdings.is_empty() {
                return self.close().await;
            }
            let now = Instant::now();
            if !stopping && self.scans.due(now) && self.finds_room() {
                self.claim(now).await?;
            }
            self.record_in_flight(Instant::now()).await?;
            self.wait(stopping).await?;
        }
    }

    /// Waits for the first of several events. Every arm is cancel-safe and writes nothing.
    async fn wait(&mut self, stopping: bool) -> Result<(), SessionError> {
        self.unlock_released().await?;
        if !self.incoming.is_empty() {
            return Ok(());
        }
        let validity = &self.context.validity;
        // Long before the validity window ends, so that one slow answer does not end it.
        let ping_at = validity.deadline() - self.shared.settings.trust.mul_f64(0.7);
        let in_flight_at = self.holdings.in_flight_at();
        let can_claim = !stopping && self.room() > 0;
        let claim_at = self.scans.next_at();
        let asked_at = tokio::select! {
            biased;
            () = validity.lost().cancelled() => return Err(SessionError::of(validity)),
            request = self.incoming.recv() => {
                if let Some(request) = request {
                    return self.handle(vec![request]).await;
                }
                return Ok(());
            }
            // Even without room: the notification may be about room.
            () = self.shared.waking.lane_connections.notified(), if !stopping => {
                self.shared.instruments.woken(Cause::Notification);
                self.scans.wake();
                return Ok(());
            }
            () = sleep_until(claim_at), if can_claim => {
                self.shared.instruments.woken(Cause::Timer);
                return Ok(());
            }
            () = sleep_until(in_flight_at.unwrap_or(ping_at)), if in_flight_at.is_some() => return Ok(()),
            () = self.shared.stopping.cancelled(), if !stopping => return Ok(()),
            () = sleep_until(ping_at) => Instant::now(),
        };
        self.ask(asked_at, async {
            self.client
                .simple_query("")
                .await
                .map(drop)
                .map_err(StoreError::on("checking the lane connection"))
        })
        .await
    }

    /// Awaits an answer from Postgres, at most until validity ends.
    async fn ask<T>(
        &self,
        asked_at: Instant,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, SessionError> {
        let validity = &self.context.validity;
        let answer = tokio::select! {
            biased;
            answer = question => answer,
            () = validity.lost().cancelled() => return Err(SessionError::of(validity)),
        };
        match &answer {
            Err(error) if error.class() == ErrorClass::ConnectionLost => {}
            _ => {
                validity.confirm(asked_at);
                self.shared.maintenance.health.answered();
            }
        }
        Ok(answer?)
    }

    /// When something begins that gets a span; `None`: nothing is traced.
    fn traced(&self) -> Option<SystemTime> {
        (self.shared.settings.tracing != Tracing::Off).then(SystemTime::now)
    }

    fn next_claim_id(&mut self) -> i64 {
        let claim_id = self.next_claim_id;
        self.next_claim_id += 1;
        claim_id
    }

    /// Gives back the locks of released lanes, and ends claims of which no lane is held.
    async fn unlock_released(&mut self) -> Result<(), SessionError> {
        let lanes = std::mem::take(&mut self.released);
        let finished_claims = self.holdings.take_finished_claims();
        if !lanes.is_empty() || !finished_claims.is_empty() {
            self.ask(Instant::now(), self.unlock(&lanes, &finished_claims))
                .await?;
        }
        if !lanes.is_empty() {
            CrashPoint::Unlocked.pass();
        }
        Ok(())
    }

    /// Gives back locks, once for each occurrence of a lane.
    async fn unlock(&self, lanes: &[i64], finished_claims: &[i64]) -> Result<(), StoreError> {
        settle::unlock(
            &self.client,
            &self.statements.unlock,
            lanes,
            self.connection_id,
            finished_claims,
        )
        .await
    }

    async fn close(&mut self) -> Result<(), SessionError> {
        self.unlock_released().await?;
        self.ask(
            Instant::now(),
            worker::close_lane_connection(&self.client, self.connection_id),
        )
        .await
    }
}
