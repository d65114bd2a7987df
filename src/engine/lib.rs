//! The engine: claims lanes, delivers their events, settles them. It knows no destination.
//!
//! ```text
//! lane connection ── claims ──► lane task ── delivers ──► adapter
//!       ▲                           │
//!       └──────── settlements ──────┘
//! ```
//!
//! | wing | what it does |
//! |---|---|
//! | `claiming` | which lanes a connection takes, and how it settles them |
//! | `delivering` | the events of a held lane go out one at a time, in order |
//! | `waking` | how a worker learns that a lane has something to deliver |
//! | `peers` | how long a worker relies on its locks, and takeover from workers that died |
//! | `maintenance` | retention, archive, statistics, health |
//!
//! `worker` starts and stops a worker; `shared` holds the state of its tasks, one owner per wing; `settings` is
//! what it is configured with.
//!
//! | what goes wrong | what notices it, and when | what happens |
//! |---|---|---|
//! | SIGKILL, crash | the server at once (closed socket); survivors within a second | the locks are free, the ready entries are still there, lanes with in-flight records are woken, heads are charged a crash |
//! | frozen process | a peer after 30 s without heartbeat; the process itself by its validity window | the peer ends the connections; when the process runs again all its deliveries are cancelled, and it can settle nothing |
//! | vanished node | the server by keepalives, 11 s | as for a crash |
//! | a connection is open and silent because something on the way hangs | the worker by its validity window | it ends the connection's backend over its control connection, and the lanes are woken |
//! | Postgres restarts or fails over | every connection ends | lanes are dropped, and everything starts again from the rows |
//! | a notification is lost | nothing | the scan at the poll floor finds the ready entry |

mod claiming;
mod delivering;
mod maintenance;
mod peers;
mod settings;
mod shared;
mod waking;
mod worker;

pub use claiming::handler_lanes;
pub use claiming::rate_control::most_waiting;
pub use delivering::handler::{Destination, Handler, HandlerError};
pub use delivering::sent_messages::SentMessages;
pub use delivering::terminal_inputs::TerminalInputs;
pub use maintenance::archive::FolderError;
pub use maintenance::archive::restore::{RestoreError, Restored, restore};
pub use peers::control::DestinationSource;
pub use peers::lock_table::lanes_each;
pub use settings::{WorkerSettings, host_name};
pub use worker::{NotReady, Probe, StartError, Stopped, Worker};

/// What is decided without I/O, for `tests/sim`, which takes the steps of a worker one by one. No promise of
/// the library.
#[doc(hidden)]
pub mod decision {
    pub use crate::delivering::coalesce::{Merging, Step, plan};
    pub use crate::delivering::progress::{Judgement, Progress, Stop};
}
