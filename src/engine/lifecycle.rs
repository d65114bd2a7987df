//! The lifecycle feed: what happens to destinations, subscriptions and workers, as events of the stream
//! `lifecycle`, which is delivered like any other (C10).
//!
//! Something is told only while there is a subscription of that stream, paused ones included: nobody else would
//! hear it. Telling is no part of what is told of. It takes a connection of the pool, has a time-out, and what
//! fails is logged. What becomes of the feed's own deliveries is not told, or a destination that is down would
//! feed itself.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::append::{self, NewEvent};
use serde::Serialize;
use tokio::time::timeout;

use super::route::Route;
use super::shared::Shared;

/// The stream.
pub const STREAM: &str = "lifecycle";
const WITHIN: Duration = Duration::from_secs(10);

/// What happened. The session is what it happened to, so that its story is in order.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Happening {
    /// So many sessions failed in a row at a destination; it is left alone but for probes.
    CircuitOpened {
        destination: String,
        subscription: String,
    },
    /// It answers again.
    CircuitClosed {
        destination: String,
        subscription: String,
    },
    /// Its destination wants nothing more (410).
    SubscriptionPaused {
        subscription: String,
        reason: String,
    },
    /// Connections of a worker are gone; this one took their lanes over.
    TakenOver {
        lost_worker_id: i64,
        lanes: i64,
        charged: i64,
    },
}

impl Happening {
    fn event_type(&self) -> &'static str {
        match self {
            Self::CircuitOpened { .. } => "circuit_opened",
            Self::CircuitClosed { .. } => "circuit_closed",
            Self::SubscriptionPaused { .. } => "subscription_paused",
            Self::TakenOver { .. } => "taken_over",
        }
    }

    fn session(&self) -> String {
        match self {
            Self::CircuitOpened { destination, .. } | Self::CircuitClosed { destination, .. } => {
                format!("destination {destination}")
            }
            Self::SubscriptionPaused { subscription, .. } => {
                format!("subscription {subscription}")
            }
            Self::TakenOver { lost_worker_id, .. } => format!("worker {lost_worker_id}"),
        }
    }
}

/// Whether a route delivers the feed itself.
pub fn is_feed(route: &Route) -> bool {
    &*route.subscription.stream == STREAM
}

/// Tells it, in a task of its own.
pub fn tell(shared: &Arc<Shared>, happening: Happening) {
    if !shared.has_feed() {
        return;
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let told = timeout(WITHIN, append(&shared, &happening)).await;
        let told = told.unwrap_or_else(|_| Err("Postgres did not answer in time".into()));
        if let Err(error) = told {
            tracing::warn!(
                error = &*error,
                ?happening,
                "the lifecycle feed lacks this; nothing else is concerned"
            );
        }
    });
}

async fn append(
    shared: &Shared,
    happening: &Happening,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    #[derive(Serialize)]
    struct Told<'a> {
        worker_id: i64,
        #[serde(flatten)]
        happening: &'a Happening,
    }
    let payload = serde_json::to_string(&Told {
        worker_id: shared.identity.worker_id,
        happening,
    })?;
    // 512 bytes are a session's name; a destination may be longer.
    let mut session = happening.session();
    let mut end = session.len().min(512);
    while !session.is_char_boundary(end) {
        end -= 1;
    }
    session.truncate(end);
    let client = shared.pool.get().await?;
    let event = NewEvent::new(&session, happening.event_type(), &payload);
    append::enqueue(&**client, STREAM, &event).await?;
    Ok(())
}
