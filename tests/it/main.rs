//! The integration tests, in one binary: a module per topic.

// Clippy's exemption for tests covers test functions only, not what they share.
#![allow(clippy::unwrap_used)]

mod apply;
mod binary;
mod config;
mod database;
