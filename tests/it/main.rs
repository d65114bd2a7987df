//! Integration tests: against a real PostgreSQL, and of the real binary; a module per topic.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
mod support;

mod apply;
mod cli;
mod command;
mod config;
mod conformance;
mod dev;
mod document;
mod engine;
mod harness;
mod hooks;
mod pipeline;
mod process;
mod readme;
mod requirements;
