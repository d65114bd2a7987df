//! Waking: how a worker learns that a lane has something to deliver (I8).
//!
//! NOTIFY takes one lock for the whole server and keeps it until its commit is on disk, so producers that notify
//! commit one after the other. Therefore a producer that inserted a ready entry first tries the doorbell, an
//! advisory lock, in shared mode. It gets the lock only if no worker holds it or queues for it, and then nobody
//! needs to be notified.
//!
//! A worker that is idle queues for the doorbell in exclusive mode, on a connection of its own. It gives the
//! doorbell up at the first notification and at the first event that it finds by itself; at once, if either came
//! while it queued. It queues again when it is idle again.
//!
//! ```text
//!           quiet period passed               granted
//!   busy ────────────────────────► queueing ────────────► holding
//!    ▲                                │                      │
//!    └───── found or notified ────────┴──────────────────────┘
//!           (gives back whatever the session has)
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`idle`] | whether the worker is idle, and how long it must be quiet before it queues for the doorbell |
//! | [`doorbell`] | queues for the doorbell, holds it, gives it up |
//! | [`interruptions`] | sessions that were closed or interrupted, and cancelled events |
//! | [`listener`] | hears notifications and operator requests |
//! | [`operator_request`] | lanes that operators are about to change |
//! | [`signal`] | a flag that is set once: the worker stops |
//!
//! - **Not notified.** A worker that neither holds nor queues for the doorbell is not notified. None of its
//!   connections then waits longer than 20 ms before its next scan, however busy the others are.
//! - **After a successful scan** a worker scans again after 1, 2, 4, 4, 4, 4, 8 … ms. That finds events that arrive
//!   while nobody is notified.
//! - **Polling.** A worker that goes idle scans at growing intervals up to the poll floor of the streams that it
//!   delivers ([`crate::claiming::poll_floor`]). That finds what nobody notifies of, and is all that is left when
//!   notifications fail.
//! - **Retries and yields.** The claim returns when the next entry is due, so no retry waits for a poll. A
//!   connection also scans when a retry of its own is due, and at once when a lane of its own has yielded.
//!
//! Notifications have no payload and mean "scan". A producer that need not notify holds the doorbell until its
//! transaction ends; a worker that is granted it after that scans once. That closes the window between a producer's
//! test of the doorbell and its commit. What polls are needed for: an append between a lane's last settlement and
//! its unlock (the worker that is woken finds the lane locked, and scans again 2 ms later), lanes that are released
//! with their entry, and appends while another producer holds the doorbell.
//!
//! # Failures
//!
//! | failure | what happens |
//! |---|---|
//! | a notification is lost | scans at growing intervals, up to the poll floor |
//! | a worker is killed while it queues | the server checks for the client of a waiting backend, and ends it |
//! | a worker is frozen with the doorbell | a peer ends its connections |
//! | the doorbell connection does not answer | the worker ends its backend and opens another |

pub mod doorbell;
pub mod idle;
pub mod interruptions;
pub mod listener;
pub mod operator_request;
pub mod signal;

use tokio::sync::Notify;

use self::idle::Idle;
use self::interruptions::Interruptions;
use self::operator_request::OperatorRequests;

/// What wakes the connections of one worker.
#[derive(Debug, Default)]
pub struct Waking {
    /// A hint that ready entries are due. One waiting lane connection takes it.
    pub lane_connections: Notify,
    /// The same for one waiting handler connection.
    pub handler_connections: Notify,
    /// The same for one waiting connection of projections.
    pub projection_connections: Notify,
    pub idle: Idle,
    pub operator_requests: OperatorRequests,
    pub interruptions: Interruptions,
}

impl Waking {
    /// Wakes one connection of handlers and one of projections, which share their slots.
    pub fn wake_handlers(&self) {
        self.handler_connections.notify_one();
        self.projection_connections.notify_one();
    }

    /// Wakes one connection of each kind: an entry may be due, and it is not known whose.
    pub fn wake_all(&self) {
        self.lane_connections.notify_one();
        self.wake_handlers();
    }
}
