//! The guarantees under faults: real worker and receiver processes against a private Postgres, every
//! connection through a proxy that can break it, a seed that decides what happens when, and an oracle
//! that believes nobody. `make crash SEEDS=… MINUTES=…` is the long form of what runs here.
//!
//! Left out: the binary of the previous release beside this one, which there is not; and the loss of a disk.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "tests/it uses the rest")]
mod support;

mod acknowledger;
#[cfg(feature = "crash-points")]
mod crash_points;
mod ground;
mod ledger;
mod long_form;
mod middlebox;
mod monitor;
mod node;
mod operator;
mod oracle;
mod plan;
mod receiver;
mod run;
mod scene;
mod selection;
mod spool_full;
mod timeline;
mod vanished;
mod workload;
