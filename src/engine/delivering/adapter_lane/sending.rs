//! One attempt: the event, or a batch, to the adapter, timed and traced.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use futures_util::{FutureExt, poll};
use jiff::civil::Date;
use lanekeeper_core::adapter::{BatchVerdict, Delivery, Verdict};
use lanekeeper_core::event::Event;
use lanekeeper_core::observed::{Cause, Observed};
use lanekeeper_core::subscription::Acknowledge;
use lanekeeper_fault::CrashPoint;
use lanekeeper_postgres::settle::Operation;
use lanekeeper_telemetry::Tracing;
use lanekeeper_telemetry::span::{DeliverySpan, in_trace};
use tokio::time::Instant;

use super::{Ending, Runner};
use crate::claiming::route::Route;
use crate::delivering::progress::Stop;

impl<'a> Runner<'a> {
    /// Hands the head to the adapter. Ends early if the validity of the connection's locks has ended, if the worker
    /// aborts, and if the session is closed or interrupted or the event cancelled.
    pub(super) async fn send(&mut self, event: &Event, day: Date) -> Result<Verdict, Ending> {
        if let Some(reach) = self.ahead(event.seq) {
            self.give_way(event.seq, day, reach).await?;
        }
        let observed = Observed::default();
        let mut delivery = self.delivery(event, self.progress.attempt(), &observed);
        let span = self.span(&delivery);
        if self.context.shared.settings.tracing == Tracing::Propagated {
            delivery.trace = span.as_ref().map(DeliverySpan::context);
        }
        let began = self.begin()?;
        let adapter = self.adapter;
        let verdict = self
            .answered(event, day, adapter.deliver(&delivery))
            .await?;
        let verdict = verdict.unwrap_or_else(|| panicked(&observed));
        self.measure(&verdict, &observed, began);
        self.measure_accepted(event, &verdict);
        if let Some(span) = span {
            span.end(&verdict, &observed);
        }
        Ok(verdict)
    }

    /// Hands several events to the adapter, from the head on. The figures and the span are those of one attempt.
    /// `day`: of the first of them.
    pub(super) async fn send_batch(
        &mut self,
        events: &[Event],
        day: Date,
    ) -> Result<BatchVerdict, Ending> {
        let head = &events[0];
        if let Some(reach) = self.ahead(head.seq) {
            self.give_way(head.seq, day, reach).await?;
        }
        let observed = Observed::default();
        // Only the head was tried before.
        let attempts = std::iter::once(self.progress.attempt()).chain(std::iter::repeat(1));
        let mut deliveries: Vec<Delivery<'_>> = events
            .iter()
            .zip(attempts)
            .map(|(event, attempt)| self.delivery(event, attempt, &observed))
            .collect();
        let mut span = self.span(&deliveries[0]);
        if let Some(span) = &mut span {
            span.is_of(events.len());
        }
        if self.context.shared.settings.tracing == Tracing::Propagated {
            deliveries[0].trace = span.as_ref().map(DeliverySpan::context);
        }
        let began = self.begin()?;
        let adapter = self.adapter;
        let answered = self
            .answered(head, day, adapter.deliver_batch(&deliveries))
            .await?;
        let verdict = answered.unwrap_or_else(|| BatchVerdict::Whole(panicked(&observed)));
        // The first that is not accepted says why; where there is none, the whole request was accepted.
        let said = (0..events.len())
            .map_while(|position| verdict.of(position))
            .find(|verdict| !matches!(verdict, Verdict::Accepted | Verdict::Sent))
            .or_else(|| verdict.of(0));
        let said = said.cloned().unwrap_or(Verdict::Partial);
        self.measure(&said, &observed, began);
        for (position, event) in events.iter().enumerate() {
            if let Some(verdict) = verdict.of(position) {
                self.measure_accepted(event, verdict);
            }
        }
        if let Some(span) = span {
            span.end(&said, &observed);
        }
        Ok(verdict)
    }

    fn delivery<'e>(&self, event: &'e Event, attempt: u32, observed: &'e Observed) -> Delivery<'e>
    where
        'a: 'e,
    {
        let route: &'a Route = self.route;
        Delivery {
            event,
            subscription: &route.subscription.name,
            attempt,
            requeued: self.progress.head_is_dead_letter(),
            replay_id: self.progress.replay_id(),
            asks_ack: route.subscription.ack != Acknowledge::None,
            trace: None,
            observed: Some(observed),
        }
    }

    fn span(&mut self, delivery: &Delivery<'_>) -> Option<DeliverySpan> {
        let tracing = self.context.shared.settings.tracing;
        let span =
            (tracing != Tracing::Off).then(|| DeliverySpan::start(delivery, self.adapter.server()));
        self.logged_with = span.as_ref().map(DeliverySpan::logged_with);
        span
    }

    /// Whether anything may be sent now; returns the time.
    fn begin(&self) -> Result<Instant, Ending> {
        let began = Instant::now();
        if !self.context.validity.holds(began) {
            return Err(Ending::Lost);
        }
        Ok(began)
    }

    /// Waits for the adapter's answer about an event, or about a batch that begins with it; `None`: it panicked.
    async fn answered<T>(
        &mut self,
        event: &Event,
        day: Date,
        delivering: impl Future<Output = T>,
    ) -> Result<Option<T>, Ending> {
        let interruptions = &self.context.shared.waking.interruptions;
        let session_id = self.claimed.session_id;
        CrashPoint::Delivering.pass();
        let logged_with = self.logged_with.as_ref();
        let delivering = AssertUnwindSafe(in_trace(logged_with, delivering)).catch_unwind();
        let answered = {
            let mut delivering = pin!(delivering);
            // A delivery that is ready at once need not register for the abort.
            match poll!(delivering.as_mut()) {
                Poll::Ready(answer) => Ok(answer),
                Poll::Pending => tokio::select! {
                    biased;
                    answer = delivering => Ok(answer),
                    // The adapter's future may be dropped at any point; what it had sent may be sent again.
                    () = self.context.shared.aborting.cancelled() => {
                        return Err(Ending::Stopped(Stop::new(Operation::Release)));
                    }
                    reach = interruptions.wait(session_id, event.seq, self.claimed_at) => Err(reach),
                },
            }
        };
        let answer = match answered {
            Ok(answer) => answer,
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
        Ok(answer.ok())
    }

    fn measure(&mut self, verdict: &Verdict, observed: &Observed, began: Instant) {
        self.sent_at = Instant::now();
        let took = self.sent_at.duration_since(began);
        let instruments = &self.route.instruments;
        instruments.attempted(verdict, observed, took.as_secs_f64());
    }

    fn measure_accepted(&self, event: &Event, verdict: &Verdict) {
        if *verdict == Verdict::Accepted && !self.progress.head_is_behind() {
            let clock = &self.context.shared.peers.clock;
            let after = clock.seconds_since(event.created_at, self.sent_at);
            self.route.instruments.accepted_after(after);
        }
    }
}

fn panicked(observed: &Observed) -> Verdict {
    observed.failed_by(Cause::Panic);
    Verdict::retry("the adapter panicked; see the worker's log")
}
