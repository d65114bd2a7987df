//! One attempt on the head of a lane: from its payload to its verdict.

use std::sync::Arc;

use jiff::civil::Date;
use lanekeeper_core::adapter::Verdict;
#[cfg(feature = "crash-points")]
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::settle::Operation;
use tokio::sync::oneshot;

use super::read::Unread;
use super::{Ending, Runner, UNREAD_DELAY};
use crate::claiming::request::Request;
use crate::delivering::progress::{Judgement, Stop};
use crate::shared::random;

impl Runner<'_> {
    /// Tries the head once.
    pub(super) async fn attempt(&mut self, fetched: FetchedEvent) -> Ending {
        if let Err(ending) = self.may_go_on() {
            return ending;
        }
        let (seq, day, message_id) = (fetched.seq, fetched.day, fetched.message_id);
        self.progress.begin_head(message_id);
        if let Some(judgement) = self.progress.exhaust_if_crashed(
            self.context.shared.settings.max_crashes,
            seq,
            day,
            &self.route.subscription,
        ) {
            return self.ending(judgement).await;
        }
        if let Err(ending) = self.or_leaves_out(&fetched).await {
            return ending;
        }
        let _alone = if self.progress.is_suspected_poison() {
            // One suspected poison event at a time in this process, under a claim of its own: a further crash is
            // charged to it and not to the other lanes of the worker.
            let permit = Arc::clone(&self.context.shared.delivering.suspected_poison)
                .acquire_owned()
                .await;
            if !self.record_suspected_poison().await {
                return Ending::Lost;
            }
            permit.ok()
        } else {
            None
        };
        // What few deliveries need is boxed, here and below: every lane reserves memory for this whole future.
        let _reservation = if fetched.payload.is_none() {
            match Box::pin(self.reserve_payload(&fetched)).await {
                Ok(reservation) => Some(reservation),
                Err(ending) => return ending,
            }
        } else {
            None
        };
        let event = match self.event(fetched).await {
            Ok(event) => event,
            Err(unread) => return Box::pin(self.unread(seq, day, unread)).await,
        };
        let buckets = self.buckets(&event);
        let probe = match self.pass_limits(&buckets).await {
            Ok(probe) => probe,
            Err(ending) => return ending,
        };
        #[cfg(feature = "crash-points")]
        if Mutation::CursorBeforeDelivery.is_on() {
            self.progress.pass(seq, day);
            if let Err(ending) = self.settle_and_keep().await {
                return ending;
            }
        }
        #[cfg(feature = "crash-points")]
        let _connection = if Mutation::PooledConnectionHeld.is_on() {
            self.context.shared.pool.get().await.ok()
        } else {
            None
        };
        let verdict = match self.send(&event, day).await {
            Ok(verdict) => verdict,
            Err(ending) => return ending,
        };
        self.report_verdict(&verdict, &buckets, probe).await;
        let ack = self.route.subscription.ack;
        let verdict = ack.of_answer(verdict, self.adapter.acknowledges());
        self.tell_attempt(seq, message_id, &verdict);
        if self.is_ahead {
            return Box::pin(self.sent_ahead(seq, message_id, verdict)).await;
        }
        // What a replay delivers is counted by its settlement.
        let is_new = !self.progress.head_is_replayed();
        self.accepted += u64::from(verdict == Verdict::Accepted && is_new);
        self.judge(seq, day, verdict).await
    }

    pub(super) async fn ending(&self, judgement: Judgement) -> Ending {
        match judgement {
            Judgement::Passed => Ending::Passed,
            Judgement::Sent => Ending::Sent,
            Judgement::Stopped(stop) => Ending::Stopped(stop),
            Judgement::Gone { reason, stop } => {
                Box::pin(self.context.pause(&self.route.subscription, &reason)).await;
                Ending::Stopped(stop)
            }
        }
    }

    async fn record_suspected_poison(&self) -> bool {
        let (reply, recorded) = oneshot::channel();
        let request = Request::SuspectedPoison {
            lane_id: self.claimed.lane_id,
            version: self.progress.version,
            crashes: self.progress.crashes,
            reply,
        };
        self.context.requests.send(request).is_ok() && recorded.await.unwrap_or(false)
    }

    /// How the lane goes on with a payload that could not be read.
    pub(super) async fn unread(&mut self, seq: i64, day: Date, unread: Unread) -> Ending {
        match unread {
            // Not an attempt: the destination never saw the event.
            Unread::Later => Ending::Stopped(Stop::retry(UNREAD_DELAY, None)),
            // It is judged when it is the head.
            Unread::Never(_) if self.is_ahead => Ending::Passed,
            Unread::Never(error) => {
                let subscription = &self.route.subscription;
                let judgement = self.progress.exhaust(seq, day, error, subscription);
                self.ending(judgement).await
            }
        }
    }

    /// Applies a verdict on the head.
    pub(super) async fn judge(&mut self, seq: i64, day: Date, verdict: Verdict) -> Ending {
        let judgement = {
            let _logged = self.logged_with.take().map(opentelemetry::Context::attach);
            let subscription = &self.route.subscription;
            self.progress.judge(seq, day, verdict, subscription, random)
        };
        self.ending(judgement).await
    }

    /// Whether the lane may begin another delivery.
    pub(super) fn may_go_on(&self) -> Result<(), Ending> {
        if self.context.is_stopping() {
            return Err(Ending::Stopped(Stop::new(Operation::Release)));
        }
        if self.route.is_replaced() {
            // The next holder uses the new version.
            return Err(Ending::Stopped(Stop::new(Operation::Yield)));
        }
        Ok(())
    }
}
