//! What operators see and do: sessions, lanes, subscriptions, dead letters, workers, destinations.
//!
//! | module | what it does |
//! |---|---|
//! | `caller` | who asks: a token with the scope `read` or `operate`, and what it reaches |
//! | `page` | pages by keyset: `limit`, and a cursor that is the last row's place |
//! | the others | one file for each thing that is looked at and acted on |
//!
//! Reads are those of `inspect` of the store, actions those of `operate`: what a command does, with the same rules. An
//! action may be repeated, and does nothing twice. It is recorded in `operation` with the token's name as part of the
//! reason.
//!
//! What a token does not reach is answered as if it did not exist, where its id alone names it.

mod action;
mod caller;
mod dead_letters;
pub mod destination;
mod destinations;
mod lanes;
mod page;
mod sessions;
mod subscriptions;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use deadpool_postgres::Pool;
use lanekeeper_limit::RedisSettings;
use tokio::sync::Semaphore;

use super::events::Desk;
use super::routes::{Routes, Shared};

/// Connections to Postgres for operators and the dashboard; opened when there are any.
pub const CONNECTIONS: usize = 2;

/// What operators' requests know of the workers' settings.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// A worker without a heartbeat for so long does not count.
    pub frozen_after: Duration,
    /// A running turn without activity for so many seconds is stale.
    pub stale_after_s: u32,
}

/// What these routes share.
pub struct Operators {
    pub(super) desk: Arc<Desk>,
    /// Not the one of producers: an operator must not make an append wait for a connection.
    pub(super) pool: Pool,
    /// What a replay is to deliver is counted for one request at a time.
    pub(super) counting: Semaphore,
    fleet: Fleet,
    redis: Option<RedisSettings>,
}

impl Operators {
    /// `pool`: of [`CONNECTIONS`]. `redis`: where workers share their circuits.
    pub fn new(desk: Arc<Desk>, pool: Pool, fleet: Fleet, redis: Option<RedisSettings>) -> Self {
        Self {
            desk,
            pool,
            counting: Semaphore::new(1),
            fleet,
            redis,
        }
    }
}

/// The routes.
pub(super) fn routes<S: Shared>() -> Routes<S>
where
    Arc<Operators>: FromRef<S>,
{
    Routes::new()
        .merge(subscriptions::routes())
        .merge(lanes::routes())
        .merge(sessions::routes())
        .merge(dead_letters::routes())
        .merge(workers::routes())
        .merge(destinations::routes())
}
