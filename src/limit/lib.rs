//! Rate limits and circuit breakers that all processes share (I10, C8). Redis decides.
//!
//! ```text
//! lane ── ask ──► limiter ─┬─ shared ─► link ─► take.lua   one decision over all buckets of a send
//!                          └─ alone ──► share, meter       the same, with this process' local quota
//!      ─ admit, failed, succeeded ──► breaker, breaker.lua
//! ```
//!
//! Redis holds only data that may be lost. Postgres' clock decides which lane is due, and Redis' clock decides how fast
//! events are sent, so no worker's clock is compared with another's (I6).
//!
//! All keys have one hash tag, so in a cluster they are in one slot, on one node. `address.rs` finds the server to
//! connect to: the one that the URL names, the cluster node that has the slot, or the master that the sentinels name.
//! The URL scheme `rediss://` turns TLS on.
//!
//! Not guaranteed: a replica that is promoted before it has received the last decisions does not know them. Only what
//! running processes remember of them is reported to it.

mod address;
#[cfg(test)]
mod agreement;
mod breaker;
mod circuit;
pub mod config;
mod inspection;
mod limiter;
mod link;
mod meter;
mod settings;
mod share;

pub use breaker::{BreakerSettings, Passage};
pub use circuit::{CircuitView, circuits, close};
pub use inspection::{Inspection, inspect};
pub use limiter::{Admission, Answer, HORIZON, Limiter, Slot, View};
pub use settings::{LinkError, RedisSettings};
