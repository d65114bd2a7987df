//! What a lane leaves out when an event's turn comes: events older than `max_age`, and the oldest of more than
//! `max_pending` where the subscription drops these.
//!
//! The holder of the lane does it, just before it delivers its head. So nothing goes that is being delivered, and
//! appends pay nothing. Postgres judges, by its own clock (I6); this worker's clock only says when it is worth asking.

use std::time::Duration;

use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::fetch::Position;
use lanekeeper_postgres::subscription::Subscription;
use lanekeeper_postgres::surplus::{self, Surplus};
use tokio::time::Instant;
use tokio_postgres::GenericClient;

/// How often a lane that drops its oldest events asks how many there are, beside once for each fetch.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// When a lane asks what it is to leave out.
#[derive(Debug, Default)]
pub struct SurplusWatch {
    asked_at: Option<Instant>,
}

/// What a lane asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    max_age: Option<Duration>,
    drops_beyond: Option<u32>,
}

impl SurplusWatch {
    /// The lane has fetched anew: more may have come.
    pub fn begin_batch(&mut self) {
        self.asked_at = None;
    }

    /// What to ask before the head is delivered, which is `age_s` seconds old; `None` if nothing can be left out.
    pub fn question(
        &mut self,
        subscription: &Subscription,
        age_s: f64,
        may_drop: bool,
        now: Instant,
    ) -> Option<Question> {
        let max_age = subscription.max_age;
        let is_old = max_age.is_some_and(|most| age_s >= most.as_secs_f64());
        let asked_lately = self
            .asked_at
            .is_some_and(|at| now.duration_since(at) < ASK_EVERY);
        let drops_beyond = subscription.pending.drops_beyond().filter(|_| may_drop);
        if !is_old && (drops_beyond.is_none() || asked_lately) {
            return None;
        }
        self.asked_at = Some(now);
        Some(Question {
            max_age,
            drops_beyond,
        })
    }
}

impl Question {
    pub async fn ask(
        self,
        client: &impl GenericClient,
        position: Position,
        subscription: &Subscription,
    ) -> Result<Surplus, StoreError> {
        let types = subscription.events.as_deref();
        surplus::surplus(client, position, types, self.max_age, self.drops_beyond).await
    }
}
