//! The interface of a destination for the suite, and the events that the suite sends.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Delivery, Verdict};
use lanekeeper_core::event::Event;
use uuid::Uuid;

/// How a destination treats whatever reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    Accept,
    FailForNow,
    Refuse,
    /// Takes the event and never answers.
    Hang,
}

#[async_trait]
pub(crate) trait Destination: Sized + Send + Sync {
    /// A payload that there is something to be said of.
    const PLAIN: &'static str = "{}";

    async fn start(conduct: Conduct, timeout: Duration) -> Self;

    fn adapter(&self) -> Arc<dyn Adapter>;
}

/// A destination that gets events as they are.
#[async_trait]
pub(crate) trait Recorder: Destination {
    /// Waits until `n` bodies have arrived, then gives all of them as their JSON text.
    async fn bodies(&self, n: usize) -> Vec<String>;
}

/// A destination that can tell what a delivery has running there.
#[async_trait]
pub(crate) trait Watched: Destination {
    /// Waits until a hanging delivery has reached the destination.
    async fn reached(&self);

    /// Waits until nothing is left of the delivery that was dropped.
    async fn abandoned(&self);
}

pub(crate) fn event(session: &str, seq: i64, payload: &str) -> Event {
    Event {
        message_id: Uuid::now_v7(),
        stream: "hooks".into(),
        session: session.into(),
        seq,
        event_type: "agent_stop".into(),
        created_at: "2026-01-02T03:04:05.678901Z".parse().unwrap(),
        payload: payload.to_owned(),
        headers: None,
    }
}

pub(crate) async fn deliver(adapter: &dyn Adapter, event: &Event) -> Verdict {
    let delivery = Delivery {
        event,
        subscription: "audit",
        attempt: 3,
        requeued: false,
        replay_id: None,
        asks_ack: false,
        trace: None,
        observed: None,
    };
    // What takes several turns gets them at once: here nobody paces it.
    for _ in 0..1_000 {
        match adapter.deliver(&delivery).await {
            Verdict::Partial => {}
            verdict => return verdict,
        }
    }
    panic!("it never ends");
}

/// Delivers events of one session in one request.
pub(crate) async fn deliver_batch(
    adapter: &dyn Adapter,
    events: &[Event],
    asks_ack: bool,
) -> BatchVerdict {
    let deliveries: Vec<Delivery<'_>> = events
        .iter()
        .map(|event| Delivery {
            event,
            subscription: "audit",
            attempt: 1,
            requeued: false,
            replay_id: None,
            asks_ack,
            trace: None,
            observed: None,
        })
        .collect();
    adapter.deliver_batch(&deliveries).await
}

/// Starts a delivery that can be dropped by aborting the task.
pub(crate) fn deliver_in_task(
    adapter: Arc<dyn Adapter>,
    event: Event,
) -> tokio::task::JoinHandle<Verdict> {
    tokio::spawn(async move { deliver(&*adapter, &event).await })
}

pub(crate) fn retry_error(verdict: Verdict) -> String {
    match verdict {
        Verdict::Retry { error, .. } => error,
        other => panic!("expected a retry, got {other:?}"),
    }
}

pub(crate) fn rejection(verdict: Verdict) -> String {
    match verdict {
        Verdict::Rejected { error } => error,
        other => panic!("expected a rejection, got {other:?}"),
    }
}
