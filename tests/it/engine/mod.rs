//! The engine against a real Postgres, with a destination that records what arrives.

mod bed;

mod appending;
mod exhaustion;
mod failures;
mod filters;
mod handlers;
mod idle;
mod ordering;
mod waking;
