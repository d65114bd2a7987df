//! What a worker serves over HTTP: so far the probes.

pub mod health;
