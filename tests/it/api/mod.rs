//! The HTTP API of a worker process, and the commands that use it instead of a database.

mod access;
mod acks;
mod bodies;
mod commands;
mod expected;
mod full;
mod interrupts;
mod produce;
mod replays;
mod sessions;
pub(crate) mod site;
mod slow;
