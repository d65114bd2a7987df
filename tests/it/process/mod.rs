//! A1 to A6 on real worker processes that deliver to a webhook: killed, frozen, told to stop, and
//! with a Postgres that goes away under them, or processes of it that do not run.

pub mod plant;

mod drained;
mod frozen;
mod host;
mod killed;
mod lifecycle;
mod reported;
mod restart;
pub mod rolling;
mod stopped;
mod stopped_backends;
