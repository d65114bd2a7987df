//! What held lanes and their connection send each other.

use std::sync::Arc;

use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::settle::{Settled, Settlement};
use tokio::sync::oneshot;

use crate::delivering::budget::{Budget, BudgetReservation};

/// Payloads up to this size are fetched with their batch; larger ones are read when their turn comes.
pub const INLINE_BYTES: i32 = 4096;

/// A request of a lane to its connection. Each held lane has at most one outstanding, which bounds the channel.
pub enum Request {
    Settle {
        settlement: Box<Settlement>,
        subscription_id: i32,
        /// Whether this connection scans when the delay is over.
        punctual: bool,
        reply: oneshot::Sender<Reply>,
    },
    SuspectedPoison {
        lane_id: i64,
        version: i64,
        crashes: i32,
        reply: oneshot::Sender<bool>,
    },
}

/// The result of a settlement; with [`Settled::More`], the lane's next events.
pub struct Reply {
    pub settled: Settled,
    pub batch: Batch,
}

/// A lane's next events, with the memory that they take until they are delivered.
#[derive(Default)]
pub struct Batch {
    pub events: Vec<FetchedEvent>,
    /// `None` if there are no bytes to count.
    pub reservation: Option<BudgetReservation>,
}

impl Batch {
    pub fn new(events: Vec<FetchedEvent>, budget: &Arc<Budget>) -> Self {
        let bytes = events.iter().map(FetchedEvent::memory).sum();
        Self {
            reservation: (bytes > 0).then(|| budget.take(bytes)),
            events,
        }
    }
}
