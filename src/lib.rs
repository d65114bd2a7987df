//! Lanekeeper delivers the events of AI-agent sessions: durably, at least once, strictly in order
//! inside a session, from any number of worker replicas over one PostgreSQL.

pub mod adapter;
pub mod bench;
pub mod cli;
pub mod config;
pub mod crash_point;
pub mod dev;
pub mod engine;
pub mod event;
pub mod http;
pub mod limit;
pub mod mutation;
pub mod remote;
pub mod spool;
pub mod store;
pub mod stream;
pub mod subscription;
pub mod telemetry;
mod toml_file;
