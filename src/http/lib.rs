//! The HTTP server of a worker: probes, metrics, and the API for producers, readers and operators.
//!
//! Probes and metrics need no access token; `/v1` needs one (`access`). Errors are
//! problem documents (`problem`).

mod a2a;
mod a2a_agent;
pub mod access;
mod acks;
mod agents;
mod answer;
pub mod api;
mod body;
mod cached;
mod cloudevents;
pub mod config;
pub mod connections;
mod documents;
pub mod durable;
pub mod events;
mod health;
mod inbound;
mod interrupts;
pub mod lease;
pub mod listener;
pub mod live;
mod local;
mod metrics;
mod object;
pub mod openapi;
pub mod operate;
pub mod problem;
pub mod problem_type;
mod replays;
mod request_limits;
mod routes;
mod sessions;
mod socket;
mod sources;
