//! Generated lists of operations, run in one process against a real Postgres whose clock stands still until
//! an operation moves it, and checked against a small model after each: the statements of `store` and the
//! decisions of `engine` in any order, with nothing left to timing. Between `model/`, which checks every
//! interleaving of an abstraction, and `tests/crash`, which breaks whole processes.
//!
//! ```text
//! operation ── generates, shrinks ──► world ── runs ──► producing, delivering, ground ──► Postgres
//!                                       │                                                    │
//!                                       └──────────────► model ◄── compare ─────────────────┘
//! ```
//!
//! `make test` runs a few lists, the same each time; `SIM_CASES` says how many new ones are run instead, and
//! `make sim CASES=2000` is the long form. A list that fails is
//! shrunk and printed, and the seed from which it was made is written to `tests/sim/regressions`: commit it
//! with the mend, it is run first from then on. A seed makes another list when `operation` changes; so what
//! is worth keeping is put into `fixed` as well, where a printed list can be pasted.

#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "tests/it uses the rest")]
mod support;

mod claiming;
mod compare;
mod delivering;
mod drain;
mod fixed;
mod generated;
mod ground;
mod living;
mod model;
mod mutation;
mod operating;
mod operation;
mod producing;
mod settling;
mod worker;
mod world;
