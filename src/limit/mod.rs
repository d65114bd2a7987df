//! How fast destinations may be sent to, over all processes (I10). The only place with Redis commands.
//!
//! ```text
//! lane ── ask ──► limiter ─┬─ shared ─► link ─► take.lua   one decision over all buckets of a send
//!                          └─ alone ──► share, meter       the same, with this process' part of the rate
//! ```
//!
//! Redis holds only what may be lost. Postgres' clock decides what is due, Redis' clock how fast: no
//! worker's clock is compared with another's (I6). One server, with TLS where the URL is `rediss://`;
//! keys carry one hash tag, so that a cluster keeps them together, but a client for clusters and for
//! Sentinel is left out. What is not guaranteed: a replica that is promoted before it has the last
//! decisions forgets them, except those that processes which still live remember.

#[cfg(test)]
mod agreement;
mod bucket;
mod limiter;
mod link;
mod meter;
mod share;
mod survey;

pub use bucket::{Bucket, Rate, RateError};
pub use limiter::{Answer, HORIZON, Limiter, Slot, View};
pub use link::{LinkError, RedisSettings};
pub use share::Fleet;
pub use survey::{Survey, survey};
