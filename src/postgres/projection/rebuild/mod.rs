//! Rebuilds a projection from the log: its function is called with the events of each lane again, up to the lane's cursor,
//! on tables in a schema beside, which replace those that readers see in one transaction.
//!
//! ```text
//! lanes, a page at a time:  events up to the cursor ── function ── how far ── COMMIT     (resumed here after a crash)
//! … until little is left; then nobody feeds the projection (projection_lock):
//!                           the rest of each lane ── DELETE, INSERT … SELECT ── COMMIT
//! ```
//!
//! The function finds the tables beside by its `search_path`, so its text names them without a schema. That it does is
//! checked: a transaction that changed a table of the readers is rolled back, and the rebuild ends.
//!
//! What a lane passed with an outcome (dead letters, for example) is left out, as the projection left it out. A dead letter
//! that is delivered while the rebuild runs is entered before the switch.
//!
//! Lanes are rebuilt in the order of their ids, and each in the order of its events: so two rebuilds of a function that
//! is a function of its events are equal, row for row.
//!
//! # Failures
//!
//! | failure | what happens |
//! |---|---|
//! | the process dies | the next one goes on behind the last transaction that was committed |
//! | … after the switch | the next one switches again, to the same rows and what came since |
//! | the function, its tables or the filter changed since a rebuild ended early | the next one begins anew |
//! | … change while it runs | it ends before the switch; the next one begins anew |
//! | the function refuses events together, or takes too long | they come again in halves: see [`enter`] |
//! | … refuses an event alone | the rebuild ends and says which; readers see what they saw |

mod enter;
mod error;
mod read;

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

pub use self::error::RebuildError;
use self::read::Lane;
use super::connection::Connection;
use super::shadow::{self, Source};
use super::{Projection, quoted};
use crate::StoreError;

pub const REDELIVERED: &str = include_str!("../../sql/projection_redelivered.sql");
pub const REBUILD_LOCK: &str = include_str!("../../sql/projection_rebuild_lock.sql");
pub const SWITCH_LOCK: &str = include_str!("../../sql/projection_switch_lock.sql");
pub const SWITCH_UNLOCK: &str = include_str!("../../sql/projection_switch_unlock.sql");
pub const TOUCHED: &str = include_str!("../../sql/projection_touched.sql");

/// Events that are read together, and handed over together unless the function takes too long.
const EVENTS_AT_ONCE: i64 = 200;
/// The projection is kept from being fed once no more events than this are left.
const LITTLE: u64 = 1_000;
/// How often a pass may find more than that: a projection that grows faster than it is rebuilt is switched all the same.
const MOST_PASSES: u32 = 10;
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// How long the switch waits for transactions that feed the projection.
const SWITCH_WAIT: &str = "SET lock_timeout = '60s'";

/// What a rebuild may do, and whom it tells.
pub struct Options<'a> {
    /// Also where the log lacks events.
    pub partial: bool,
    /// Does not go on where an earlier one ended.
    pub afresh: bool,
    /// Told of each page of lanes.
    pub told: &'a mut (dyn FnMut(Progress) + Send),
}

/// How far a rebuild is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether an earlier rebuild is gone on with.
    pub resumed: bool,
    /// Events that were looked at by this process.
    pub events: u64,
    /// Lanes of this pass that are done, and the pass, from 1.
    pub lanes: u64,
    pub pass: u32,
    /// How long the projection was not fed.
    pub held_up: Duration,
}

struct Rebuild<'a> {
    owner: &'a Client,
    connection: Connection,
    projection: &'a Projection,
    subscription: &'a str,
    stream: &'a str,
    subscription_id: i32,
    shadow: String,
    /// The `search_path` of its connection.
    path: String,
    source: Source,
    /// The most events in one call. It shrinks where the function takes too long, and grows where it is quick.
    at_once: usize,
    partial: bool,
    progress: Progress,
}

/// Rebuilds the projection. `owner` is a connection of Lanekeeper's own.
///
/// # Errors
/// What was done is kept, unless its function changes.
pub async fn rebuild(
    owner: &Client,
    projection: &Projection,
    (subscription_id, subscription, stream): (i32, &str, &str),
    options: Options<'_>,
) -> Result<Progress, RebuildError> {
    be_alone(owner, subscription_id).await?;
    let source = Source::read(owner, projection, subscription_id).await?;
    if !source.has_every_session && !options.partial {
        return Err(RebuildError::Incomplete);
    }
    let shadow = quoted(&shadow::name(subscription_id));
    let path = format!("{shadow}, {}", quoted(&projection.schema));
    let connection = Connection::open_beside(projection, &path)
        .await
        .map_err(RebuildError::Role)?;
    let resumed = source
        .make_shadow(
            owner,
            connection.client(),
            projection,
            subscription_id,
            options.afresh,
        )
        .await?;
    let mut rebuild = Rebuild {
        owner,
        connection,
        projection,
        subscription,
        stream,
        subscription_id,
        shadow,
        path,
        source,
        at_once: usize::MAX,
        partial: options.partial,
        progress: Progress {
            resumed,
            ..Progress::default()
        },
    };
    let told = options.told;
    loop {
        let before = rebuild.progress.events;
        rebuild.pass(told).await?;
        if rebuild.progress.events - before <= LITTLE || rebuild.progress.pass >= MOST_PASSES {
            break;
        }
    }
    rebuild.switch(told).await?;
    shadow::drop_shadow(owner, subscription_id).await?;
    Ok(rebuild.progress)
}

/// Waits a little: the server may not have noticed yet that a process was killed.
async fn be_alone(owner: &Client, subscription_id: i32) -> Result<(), RebuildError> {
    for _ in 0..LOCK_TRIES {
        let row = owner
            .query_typed_one(REBUILD_LOCK, &[(&i64::from(subscription_id), Type::INT8)])
            .await
            .map_err(StoreError::on("looking for another rebuild"))?;
        if row.get(0) {
            return Ok(());
        }
        sleep(LOCK_PAUSE).await;
    }
    Err(RebuildError::Busy)
}

impl Rebuild<'_> {
    /// Brings each lane's part to where the lane's cursor is now.
    async fn pass(&mut self, told: &mut (dyn FnMut(Progress) + Send)) -> Result<(), RebuildError> {
        self.progress.pass += 1;
        self.progress.lanes = 0;
        let mut after = 0;
        loop {
            let lanes = self.lanes(after).await?;
            let Some(last) = lanes.last().map(|lane| lane.lane_id) else {
                return Ok(());
            };
            after = last;
            let done = self.done(&lanes).await?;
            for (lane, done) in lanes.iter().zip(done) {
                self.lane(lane, done).await?;
                self.progress.lanes += 1;
            }
            told(self.progress);
            self.check_source().await?;
        }
    }

    async fn lane(&mut self, lane: &Lane, mut done: i64) -> Result<(), RebuildError> {
        while done < lane.cursor {
            let found = self.events(lane, done).await?;
            let (Some(first), Some(last)) = (found.first(), found.last()) else {
                // Dropped with their days.
                return self.lacks(lane, lane.cursor).await;
            };
            if first.event.seq != done + 1 && !self.partial {
                return Err(RebuildError::Incomplete);
            }
            let to = match i64::try_from(found.len()) == Ok(EVENTS_AT_ONCE) {
                true => last.event.seq,
                false => lane.cursor,
            };
            self.enter_in_parts(lane.lane_id, to, &found).await?;
            self.progress.events += u64::try_from(to - done).unwrap_or(0);
            done = to;
        }
        Ok(())
    }

    /// Events of a lane that the log does not have any more.
    async fn lacks(&mut self, lane: &Lane, to: i64) -> Result<(), RebuildError> {
        match self.partial {
            true => self.enter(lane.lane_id, to, &[]).await.map(drop),
            false => Err(RebuildError::Incomplete),
        }
    }

    /// What is in the shadow may be of two functions by now. Then it is dropped, so that the next rebuild begins anew even
    /// where the old function is back.
    async fn check_source(&self) -> Result<(), RebuildError> {
        let id = self.subscription_id;
        let now = Source::read(self.owner, self.projection, id).await?;
        if now.is_of_the_same(&self.source) {
            return Ok(());
        }
        shadow::drop_shadow(self.owner, id).await?;
        Err(RebuildError::Changed)
    }

    /// Puts the new rows in the place of the old ones, while nobody feeds the projection.
    async fn switch(
        &mut self,
        told: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<(), RebuildError> {
        let statements =
            shadow::switch_statements(self.owner, self.projection, self.subscription_id).await?;
        self.owner
            .batch_execute(SWITCH_WAIT)
            .await
            .map_err(StoreError::on("bounding the wait of a switch"))?;
        let id = i64::from(self.subscription_id);
        let locking = self
            .owner
            .query_typed_one(SWITCH_LOCK, &[(&id, Type::INT8)])
            .await;
        match locking {
            Ok(_) => {}
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                return Err(RebuildError::NotSwitched);
            }
            Err(error) => return Err(StoreError::on("waiting for a projection")(error).into()),
        }
        let began = Instant::now();
        let switched = async {
            self.pass(told).await?;
            self.enter_redelivered().await?;
            // Behind the last call: from here on a change is one of the rebuilt projection.
            self.check_source().await?;
            self.connection
                .client()
                .batch_execute(&statements)
                .await
                .map_err(StoreError::on("switching a projection"))?;
            Ok::<_, RebuildError>(())
        }
        .await;
        self.progress.held_up = began.elapsed();
        self.owner
            .query_typed_one(SWITCH_UNLOCK, &[(&id, Type::INT8)])
            .await
            .map_err(StoreError::on("feeding a projection again"))?;
        switched
    }

    /// Dead letters that were left out, and were delivered since.
    async fn enter_redelivered(&mut self) -> Result<(), RebuildError> {
        let operation = "looking for dead letters that were delivered since";
        let left_out = format!(
            "SELECT array_agg(l.lane_id), array_agg(l.seq) FROM {}.lanekeeper_left_out AS l",
            self.shadow
        );
        let row = self
            .connection
            .client()
            .query_typed_one(&left_out, &[])
            .await
            .map_err(StoreError::on(operation))?;
        let lanes: Option<Vec<i64>> = row.get(0);
        let seqs: Option<Vec<i64>> = row.get(1);
        let (Some(lanes), Some(seqs)) = (lanes, seqs) else {
            return Ok(());
        };
        let rows = self
            .owner
            .query(REDELIVERED, &[&lanes, &seqs, &self.subscription_id])
            .await
            .map_err(StoreError::on(operation))?;
        for row in &rows {
            let session: String = row.get("session");
            let event = self.event(row, &session);
            self.call(&[&event]).await?;
            let (lane_id, seq): (i64, i64) = (row.get("lane_id"), event.seq);
            let forgetting = format!(
                "DELETE FROM {}.lanekeeper_left_out AS l WHERE l.lane_id = $1 AND l.seq = $2",
                self.shadow
            );
            let client = self.connection.client();
            let forgotten = async {
                client
                    .execute_typed(&forgetting, &[(&lane_id, Type::INT8), (&seq, Type::INT8)])
                    .await?;
                client.batch_execute("COMMIT").await
            };
            forgotten.await.map_err(StoreError::on(operation))?;
        }
        Ok(())
    }
}
