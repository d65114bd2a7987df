//! What a worker serves over HTTP: the probes, its metrics, and the API for producers and readers.
//!
//! Whoever reaches the listener sees probes and metrics; `/v1` takes an access token (`access`). Errors are
//! problem documents (`problem`).

pub mod access;
pub mod acks;
mod answer;
mod body;
pub mod config;
mod connections;
pub mod events;
pub mod health;
pub mod listener;
pub mod metrics;
mod places;
pub mod problem;
pub mod problem_type;
pub mod sessions;
mod socket;
