//! How fast destinations may be sent to, over all processes (I10), and whether at all (C8): decided in Redis.
//!
//! ```text
//! lane ── ask ──► limiter ─┬─ shared ─► link ─► take.lua   one decision over all buckets of a send
//!                          └─ alone ──► share, meter       the same, with this process' part of the rate
//!      ─ admit, failed, succeeded ──► breaker, breaker.lua
//! ```
//!
//! Redis holds only what may be lost. Postgres' clock decides what is due, Redis' clock how fast: no
//! worker's clock is compared with another's (I6). One server, with TLS where the URL is `rediss://`;
//! keys carry one hash tag, so that a cluster keeps them together, but a client for clusters and for
//! Sentinel is left out. What is not guaranteed: a replica that is promoted before it has the last
//! decisions forgets them, except those that processes which still live remember.

mod address;
#[cfg(test)]
mod agreement;
mod breaker;
mod circuit;
pub mod config;
mod limiter;
mod link;
mod meter;
mod settings;
mod share;
mod survey;

pub use breaker::{BreakerSettings, Passage};
pub use circuit::{CircuitView, circuits, close};
pub use limiter::{Admission, Answer, HORIZON, Limiter, Slot, View};
pub use settings::{LinkError, RedisSettings};
pub use survey::{Survey, survey};
