//! The engine: claims lanes, runs them, settles them. It knows no destination.
//!
//! ```text
//! claimer (one per lane connection) ── claims ──► lane task ── delivers ──► adapter
//!    ▲  ▲                                            │
//!    │  └────────────── settlements ─────────────────┘
//!    ├── walk: when to look, from where          ├── coalesce: what of a batch goes out
//!    ├── wake, doorbell: notifications             └── retry: when a failed head comes back
//!    └── trust: how long locks are believed in   pace: what a limit lets be claimed, how lanes wait
//! transactional: the same for handlers, whose effect commits with their settlement
//! control (one per worker): heartbeat, routes, takeover from dead and frozen peers, and the end of
//!   connections that this worker gave up (given_up); lock_table: how many lanes it may hold
//! housekeeping: retention, and what applies left to finish; archive: days go to files before they go
//! ```
//!
//! | what goes wrong | who notices, and when | what happens |
//! |---|---|---|
//! | SIGKILL, crash | the server at once (closed socket); survivors within a second | locks are free, tokens are still there, marked lanes are woken, heads are charged a crash |
//! | frozen process | a peer after 30 s without heartbeat; the process itself by its trust window | the peer ends the connections; on thaw all its deliveries are cancelled, it can settle nothing |
//! | vanished node | the server by keepalives, 11 s | as for a crash |
//! | a connection is open and silent, something on the way hangs | the worker by its trust window | it ends the connection's backend over its control connection, and wakes the lanes |
//! | Postgres restarts or fails over | every connection ends | lanes are dropped, everything starts again from the rows |
//! | a notification is lost | nobody | the poll floor finds the token |

mod archive;
mod behind;
mod budget;
mod claimer;
mod coalesce;
mod control;
mod doorbell;
mod gauges;
mod given_up;
mod handler;
mod housekeeping;
mod idle;
mod lane;
mod lifecycle;
mod lock_table;
mod pace;
mod places;
mod progress;
mod reserve;
mod retry;
mod route;
mod sent_messages;
mod settings;
mod shared;
mod signal;
mod survey;
mod transactional;
mod trust;
mod vital_signs;
mod wake;
mod walk;
mod wanted;
mod worker;

pub use archive::FolderError;
pub use control::DestinationSource;
pub use handler::{Destination, Handler, HandlerError};
pub use lock_table::lanes_each;
pub use pace::most_resting;
pub use sent_messages::SentMessages;
pub use settings::WorkerSettings;
pub use worker::{NotReady, Probe, StartError, Stopped, Worker};

/// What is decided without I/O, for `tests/sim`, which takes the steps of a worker one by one. No promise of
/// the library.
#[doc(hidden)]
pub mod decision {
    pub use super::coalesce::{Merging, Step, plan};
    pub use super::progress::{Judgement, Progress, Stop};
}
