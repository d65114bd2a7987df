//! What a program that makes events needs: appending within a deadline, to the database or to a worker's HTTP API,
//! and the spool for the time when neither can be reached.

mod client;
mod error;
pub mod follow;
pub mod remote;
pub mod spool;

pub use client::{Producer, Way};
pub use error::{ProducerError, RemoteError};
