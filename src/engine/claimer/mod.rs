//! A lane connection and its loop: claim, fetch, hand lanes to tasks, settle what they ask (I2, I5).
//!
//! One task owns the connection; lane tasks talk to it over a channel and never see Postgres. All
//! that waits in the channel is settled in one call, so settlements group themselves under load.
//!
//! | failure | what happens |
//! |---|---|
//! | the connection ends, or an answer takes longer than the trust window | all lanes of the connection are dropped where they stand, nothing is settled; its backend is ended, if the server still has it; a new connection claims from the rows |
//! | a claim fails half-way | locks may be held that nobody knows of: the connection is closed |
//! | a settlement is refused by the server for good | the lanes are settled one by one; the one at fault waits a minute, its error is logged |
//! | the process dies | the server frees the locks; tokens and claims are still there for the survivors |

mod claiming;
mod held;
mod settling;
mod size;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_postgres::{Client, Statement};

pub(super) use self::claiming::INLINE_BYTES;
use lanekeeper_fault::CrashPoint;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::lane_connection::{self, OpenError, Opened};
use lanekeeper_postgres::settle::{self, Settled, Settlement};
use lanekeeper_postgres::{ErrorClass, StoreError, claim, fetch, worker};
use lanekeeper_telemetry::instruments::Cause;

use self::held::Holdings;
use self::size::ClaimSize;
use super::budget::{Budget, Share};
use super::shared::Shared;
use super::trust::Trust;
use super::walk::{Kind, Walks};

pub use super::shared::LaneContext;

/// Between two tries to open the connection.
const REOPEN_DELAY: Duration = Duration::from_millis(250);

/// What a lane asks of its connection. At most one is outstanding per held lane, which bounds the
/// channel.
pub enum Request {
    Settle {
        settlement: Box<Settlement>,
        subscription_id: i32,
        /// Where it is to be claimed when its delay is over.
        punctual: bool,
        reply: oneshot::Sender<Reply>,
    },
    Suspect {
        lane_id: i64,
        version: i64,
        crashes: i32,
        reply: oneshot::Sender<bool>,
    },
}

/// What a settlement came to; with [`Settled::More`], the lane's next events.
pub struct Reply {
    pub settled: Settled,
    pub batch: Batch,
}

/// A lane's next events, counted as memory while they are on their way to their delivery.
#[derive(Default)]
pub struct Batch {
    pub events: Vec<FetchedEvent>,
    /// `None`: there is nothing to count.
    pub share: Option<Share>,
}

impl Batch {
    fn new(events: Vec<FetchedEvent>, budget: &Arc<Budget>) -> Self {
        let bytes = events.iter().map(FetchedEvent::memory).sum();
        Self {
            share: (bytes > 0).then(|| budget.take(bytes)),
            events,
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("cannot open a lane connection")]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the trust window passed without an answer from Postgres")]
    TrustLost,
}

/// Runs one lane connection after another until the worker stops.
pub async fn run(shared: Arc<Shared>) {
    while !shared.stopping.is_cancelled() {
        shared.vital_signs.turned();
        let Err(error) = session(&shared).await else {
            return;
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "lane connection lost; its lanes are claimed anew, nothing that was enqueued is lost"
        );
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(REOPEN_DELAY.mul_f64(1.0 + shared.random())) => {}
        }
    }
}

async fn session(shared: &Arc<Shared>) -> Result<(), SessionError> {
    let Opened {
        client,
        task,
        backend,
    } = lane_connection::open(&shared.database, "lanes").await?;
    let held = hold(shared, client, task).await;
    if held.is_err() {
        // Not before its trust has ended, with `hold`.
        shared.given_up.enter(backend);
    }
    held
}

async fn hold(
    shared: &Arc<Shared>,
    client: Client,
    connection: JoinHandle<()>,
) -> Result<(), SessionError> {
    let window = shared.settings.trust;
    let asked_at = Instant::now();
    let trust = Arc::new(Trust::new(window));
    let (statements, connection_id) = timeout(window, async {
        let statements = Statements::prepare(&client).await?;
        let id = worker::open_lane_connection(&client, shared.identity.worker_id).await?;
        Ok::<_, StoreError>((statements, id))
    })
    .await
    .map_err(|_| SessionError::TrustLost)??;
    trust.confirm(asked_at);
    let _guard = TrustGuard::new(&trust, connection);

    let (requests, incoming) = mpsc::unbounded_channel();
    let context = Arc::new(shared.lane_context(Arc::clone(&trust), requests));
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
        walks: Walks::new(&shared.settings, Kind::Adapters),
    };
    let result = session.run().await;
    shared.idle.leave(connection_id);
    result
}

/// Ends trust with the connection, with its window, and with the session's own end.
struct TrustGuard {
    trust: Arc<Trust>,
    tasks: [JoinHandle<()>; 2],
}

impl TrustGuard {
    fn new(trust: &Arc<Trust>, connection: JoinHandle<()>) -> Self {
        let watching = Arc::clone(trust);
        let watch = tokio::spawn(async move { watching.watch().await });
        let losing = Arc::clone(trust);
        let end = tokio::spawn(async move {
            // The connection's task ends with the connection, however that comes about.
            let _ = connection.await;
            losing.lose();
        });
        Self {
            trust: Arc::clone(trust),
            tasks: [watch, end],
        }
    }
}

impl Drop for TrustGuard {
    fn drop(&mut self) {
        self.trust.lose();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct Statements {
    claim: Statement,
    fetch: fetch::Fetch,
    settle: settle::Settle,
    unlock: Statement,
    mark: Statement,
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
            mark: client
                .prepare(settle::MARK)
                .await
                .map_err(StoreError::on("preparing the mark"))?,
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
    /// Lanes that were let go, and whose locks go with the next claim, or before the next wait.
    released: Vec<i64>,
    next_claim_id: i64,
    size: ClaimSize,
    walks: Walks,
}

impl Session<'_> {
    async fn run(&mut self) -> Result<(), SessionError> {
        loop {
            self.shared.vital_signs.turned();
            self.serve().await?;
            let stopping = self.shared.stopping.is_cancelled();
            if stopping && self.holdings.is_empty() {
                return self.close().await;
            }
            let now = Instant::now();
            if !stopping && self.walks.due(now) && self.finds_room() {
                self.claim(now).await?;
            }
            self.mark(Instant::now()).await?;
            self.wait(stopping).await?;
        }
    }

    /// Waits for whatever comes first. Every arm is cancel-safe and writes nothing.
    async fn wait(&mut self, stopping: bool) -> Result<(), SessionError> {
        self.unlock_released().await?;
        if !self.incoming.is_empty() {
            return Ok(());
        }
        let trust = &self.context.trust;
        // Long before the trust window ends, so that one slow answer does not end it.
        let ping_at = trust.deadline() - self.shared.settings.trust.mul_f64(0.7);
        let mark_at = self.holdings.mark_at();
        let can_claim = !stopping && self.room() > 0;
        let claim_at = self.walks.next_at();
        let asked_at = tokio::select! {
            biased;
            () = trust.lost().cancelled() => return Err(SessionError::TrustLost),
            request = self.incoming.recv() => {
                if let Some(request) = request {
                    return self.handle(vec![request]).await;
                }
                return Ok(());
            }
            // Without room too: it may be what the notification is about.
            () = self.shared.wake.notified(), if !stopping => {
                self.shared.instruments.woken(Cause::Notification);
                self.walks.wake();
                return Ok(());
            }
            () = sleep_until(claim_at), if can_claim => {
                self.shared.instruments.woken(Cause::Timer);
                return Ok(());
            }
            () = sleep_until(mark_at.unwrap_or(ping_at)), if mark_at.is_some() => return Ok(()),
            () = self.shared.stopping.cancelled(), if !stopping => return Ok(()),
            () = sleep_until(ping_at) => Instant::now(),
        };
        self.ask(asked_at, async {
            self.client
                .simple_query("")
                .await
                .map(drop)
                .map_err(StoreError::on("keeping trust"))
        })
        .await
    }

    /// Awaits an answer from Postgres, for no longer than trust lasts.
    async fn ask<T>(
        &self,
        asked_at: Instant,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, SessionError> {
        let trust = &self.context.trust;
        let answer = tokio::select! {
            biased;
            answer = question => answer,
            () = trust.lost().cancelled() => return Err(SessionError::TrustLost),
        };
        match &answer {
            Err(error) if error.class() == ErrorClass::ConnectionLost => {}
            _ => {
                trust.confirm(asked_at);
                self.shared.vital_signs.answered();
            }
        }
        Ok(answer?)
    }

    fn next_claim_id(&mut self) -> i64 {
        let claim_id = self.next_claim_id;
        self.next_claim_id += 1;
        claim_id
    }

    /// Gives back the locks of lanes that were let go, and ends claims of which nothing is held.
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

    /// Gives back locks, once for each time that a lane is given.
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
