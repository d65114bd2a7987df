//! A1 to A6 with real worker processes that deliver to a webhook. Workers are killed, frozen or stopped; Postgres goes
//! away, or some of its processes stand still.

pub mod plant;

mod drained;
mod frozen;
mod host;
mod killed;
mod lifecycle;
mod replayed;
mod reported;
mod restart;
pub mod rolling;
#[cfg(feature = "crash-points")]
mod sent;
mod stalled;
mod stopped;
mod stopped_backends;
