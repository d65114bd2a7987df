//! A connection that runs handlers: it delivers, settles and commits in one transaction (A9, I5).
//!
//! A handler writes to the same Postgres, and its effect must happen exactly once. So its transaction runs on the
//! connection that holds the lane's lock, and the settlement is written in that transaction, by the same
//! `lanekeeper.settle`. If the compare-and-set misses, the transaction is rolled back. If the connection is lost,
//! nothing more is committed on it. After a COMMIT that was not answered, progress and effect agree either way, and
//! the next holder reads which. No validity window is needed.
//!
//! The price: such a connection handles one event at a time. Handlers therefore have connections of their own
//! (`handler_connections`), opened once there is a handler; their routes are scanned there and nowhere else. The
//! engine's settings of its connections (planner, `synchronous_commit`) are undone within the handler's
//! transaction.
//!
//! A handler that ignores a failed statement and returns Ok cannot settle: COMMIT of a failed transaction is a
//! rollback, and the settlement is in the same transaction.
//!
//! Projections, functions in SQL, are fed here too, on lane connections of their own ([`Feeds`]). Their transaction runs on a
//! third connection, of the projection's role, and settles there with a permit of the lane's: see
//! [`lanekeeper_postgres::projection`].
//!
//! The worker sets no time-out on a handler's own statements. If the connection hangs under them, the server ends
//! the transaction after a minute of idleness. The worker does not hear of that, so it checks every half
//! `worker.frozen_after_ms` whether the backend still exists.
//!
//! # Failures
//!
//! | failure | what happens |
//! |---|---|
//! | the session is closed or interrupted, or the event cancelled | rolled back, when the handler's statement ends |
//! | the handler fails or panics | rolled back; the head is retried or exhausted, by its verdict |
//! | something else panics here | logged as an error; as if the connection had ended |
//! | another process settled the lane | the compare-and-set misses: rolled back |
//! | the connection ends before COMMIT is answered | committed or not, progress and effect agree; the next holder reads which |
//! | a question of the engine is not answered for `frozen_after` | the same, and the backend is ended if the server still has it (I13) |
//! | the connection hangs under a handler's statement | the server ends a transaction that is idle for 60 s; the worker may not hear of it, so it checks whether its backend exists |
//! | the process dies | as above; survivors wake the lanes and charge the head |

mod answer;
mod attempt;
mod feeds;
mod handle;
mod interrupted;
mod projected;
mod projections;
mod replayed;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use lanekeeper_fault::CrashPoint;
use lanekeeper_postgres::claim::{self, ClaimedLane};
use lanekeeper_postgres::fetch::{self, Position};
use lanekeeper_postgres::lane_connection::{self, Backend, Opened};
use lanekeeper_postgres::preview::Previews;
use lanekeeper_postgres::settle::{self, Operation, Settled};
use lanekeeper_postgres::{StoreError, worker};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::{Client, Statement};

use self::answer::{SessionError, answer};
pub use self::feeds::Feeds;
use self::projections::Projections;
use crate::claiming::kind::Kind;
use crate::claiming::route::Route;
use crate::claiming::scan::Scans;
use crate::delivering::coalesce::{Step, plan};
use crate::delivering::progress::{Progress, Stop};
use crate::delivering::surplus::SurplusWatch;
use crate::shared::{Shared, random};

/// How many lanes one claim takes. They wait for each other here, so only a few.
const CLAIM_LIMIT: usize = 8;
/// How many events of a lane are handled in one holding.
const BATCH: i64 = 50;
/// Payloads up to this size are fetched with their events; larger ones are read one by one.
const INLINE_BYTES: i32 = 65_536;
const REOPEN_DELAY: Duration = Duration::from_millis(250);
/// Runs the lanes of handlers, or of projections, on one connection after another, once there is one.
pub async fn run(shared: Arc<Shared>, feeds: Feeds) {
    while !shared.stopping.is_cancelled() {
        if !shared
            .claiming
            .routes()
            .iter()
            .any(|route| feeds.serves(route))
        {
            tokio::select! {
                () = shared.stopping.cancelled() => return,
                () = sleep(shared.settings.poll_floor) => continue,
            }
        }
        let Err(error) = session(&shared, feeds).await else {
            return;
        };
        error.log(feeds);
        sleep(REOPEN_DELAY.mul_f64(1.0 + random())).await;
    }
}

async fn session(shared: &Arc<Shared>, feeds: Feeds) -> Result<(), SessionError> {
    let Opened {
        client, backend, ..
    } = lane_connection::open(&shared.database, feeds.name()).await?;
    let held = hold(shared, feeds, client, backend).await;
    if held.is_err() {
        shared.peers.abandoned.enter(backend);
    }
    held
}

async fn hold(
    shared: &Arc<Shared>,
    feeds: Feeds,
    client: Client,
    backend: Backend,
) -> Result<(), SessionError> {
    let preparing = async {
        Ok(Session {
            shared,
            feeds,
            backend,
            claim: claim::prepare(&client).await?,
            fetch: fetch::prepare(&client).await?,
            settle: settle::prepare(&client).await?,
            unlock: client
                .prepare(settle::UNLOCK)
                .await
                .map_err(StoreError::on("preparing the unlock"))?,
            connection_id: worker::open_lane_connection(&client, shared.peers.worker_id()).await?,
            client,
            next_claim_id: 1,
            claimed_at: Instant::now(),
            scans: Scans::new(&shared.claiming.poll_floors, Kind::Handlers),
            projections: Projections::default(),
        })
    };
    let mut session = answer(shared, preparing).await?;
    let _in_use = shared.peers.live.enter(session.connection_id);
    // Nobody awaits the task before the worker stops: a panic that ends it would be noticed by nobody.
    let running = AssertUnwindSafe(session.run()).catch_unwind().await;
    let result = running.unwrap_or(Err(SessionError::Panicked));
    shared.waking.idle.leave(session.connection_id);
    result
}

struct Session<'a> {
    shared: &'a Arc<Shared>,
    feeds: Feeds,
    client: Client,
    backend: Backend,
    claim: Statement,
    fetch: fetch::Fetch,
    settle: settle::Settle,
    unlock: Statement,
    connection_id: i64,
    next_claim_id: i64,
    /// When the lane was claimed that is handled.
    claimed_at: Instant,
    scans: Scans,
    projections: Projections,
}

impl Session<'_> {
    async fn run(&mut self) -> Result<(), SessionError> {
        while !self.shared.stopping.is_cancelled() {
            self.round().await?;
            let at = self.scans.next_at();
            tokio::select! {
                () = self.shared.stopping.cancelled() => {}
                () = self.feeds.woken(&self.shared.waking) => self.scans.wake(),
                () = sleep_until(at) => {}
            }
        }
        answer(
            self.shared,
            worker::close_lane_connection(&self.client, self.connection_id),
        )
        .await
    }

    /// Claims a few lanes and runs them one after the other.
    async fn round(&mut self) -> Result<(), SessionError> {
        let now = Instant::now();
        let routes = self.shared.claiming.routes();
        let taken: Vec<_> = routes
            .iter()
            .filter(|route| self.feeds.serves(route))
            .cloned()
            .collect();
        self.projections.forget(&taken);
        let wanted = taken.len();
        let mut slots = self.shared.claiming.reserve(
            Kind::Handlers,
            CLAIM_LIMIT,
            taken.into_iter(),
            &self.shared.delivering.limiter,
        );
        let scans = self
            .scans
            .plan(&slots, self.shared.claiming.backstop.latest(), now);
        let full = scans.len() < wanted;
        if full {
            self.shared.claiming.wait_for_room(Kind::Handlers);
        }
        let claim_id = self.next_claim_id();
        let claimed = if scans.is_empty() {
            claim::Claimed::default()
        } else {
            let limit = i32::try_from(slots.total()).unwrap_or(i32::MAX);
            let held = self.shared.claiming.held_lanes();
            let claim = claim::Claim {
                connection_id: self.connection_id,
                claim_id,
                scans: &scans,
                limit,
                held: &held,
                released: &[],
                finished: &[],
            };
            let claiming = claim::claim(&self.client, &self.claim, claim);
            let claimed = answer(self.shared, claiming).await?;
            let took = now.elapsed().as_secs_f64();
            self.shared.instruments.claimed(took, claimed.lanes.len());
            claimed
        };
        let random = random();
        self.scans.finished(
            &claimed.routes,
            claimed.lanes.len(),
            CLAIM_LIMIT,
            now,
            self.shared.waking.idle.is_notified(),
            random,
        );
        if claimed.lanes.is_empty() {
            if !full {
                self.shared.waking.idle.enter_handler(self.connection_id);
            }
            return Ok(());
        }
        CrashPoint::Claimed.pass();
        self.claimed_at = now;
        self.shared.waking.idle.found(self.connection_id);
        if !claimed.locked_twice.is_empty() {
            self.unlock(&claimed.locked_twice, &[]).await?;
        }
        let mut lanes = Vec::with_capacity(claimed.lanes.len());
        for lane in claimed.lanes {
            let Some(route) = routes.of_entry(lane.entry.route) else {
                unreachable!("only active routes are scanned")
            };
            let hold = slots.hold(lane.lane_id, route);
            lanes.push((lane, route, hold));
        }
        drop(slots);
        for (lane, route, hold) in lanes {
            let lane_id = lane.lane_id;
            self.lane(lane, route).await?;
            self.unlock(&[lane_id], &[]).await?;
            CrashPoint::Unlocked.pass();
            drop(hold);
            self.shared.claiming.made_room(Kind::Handlers);
        }
        self.unlock(&[], &[claim_id]).await
    }

    async fn unlock(&self, lanes: &[i64], claims: &[i64]) -> Result<(), SessionError> {
        let unlocking = settle::unlock(
            &self.client,
            &self.unlock,
            lanes,
            self.connection_id,
            claims,
        );
        answer(self.shared, unlocking).await
    }

    fn next_claim_id(&mut self) -> i64 {
        self.next_claim_id += 1;
        self.next_claim_id
    }

    async fn lane(&mut self, lane: ClaimedLane, route: &Route) -> Result<(), SessionError> {
        CrashPoint::Held.pass();
        let mut progress = Progress::of(&lane).by_key();
        if lane.parked || !lane.retry_in.is_zero() {
            return self
                .settle(&lane, &mut progress, Stop::new(Operation::Discard))
                .await
                .map(drop);
        }
        let position = Position {
            session_id: lane.session_id,
            cursor: lane.cursor,
            cursor_day: lane.cursor_day,
            subscription_id: route.id(),
        };
        let positions = [position];
        let fetching = fetch::fetch(&self.client, &self.fetch, &positions, BATCH, INLINE_BYTES);
        let mut batches = answer(self.shared, fetching).await?;
        CrashPoint::Fetched.pass();
        let events = batches.pop().unwrap_or_default();
        let full = i64::try_from(events.len()) == Ok(BATCH);
        let steps = plan(&events, route.merging(&Previews::new()));
        let nothing_left = events.is_empty();
        let mut surplus = SurplusWatch::default();
        if let Some(stop) = self
            .project_together(&lane, route, &mut progress, &events, &steps)
            .await?
        {
            return self.settle(&lane, &mut progress, stop).await.map(drop);
        }
        for (event, step) in events.into_iter().zip(steps) {
            if event.seq < progress.next_seq() {
                // It was left out with an earlier one.
                continue;
            }
            let stop = self
                .deliver_requeued(&lane, route, &mut progress, event.seq)
                .await?;
            if let Some(stop) = stop {
                return self.settle(&lane, &mut progress, stop).await.map(drop);
            }
            match step {
                Step::Filtered => {
                    route.instruments.ended("filtered", 1);
                    progress.pass(event.seq, event.day);
                }
                Step::Coalesced { replaced_by } => {
                    progress.coalesce(event.seq, event.day, replaced_by);
                }
                Step::Cancelled => progress.cancel(event.seq, event.day),
                Step::Deliver => {
                    let at = event.created_at;
                    if self
                        .leaves_out(route, &mut progress, &mut surplus, at)
                        .await?
                    {
                        continue;
                    }
                    if let Some(stop) = self.handle(&lane, route, &mut progress, event).await? {
                        return self.settle(&lane, &mut progress, stop).await.map(drop);
                    }
                }
            }
            if self.shared.stopping.is_cancelled() {
                let stop = Stop::new(Operation::Release);
                return self.settle(&lane, &mut progress, stop).await.map(drop);
            }
            if route.is_replaced() {
                let stop = Stop::new(Operation::Yield);
                return self.settle(&lane, &mut progress, stop).await.map(drop);
            }
        }
        let behind = if nothing_left {
            i64::MAX
        } else {
            progress.next_seq()
        };
        let stop = self
            .deliver_requeued(&lane, route, &mut progress, behind)
            .await?;
        if let Some(stop) = stop {
            return self.settle(&lane, &mut progress, stop).await.map(drop);
        }
        let operation = if full || progress.has_requeued() {
            Operation::Yield
        } else {
            Operation::Finish
        };
        let settled = self
            .settle(&lane, &mut progress, Stop::new(operation))
            .await?;
        if matches!(settled, Settled::More | Settled::Busy) {
            // Its entry stays and is due a little later, so that an open append does not cause one claim after
            // another.
            let delay = Duration::from_millis(if settled == Settled::More { 0 } else { 50 });
            self.settle(&lane, &mut progress, Stop::retry(delay, None))
                .await?;
        }
        Ok(())
    }

    /// Whether the head, appended at that time, is left out, with what is to go with it: too old, or too many. The cursor
    /// has passed it then, and the next settlement records it.
    async fn leaves_out(
        &self,
        route: &Route,
        progress: &mut Progress,
        surplus: &mut SurplusWatch,
        created_at: Timestamp,
    ) -> Result<bool, SessionError> {
        let subscription = &route.subscription;
        if !subscription.leaves_out() {
            return Ok(false);
        }
        let now = Instant::now();
        let age_s = self.shared.peers.clock.seconds_since(created_at, now);
        let Some(question) = surplus.question(subscription, age_s, true, now) else {
            return Ok(false);
        };
        let position = progress.position(subscription.id);
        let asking = question.ask(&self.client, position, subscription);
        let found = answer(self.shared, asking).await?;
        Ok(progress.leave_out(&found, subscription))
    }

    async fn settle(
        &mut self,
        lane: &ClaimedLane,
        progress: &mut Progress,
        stop: Stop,
    ) -> Result<Settled, SessionError> {
        let routes = self.shared.claiming.routes();
        let route = routes.of_entry(lane.entry.route);
        let history = route.is_some_and(|route| route.subscription.history);
        if stop.operation == Operation::Retry && stop.error.is_some() {
            self.scans.schedule(Instant::now() + stop.delay);
        }
        let lanes = [(progress.settlement(stop, history), lane.entry)];
        CrashPoint::Judged.pass();
        let worker_id = self.shared.peers.worker_id();
        let settling = settle::settle(&self.client, &self.settle, worker_id, &lanes);
        CrashPoint::Settling.pass();
        let results = answer(self.shared, settling).await?;
        CrashPoint::Settled.pass();
        let settled = results.first().copied().unwrap_or(Settled::Lost);
        if settled != Settled::Lost {
            progress.settled();
            if let Some(route) = route {
                for outcome in &lanes[0].0.outcomes {
                    let events = outcome.events();
                    route.instruments.ended(outcome.kind.as_str(), events);
                    if let Some(stage) = outcome.kind.stage() {
                        route.counts.add(stage, events);
                    }
                }
            }
        }
        Ok(settled)
    }
}
