//! The code that shipped streams need beside the engine: `hooks`, which takes the hook calls of agent CLIs and keeps
//! the agent registry, and `inbound`, which fetches what people write from platforms. The other streams need none.
//!
//! A stream's settings are not here: those of the shipped streams are rows in `migrations/0001_tables.sql`, and the
//! defaults of a stream that a user defines are `StreamDefinition` in `src/core/subscription/definition.rs`.

pub mod hooks;
pub mod inbound;
