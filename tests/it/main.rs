//! Integration tests, with a real PostgreSQL and the real binary. There is one module for each topic.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "tests/crash uses the rest")]
mod support;

mod agents;
mod aggregates;
mod api;
mod apply;
mod bad_input;
mod chat;
mod cli;
mod command;
mod config;
mod conformance;
mod dashboard;
mod deploy;
mod dev;
mod document;
mod documents;
mod durable;
mod engine;
mod failover;
mod harness;
mod hooks;
mod housekeeping;
mod inbound;
mod limit;
mod live;
#[cfg(feature = "crash-points")]
mod mutations;
mod pipeline;
mod pooler;
mod process;
mod projections;
mod protocols;
mod readme;
mod reference;
mod registry;
mod requirements;
mod saga;
mod schemas;
mod secrets;
mod sources;
mod statements;
mod telemetry;
mod tls;
mod upgrade;
