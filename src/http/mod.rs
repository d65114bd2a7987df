//! What a worker serves over HTTP: the probes and its metrics.

pub mod health;
pub mod metrics;
