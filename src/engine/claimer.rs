//! A lane connection and its loop: claim, fetch, hand lanes to tasks, settle what they ask (I2, I5).
//!
//! One task owns the connection; lane tasks talk to it over a channel and never see Postgres. All
//! that waits in the channel is settled in one call, so settlements group themselves under load.
//!
//! | failure | what happens |
//! |---|---|
//! | the connection ends, or an answer takes longer than the trust window | all lanes of the connection are dropped where they stand, nothing is settled; a new connection claims from the rows |
//! | a claim fails half-way | locks may be held that nobody knows of: the connection is closed |
//! | a settlement is refused by the server for good | the lanes are settled one by one; the one at fault waits a minute, its error is logged |
//! | the process dies | the server frees the locks; tokens and claims are still there for the survivors |

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_postgres::{Client, Statement};

use super::budget::Share;
use super::handler::Destination;
use super::lane::{self, Lane};
use super::route::Route;
use super::shared::{LaneHold, Shared};
use super::trust::Trust;
use super::walk::{Kind, Walks};
use crate::crash_point::CrashPoint;
use crate::store::claim::{self, Token};
use crate::store::fetch::{self, Position};
use crate::store::lane_connection::{self, OpenError};
use crate::store::settle::{self, Operation, Settled, Settlement};
use crate::store::{ErrorClass, StoreError, worker};

pub use super::shared::LaneContext;

/// Lanes taken in one claim: enough to spread its cost, few enough to share a backlog fairly.
const CLAIM_LIMIT: usize = 256;
/// Payloads up to this come with their batch; larger ones are read when it is their turn.
const INLINE_BYTES: i32 = 4096;
/// Lanes in one settlement.
const SETTLE_LIMIT: usize = 512;
/// How long a lane waits whose settlement the server refuses.
const REFUSED_DELAY: Duration = Duration::from_secs(60);
/// Between two tries to open the connection.
const REOPEN_DELAY: Duration = Duration::from_millis(250);

/// What a lane asks of its connection. At most one is outstanding per held lane, which bounds the
/// channel.
pub enum Request {
    Settle {
        settlement: Box<Settlement>,
        subscription_id: i32,
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
    pub events: Vec<fetch::FetchedEvent>,
    pub share: Share,
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
    let trust = Arc::new(Trust::new(shared.settings.trust));
    let (client, connection) = lane_connection::open(&shared.database, "lanes").await?;
    let statements = Statements::prepare(&client).await?;
    let connection_id = worker::open_lane_connection(&client, shared.identity.worker_id).await?;
    trust.confirm(Instant::now());
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
        held: HashMap::new(),
        claims: HashMap::new(),
        finished_claims: Vec::new(),
        next_claim_id: 1,
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
    fetch: Statement,
    settle: Statement,
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

/// A lane whose lock this connection holds.
struct Held {
    token: Token,
    route: Arc<Route>,
    claim_id: i64,
    /// The claim under which a suspect head is delivered alone.
    suspect_claim: Option<i64>,
    /// When its token must be moved out of the claims' way.
    mark_at: Instant,
    marked: bool,
    /// Counted here and not in the lane's task, so that a lane let go makes room before the next
    /// claim is considered.
    _hold: LaneHold,
}

struct Session<'a> {
    shared: &'a Arc<Shared>,
    client: Client,
    statements: Statements,
    connection_id: i64,
    context: Arc<LaneContext>,
    incoming: mpsc::UnboundedReceiver<Request>,
    held: HashMap<i64, Held>,
    /// Lanes still held of each claim.
    claims: HashMap<i64, usize>,
    finished_claims: Vec<i64>,
    next_claim_id: i64,
    walks: Walks,
}

impl Session<'_> {
    async fn run(&mut self) -> Result<(), SessionError> {
        loop {
            self.shared.vital_signs.turned();
            self.serve().await?;
            let stopping = self.shared.stopping.is_cancelled();
            if stopping && self.held.is_empty() {
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
        if !self.incoming.is_empty() {
            return Ok(());
        }
        let trust = &self.context.trust;
        // Long before the trust window ends, so that one slow answer does not end it.
        let ping_at = trust.deadline() - self.shared.settings.trust.mul_f64(0.7);
        let mark_at = self.held.values().map(|held| held.mark_at).min();
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
                self.walks.wake();
                return Ok(());
            }
            () = sleep_until(claim_at), if can_claim => return Ok(()),
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

    /// Lanes that may be taken now.
    fn room(&self) -> usize {
        let lanes = self
            .shared
            .settings
            .max_lanes
            .saturating_sub(self.shared.held());
        if self.shared.budget.room() == 0 {
            0
        } else {
            lanes.min(CLAIM_LIMIT)
        }
    }

    /// Looks for room, and asks to be woken when there is none.
    fn finds_room(&self) -> bool {
        if self.room() == 0 {
            self.shared.wait_for_room();
        }
        // Again, for it may have come before that was asked.
        self.room() > 0
    }

    async fn claim(&mut self, now: Instant) -> Result<(), SessionError> {
        let routes = self.shared.routes();
        let takes: Vec<_> = routes
            .iter()
            .filter(|route| self.walks.takes(route))
            .cloned()
            .collect();
        let wanted = takes.len();
        let mut places = self.shared.reserve(self.room(), takes.into_iter());
        let walks = self.walks.start(&places, now);
        let full = walks.len() < wanted;
        if full {
            self.shared.wait_for_room();
        }
        if walks.is_empty() {
            self.walks.nothing(now, self.shared.random());
            if !full {
                self.shared.idle.enter(self.connection_id);
            }
            return Ok(());
        }
        let rooms: usize = places.routes().map(|(_, places)| places).sum();
        let limit = places.total().min(rooms);
        let claim_id = self.next_claim_id;
        self.next_claim_id += 1;
        // Marked ones too: a spare token of theirs may be due, and session locks are re-entrant.
        let mut held: Vec<i64> = self.held.keys().copied().collect();
        held.sort_unstable();
        let limit_i32 = i32::try_from(limit).unwrap_or(i32::MAX);
        let claimed = self
            .ask(
                now,
                claim::claim(
                    &self.client,
                    &self.statements.claim,
                    self.connection_id,
                    claim_id,
                    &walks,
                    limit_i32,
                    &held,
                ),
            )
            .await?;
        self.walks.finished(
            &claimed.routes,
            claimed.lanes.len(),
            limit,
            now,
            self.shared.random(),
        );
        if claimed.lanes.is_empty() {
            self.shared.idle.enter(self.connection_id);
            return Ok(());
        }
        self.shared.idle.leave(self.connection_id);
        if claimed.lanes.len() == limit {
            // There is more than this connection took.
            self.shared.wake.notify_one();
        }

        let positions: Vec<Position> = claimed
            .lanes
            .iter()
            .map(|lane| Position {
                session_id: lane.session_id,
                cursor: lane.cursor,
                cursor_day: lane.cursor_day,
                subscription_id: lane.token.route,
            })
            .collect();
        CrashPoint::Claimed.pass();
        let batches = self.fetch(&positions).await?;
        CrashPoint::Fetched.pass();
        self.claims.insert(claim_id, claimed.lanes.len());
        let mark_at = Instant::now() + self.shared.settings.mark_after;
        for (claimed, events) in claimed.lanes.into_iter().zip(batches) {
            let Some(route) = routes.get(claimed.token.route) else {
                unreachable!("only active routes are walked")
            };
            let Destination::Adapter(adapter) = &route.destination else {
                unreachable!("handlers' routes are walked elsewhere")
            };
            self.held.insert(
                claimed.lane_id,
                Held {
                    token: claimed.token,
                    route: Arc::clone(route),
                    claim_id,
                    suspect_claim: None,
                    mark_at,
                    marked: false,
                    _hold: places.hold(route),
                },
            );
            let share = self.share(&events);
            let lane = Lane {
                claimed,
                route: Arc::clone(route),
                adapter: Arc::clone(adapter),
                events,
                share,
                context: Arc::clone(&self.context),
            };
            tokio::spawn(lane::run(lane));
        }
        Ok(())
    }

    async fn fetch(
        &self,
        positions: &[Position],
    ) -> Result<Vec<Vec<fetch::FetchedEvent>>, SessionError> {
        let rows = i64::try_from(self.rows_per_lane(positions.len())).unwrap_or(i64::MAX);
        self.ask(
            Instant::now(),
            fetch::fetch(
                &self.client,
                &self.statements.fetch,
                positions,
                rows,
                INLINE_BYTES,
            ),
        )
        .await
    }

    /// Events to fetch per lane so that even payloads of the largest inline size fit what memory is
    /// left; one at the least, or a lane would never come on.
    fn rows_per_lane(&self, lanes: usize) -> usize {
        let inline = usize::try_from(INLINE_BYTES).unwrap_or(0);
        let fitting = self.shared.budget.room() / inline / lanes.max(1);
        // Small events are the rule: four times as many, and one fetch may pass the bound.
        (fitting * 4).clamp(1, self.shared.settings.batch)
    }

    fn share(&self, events: &[fetch::FetchedEvent]) -> Share {
        self.shared
            .budget
            .take(events.iter().map(fetch::FetchedEvent::memory).sum())
    }

    /// Takes all that waits in the channel.
    async fn serve(&mut self) -> Result<(), SessionError> {
        let mut requests = Vec::new();
        while let Ok(request) = self.incoming.try_recv() {
            requests.push(request);
            if requests.len() == SETTLE_LIMIT {
                break;
            }
        }
        if requests.is_empty() {
            Ok(())
        } else {
            self.handle(requests).await
        }
    }

    async fn handle(&mut self, mut requests: Vec<Request>) -> Result<(), SessionError> {
        while requests.len() < SETTLE_LIMIT {
            let Ok(request) = self.incoming.try_recv() else {
                break;
            };
            requests.push(request);
        }
        let mut lanes = Vec::with_capacity(requests.len());
        let mut replies = Vec::with_capacity(requests.len());
        for request in requests {
            match request {
                Request::Suspect {
                    lane_id,
                    version,
                    crashes,
                    reply,
                } => {
                    self.suspect(lane_id, version, crashes).await?;
                    // The lane may be gone by now; then nobody needs the answer.
                    let _ = reply.send(true);
                }
                Request::Settle {
                    mut settlement,
                    subscription_id,
                    reply,
                } => {
                    let Some(held) = self.held.get(&settlement.lane_id) else {
                        continue;
                    };
                    let current = self.shared.routes();
                    let current = current.get(subscription_id);
                    if settlement.operation == Operation::Finish
                        && !current.is_some_and(|route| Arc::ptr_eq(route, &held.route))
                    {
                        // Paused, removed or changed: whoever claims it next goes by what is true then.
                        settlement.operation = Operation::Yield;
                    }
                    if settlement.operation == Operation::Release && held.marked {
                        // Its token is in the future: whoever comes next should not wait for it.
                        settlement.operation = Operation::Yield;
                    }
                    lanes.push((*settlement, held.token));
                    replies.push((subscription_id, reply));
                }
            }
        }
        if lanes.is_empty() {
            return Ok(());
        }
        CrashPoint::Settling.pass();
        let results = self.settle(&mut lanes).await?;
        CrashPoint::Settled.pass();
        self.answer(&lanes, replies, &results).await
    }

    async fn settle(
        &self,
        lanes: &mut [(Settlement, Token)],
    ) -> Result<Vec<Settled>, SessionError> {
        let error = match self.try_settle(lanes).await {
            Err(SessionError::Store(error)) if error.class() != ErrorClass::ConnectionLost => error,
            result => return result,
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            lanes = lanes.len(),
            "settlement refused; settling lane by lane"
        );
        let mut results = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let lane = std::slice::from_mut(lane);
            let one = match self.try_settle(lane).await {
                Err(SessionError::Store(error)) if error.class() != ErrorClass::ConnectionLost => {
                    let (settlement, _) = &mut lane[0];
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        lane_id = settlement.lane_id,
                        "this lane cannot be settled; its events are delivered again in a minute"
                    );
                    settlement.operation = Operation::Retry;
                    settlement.delay = REFUSED_DELAY;
                    settlement.changed = false;
                    settlement.outcomes.clear();
                    settlement.history_from = None;
                    self.try_settle(lane).await?;
                    // The lane is let go: its task must not go on with what was refused.
                    vec![Settled::Lost]
                }
                result => result?,
            };
            results.extend(one);
        }
        Ok(results)
    }

    async fn try_settle(
        &self,
        lanes: &[(Settlement, Token)],
    ) -> Result<Vec<Settled>, SessionError> {
        let worker_id = self.shared.identity.worker_id;
        self.ask(
            Instant::now(),
            settle::settle(&self.client, &self.statements.settle, worker_id, lanes),
        )
        .await
    }

    /// Unlocks what is let go, reads on for lanes that have more, and answers the lanes.
    async fn answer(
        &mut self,
        lanes: &[(Settlement, Token)],
        replies: Vec<(i32, oneshot::Sender<Reply>)>,
        results: &[Settled],
    ) -> Result<(), SessionError> {
        let mut released = Vec::new();
        let mut more = Vec::new();
        for (((settlement, _), (subscription_id, _)), result) in
            lanes.iter().zip(&replies).zip(results)
        {
            if let Some(held) = self.held.get_mut(&settlement.lane_id) {
                self.finished_claims.extend(held.suspect_claim.take());
            }
            let stays = match (settlement.operation, result) {
                (Operation::Keep, Settled::Done) => true,
                (Operation::Finish, Settled::Busy) => true,
                (Operation::Finish, Settled::More) => {
                    more.push(Position {
                        session_id: settlement.session_id,
                        cursor: settlement.cursor,
                        cursor_day: settlement.cursor_day,
                        subscription_id: *subscription_id,
                    });
                    true
                }
                _ => false,
            };
            if !stays {
                self.forget(settlement.lane_id);
                released.push(settlement.lane_id);
            }
        }
        if !released.is_empty() || !self.finished_claims.is_empty() {
            let finished = std::mem::take(&mut self.finished_claims);
            self.ask(
                Instant::now(),
                settle::unlock(
                    &self.client,
                    &self.statements.unlock,
                    &released,
                    self.connection_id,
                    &finished,
                ),
            )
            .await?;
        }
        if !released.is_empty() {
            CrashPoint::Unlocked.pass();
            self.shared.made_room();
        }
        let mut batches = if more.is_empty() {
            Vec::new()
        } else {
            self.fetch(&more).await?
        }
        .into_iter();
        for ((_, reply), result) in replies.into_iter().zip(results) {
            let events = match result {
                Settled::More => batches.next().unwrap_or_default(),
                _ => Vec::new(),
            };
            let share = self.share(&events);
            // A lane that is gone lost its claim; the next holder delivers these events.
            let _ = reply.send(Reply {
                settled: *result,
                events,
                share,
            });
        }
        Ok(())
    }

    fn forget(&mut self, lane_id: i64) {
        let Some(held) = self.held.remove(&lane_id) else {
            return;
        };
        if let Some(left) = self.claims.get_mut(&held.claim_id) {
            *left -= 1;
            if *left == 0 {
                self.claims.remove(&held.claim_id);
                self.finished_claims.push(held.claim_id);
            }
        }
    }

    async fn suspect(
        &mut self,
        lane_id: i64,
        version: i64,
        crashes: i32,
    ) -> Result<(), SessionError> {
        let claim_id = self.next_claim_id;
        self.next_claim_id += 1;
        let lane = (lane_id, version, crashes);
        self.ask(
            Instant::now(),
            settle::record_suspect(&self.client, self.connection_id, claim_id, lane),
        )
        .await?;
        CrashPoint::SuspectRecorded.pass();
        if let Some(held) = self.held.get_mut(&lane_id) {
            self.finished_claims
                .extend(held.suspect_claim.replace(claim_id));
        }
        Ok(())
    }

    async fn mark(&mut self, now: Instant) -> Result<(), SessionError> {
        let slow: Vec<(i64, Token)> = self
            .held
            .iter()
            .filter(|(_, held)| held.mark_at <= now)
            .map(|(lane_id, held)| (*lane_id, held.token))
            .collect();
        if slow.is_empty() {
            return Ok(());
        }
        let time_out = self.shared.settings.frozen_after;
        let tokens = self
            .ask(
                now,
                settle::mark(&self.client, &self.statements.mark, &slow, time_out),
            )
            .await?;
        CrashPoint::Marked.pass();
        for (lane_id, due_at, id) in tokens {
            if let Some(held) = self.held.get_mut(&lane_id) {
                held.token.due_at = due_at;
                held.token.id = id;
                held.marked = true;
                // Again before the new token is due.
                held.mark_at = now + time_out.mul_f64(0.8);
            }
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), SessionError> {
        self.ask(
            Instant::now(),
            worker::close_lane_connection(&self.client, self.connection_id),
        )
        .await
    }
}
