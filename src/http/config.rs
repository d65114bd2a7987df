//! Settings of the listener: keys under `http`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lanekeeper_core::section;

section! {
    /// The listener of `worker` and `dev`.
    HttpConfig {
        /// Address and port; port 0 takes a free one.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
        /// Connections to Postgres for requests; they are opened when there are any.
        pool_size: usize = 4,
        /// Requests under way at once; more are told to come again.
        max_requests: usize = 64,
        /// Clients' connections at once, those of probes too. Where there is no place for another, one that has
        /// no request is closed.
        max_connections: usize = 256,
        /// Milliseconds for a request's head to arrive, for its body, and until a client takes more of its answer;
        /// also that a connection may be idle.
        read_timeout_ms: u64 = 10_000,
        /// Bytes of one request's body.
        max_body_bytes: usize = 8 * 1024 * 1024 + 65_536,
    }
}

impl HttpConfig {
    pub fn read_timeout(&self) -> Duration {
        Duration::from_millis(self.read_timeout_ms)
    }
}
