//! The HTTP API of a worker process, and the commands that use it instead of a database.

mod access;
mod acks;
mod bodies;
mod bound;
mod commands;
pub(crate) mod contract;
mod expected;
mod full;
mod fuzz;
pub(crate) mod held;
mod interrupts;
mod openapi;
mod operate;
mod produce;
mod replays;
mod sessions;
pub(crate) mod site;
pub(crate) mod slow;
