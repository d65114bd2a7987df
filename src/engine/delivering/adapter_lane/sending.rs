//! One attempt: the event to the adapter, timed and traced.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use futures_util::{FutureExt, poll};
use jiff::civil::Date;
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
    /// aborts, and if the session is closed or interrupted or the event cancelled.
    pub(super) async fn send(&mut self, event: &Event, day: Date) -> Result<Verdict, Ending> {
        if let Some(reach) = self.ahead(event.seq) {
            self.give_way(event.seq, day, reach).await?;
        }
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
        let interruptions = &self.context.shared.waking.interruptions;
        let session_id = self.claimed.session_id;
        CrashPoint::Delivering.pass();
        let logged_with = self.logged_with.as_ref();
        let delivering = self.adapter.deliver(&delivery);
        let delivering = AssertUnwindSafe(in_trace(logged_with, delivering)).catch_unwind();
        let answered = {
            let mut delivering = pin!(delivering);
            // A delivery that is ready at once need not register for the abort.
            match poll!(delivering.as_mut()) {
                Poll::Ready(verdict) => Ok(verdict),
                Poll::Pending => tokio::select! {
                    biased;
                    verdict = delivering => Ok(verdict),
                    // The adapter's future may be dropped at any point; what it had sent may be sent again.
                    () = self.context.shared.aborting.cancelled() => {
                        return Err(Ending::Stopped(Stop::new(Operation::Release)));
                    }
                    reach = interruptions.wait(session_id, event.seq, self.claimed_at) => Err(reach),
                },
            }
        };
        let verdict = match answered {
            Ok(verdict) => verdict,
            Err(reach) => {
                tracing::info!(
                    subscription = %self.route.subscription.name, session = %self.claimed.session,
                    seq = event.seq, message_id = %event.message_id,
                    "delivery cancelled: its session was closed or interrupted, or the message was cancelled"
                );
                self.give_way(event.seq, day, reach).await?;
                return Err(Ending::Stopped(Stop::yields()));
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
}
