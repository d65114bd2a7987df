//! The engine against a real Postgres, with a destination that records what arrives.

pub mod bed;

mod acknowledging;
mod appending;
mod arriving;
mod batches;
mod bounded;
mod bounds;
mod cancelling;
mod chaos;
mod claims;
mod closing;
mod ending;
mod exhausted_order;
mod exhaustion;
mod failures;
mod filters;
mod foreign_locks;
mod frozen_plan;
mod gathered;
mod handlers;
mod idle;
mod interrupting;
mod limits;
mod memory;
mod new_sessions;
mod ordering;
mod pausing;
mod plain_lanes;
mod poison;
mod replaying;
mod requeue;
mod superseding;
mod surplus;
mod told;
mod waking;
