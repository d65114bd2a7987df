//! Settings of the listener: keys under `http`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lanekeeper_core::section;

section! {
    /// The listener of `worker` and `dev`.
    HttpConfig {
        /// Address and port of the probes, metrics and the API; port 0 takes a free one.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
        /// Whether programs of this machine may use the API without an access token while none was ever made; for
        /// developers. Leave it off beside a proxy on this machine: one that adds no header makes everybody look so.
        allow_unauthenticated: bool = false,
        /// Connections to Postgres for requests; opened when there are any.
        pool_size: usize = 4,
        /// Requests at once; more are asked to come again.
        max_requests: usize = 64,
        /// Clients' connections at once, including probes; when all are taken, an idle one is closed for a new one.
        max_connections: usize = 256,
        /// Time for a request's head, for its body, and for a client to take more of its answer; also how long a
        /// connection may be idle.
        read_timeout_ms: u64 = 10_000,
        /// Largest body of one request.
        max_body_bytes: usize = 8 * 1024 * 1024 + 65_536,
    }
}

impl HttpConfig {
    pub fn read_timeout(&self) -> Duration {
        Duration::from_millis(self.read_timeout_ms)
    }
}
