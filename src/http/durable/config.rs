//! Settings of the Durable Streams protocol: keys under `durable_streams`.

use std::time::Duration;

use lanekeeper_core::section;

section! {
    /// The Durable Streams protocol under `/v1/ds`, on the listener of `worker` and `dev`.
    DurableStreamsConfig {
        /// Streams whose sessions may be created, written, closed and read by the protocol, with the access tokens of
        /// the API. None: the protocol is off.
        streams: Vec<String> = Vec::new(),
        /// The longest wait of a long poll for something new.
        long_poll_ms: u64 = 20_000,
        /// Time after which an event stream ends, and its client comes again.
        sse_ms: u64 = 60_000,
    }
}

impl DurableStreamsConfig {
    pub fn long_poll(&self) -> Duration {
        Duration::from_millis(self.long_poll_ms)
    }

    pub fn sse(&self) -> Duration {
        Duration::from_millis(self.sse_ms)
    }
}
