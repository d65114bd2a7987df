//! The HTTP server of a worker: probes, metrics, and the API for producers and readers.
//!
//! Probes and metrics need no access token; `/v1` needs one (`access`). Errors are
//! problem documents (`problem`).

pub mod a2a;
pub mod access;
pub mod acks;
pub mod agents;
mod answer;
mod body;
mod cloudevents;
pub mod config;
pub mod connections;
pub mod documents;
pub mod durable;
pub mod events;
pub mod health;
pub mod inbound;
pub mod interrupts;
pub mod listener;
pub mod live;
pub mod metrics;
mod places;
pub mod problem;
pub mod problem_type;
pub mod replays;
pub mod sessions;
mod socket;
pub mod sources;
