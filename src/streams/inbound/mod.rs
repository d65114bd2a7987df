//! Messages to agents that a worker fetches: platforms that keep what people write until a bot asks (E2, E7).
//!
//! Of all workers exactly one asks for a source: the holder of its advisory lock, on a direct connection. What came is
//! enqueued in the transaction that moves the offset, on that same connection. So the connection is the fence: a worker that
//! lost the lock can commit neither, and the offset is a compare-and-set besides.
//!
//! ```text
//!            every second                    lock            getMe
//! watching ──────────────► it is free ─────► held ─────► bot entered ─────► asking ◄──────────┐
//!     ▲   └─► its holder is silent: end its connection                        │ updates        │
//!     │                                                                       ▼                │
//!     └──────────── the connection ends, the source changes ◄──── append + move the offset ────┘
//! ```
//!
//! | failure | what happens |
//! |---|---|
//! | the worker dies | the server lets the lock go; another worker takes it within two seconds |
//! | the worker is frozen, or its connection is | another one ends the connection of a holder without a sign of life for `SILENT`; a thawed one commits nothing |
//! | it dies between the append and the commit | neither happened; the platform sends the update again |
//! | it dies between the commit and the next question | the offset is moved; what comes again is a duplicate by chat and message |
//! | the platform is away, has a fault, answers nonsense | asked again after 1 to 30 s; nothing was confirmed to it |
//! | another program asks for the same bot, or a webhook is set (409) | said, and asked again every 30 s |
//! | an update that is no message, or that Postgres refuses | counted, logged and passed: it must not hold up others |
//! | a producer's transaction holds one session's append lock | the offset stays before its message; messages of other sessions are enqueued, and passed when they come again (`memory`) |
//! | an attachment is under way | its session waits as a locked one does, a minute at most for each four files; the message then goes without it |
//! | the stream does not take the source's messages | nothing is passed; asked again every 30 s |
//!
//! | module | what it does |
//! |---|---|
//! | `watch` | finds sources to hold, and holders that are silent |
//! | `hold` | one source from lock to loss: its bot, the questions, the pauses |
//! | `gateway` | the same of Discord: connections in place of questions, each resumed where the last one ended |
//! | `batch` | the updates of one answer: which are appended, passed, or kept back |
//! | `memory` | what was taken already, and which sessions were locked, while the offset stays |
//! | `reply` | what the chat is shown: that somebody types, how the session is, why a message was not taken |
//! | `downloads` | fetches what people send with their messages, while those wait and the others go on |
//!
//! What an update says is read in `lanekeeper_core::source`, for workers that are sent updates too.

mod batch;
mod downloads;
mod ending;
mod gateway;
mod hold;
mod memory;
mod reply;
mod shared;
mod watch;

use std::time::Duration;

pub use self::shared::Polling;
pub use self::watch::run;

/// Between two signs of life of a holder, and two looks at the sources.
const ALIVE_EVERY: Duration = Duration::from_secs(2);
/// Without a sign of life for this long a holder's connection is ended. Longer than a statement may take.
const SILENT: Duration = Duration::from_secs(6);
/// For Postgres to answer, where its own time-out does not end the statement.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
