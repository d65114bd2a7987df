//! Lanekeeper delivers the events of AI-agent sessions: durably, at least once, strictly in order
//! inside a session, from any number of worker replicas over one PostgreSQL.

pub mod adapter;
pub mod dev;
pub mod engine;
pub mod event;
pub mod store;
