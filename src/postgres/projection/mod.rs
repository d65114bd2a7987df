//! Projections: functions of the user's own that are called with each event, in the transaction that settles it (A9).
//!
//! # Whose rights
//!
//! The function is somebody else's code. On a connection of Lanekeeper's own role it could do whatever that role may:
//! `SET ROLE` is no wall, because a function may set it back; session state (advisory locks, `search_path`, cursors WITH
//! HOLD, prepared statements) outlives the call; and before PostgreSQL 18 a deferred trigger runs as whoever commits. So
//! the transaction runs on a connection that logged in as the projection's role, and Lanekeeper's part of it is what is
//! lent: `settle_projection`, SECURITY DEFINER, settles exactly what a permit names, which the worker gets on its own
//! connection after the function has ended.
//!
//! After the function nothing of the user's runs: deferred constraints are made immediate and cursors are closed before the
//! settlement, so its row locks last for one settlement and one commit.
//!
//! ```text
//! lane connection (owner)      holds the lane's lock ─────────────── permit ──────────────────────────
//! projection's connection      BEGIN ── begin_projection ── function ─┴─ settle_projection ── COMMIT
//! ```
//!
//! # Failures
//!
//! | failure | what happens |
//! |---|---|
//! | the function raises, or takes too long | rolled back: [`Failure::Raised`], an attempt |
//! | it is missing, has other arguments, may not be called; a deadlock | rolled back: [`Failure::Unavailable`], no attempt |
//! | its read model is being switched to a rebuilt one | not called: [`Failure::Switching`], no attempt |
//! | the connection is lost before COMMIT | rolled back by the server: [`Failure::Unavailable`] |
//! | … during COMMIT | committed or not, effect and settlement agree; the next holder reads which |
//! | the function traps the cancellation and goes on | [`Connection::abandon`] ends its backend |

mod check;
mod connection;
mod find;
mod rebuild;
mod shadow;

use std::time::Duration;

pub use check::{CHECK, Unfit, check};
pub use connection::{Connection, Failure, IDENTITY, PERMIT, Passed, SETTLE};

pub use find::{FIND, Named, find};
pub use rebuild::{Options, Progress, RebuildError, rebuild};

use crate::Database;

/// A projection as the engine needs it.
#[derive(Clone, Debug)]
pub struct Projection {
    pub schema: String,
    pub function: String,
    pub role: String,
    /// The read model: tables of the schema.
    pub tables: Vec<String>,
    /// How long a call may take.
    pub timeout: Duration,
    /// The way to the database for the role.
    pub database: Database,
}

impl Projection {
    /// Schema and name, as a statement has them.
    pub(super) fn qualified(&self, name: &str) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(name))
    }
}

/// A name as a statement has it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
