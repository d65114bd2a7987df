//! Live followers (D4, F3): clients of a worker's HTTP API that read sessions while they grow.

mod access;
mod bounds;
mod client;
mod example;
mod killed;
mod registration;
mod session;
mod socket;
mod stream;
mod tail;
