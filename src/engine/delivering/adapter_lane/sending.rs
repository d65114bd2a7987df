//! One attempt: the event to the adapter, timed and traced.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use futures_util::{FutureExt, poll};
use lanekeeper_core::adapter::{Delivery, Verdict};
use lanekeeper_core::event::Event;
use lanekeeper_core::observed::{Cause, Observed};
use lanekeeper_core::subscription::Acknowledge;
use lanekeeper_fault::CrashPoint;
use lanekeeper_postgres::settle::Operation;
use lanekeeper_telemetry::Tracing;
use lanekeeper_telemetry::span::{DeliverySpan, in_trace};
use tokio::time::Instant;

use super::{Ending, Runner};
use crate::delivering::progress::Stop;

impl Runner<'_> {
    /// Hands the head to the adapter. Ends early if the validity of the connection's locks has ended, if the worker
    /// aborts, and if the session is closed.
    pub(super) async fn send(&mut self, event: &Event) -> Result<Verdict, Ending> {
        let observed = Observed::default();
        let mut delivery = Delivery {
            event,
            subscription: &self.route.subscription.name,
            attempt: self.progress.attempt(),
            requeued: self.progress.head_is_dead_letter(),
            asks_ack: self.route.subscription.ack != Acknowledge::None,
            trace: None,
            observed: Some(&observed),
        };
        let tracing = self.context.shared.settings.tracing;
        let span = (tracing != Tracing::Off)
            .then(|| DeliverySpan::start(&delivery, self.adapter.server()));
        self.logged_with = span.as_ref().map(DeliverySpan::logged_with);
        if tracing == Tracing::Propagated {
            delivery.trace = span.as_ref().map(DeliverySpan::context);
        }
        let began = Instant::now();
        if !self.context.validity.holds(began) {
            return Err(Ending::Lost);
        }
        let closings = &self.context.shared.waking.closings;
        let session_id = self.claimed.session_id;
        if closings.is_closed(session_id, self.claimed_at) {
            return Err(self.closed());
        }
        CrashPoint::Delivering.pass();
        let logged_with = self.logged_with.as_ref();
        let delivering = self.adapter.deliver(&delivery);
        let delivering = AssertUnwindSafe(in_trace(logged_with, delivering)).catch_unwind();
        let verdict = {
            let mut delivering = pin!(delivering);
            // A delivery that is ready at once need not register for the abort.
            match poll!(delivering.as_mut()) {
                Poll::Ready(verdict) => verdict,
                Poll::Pending => tokio::select! {
                    biased;
                    verdict = delivering => verdict,
                    // The adapter's future may be dropped at any point; what it had sent may be sent again.
                    () = self.context.shared.aborting.cancelled() => {
                        return Err(Ending::Stopped(Stop::new(Operation::Release)));
                    }
                    () = closings.wait(session_id, self.claimed_at) => return Err(self.closed()),
                },
            }
        };
        CrashPoint::Delivered.pass();
        let verdict = verdict.unwrap_or_else(|_| {
            observed.failed_by(Cause::Panic);
            Verdict::retry("the adapter panicked; see the worker's log")
        });
        self.sent_at = Instant::now();
        let took = self.sent_at.duration_since(began);
        let instruments = &self.route.instruments;
        instruments.attempted(&verdict, &observed, took.as_secs_f64());
        if verdict == Verdict::Accepted && !delivery.requeued {
            let clock = &self.context.shared.peers.clock;
            instruments.accepted_after(clock.seconds_since(event.created_at, self.sent_at));
        }
        if let Some(span) = span {
            span.end(&verdict, &observed);
        }
        Ok(verdict)
    }

    /// The session was closed, and the lane's progress is another one now: whatever is settled here, nothing is written.
    fn closed(&self) -> Ending {
        tracing::info!(
            subscription = %self.route.subscription.name, session = %self.claimed.session,
            "delivery cancelled: its session was closed"
        );
        Ending::Stopped(Stop::new(Operation::Release))
    }
}
