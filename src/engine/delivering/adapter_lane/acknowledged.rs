//! Lanes whose subscription requires acknowledgements (C2, C12).
//!
//! A successful send is not the end: the cursor passes an event when it is acknowledged. Up to `ack_window` events are sent
//! ahead of the cursor. Then the lane is released: it holds no lock, no connection and no task while it waits, only a ready
//! entry that is due when the first acknowledgement is late. An acknowledgement inserts an entry that is due at once.
//!
//! ```text
//! claimed ─► acknowledged events are passed ─► the first without one
//!               │ its time is over: an attempt failed, it and those behind it are sent again, or it is exhausted
//!               └► what the window has room for is sent ─► await    entry due at the time-out, lock released
//! ```
//!
//! Every message is entered in `sent` before it is sent, so that an acknowledgement finds it however soon it comes. A
//! message that is acknowledged ahead of an earlier one is remembered there, and is not sent again with it. A failure of an
//! event that is not the head counts for nothing: it is sent again when it is the head, and what is behind it after it.

use std::time::Duration;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::sent;
use lanekeeper_postgres::settle::Operation;
use rustc_hash::FxHashSet;
use tokio::time::timeout;
use uuid::Uuid;

use super::read::READ_WITHIN;
use super::upcoming::Upcoming;
use super::{Ending, Runner, UNREAD_DELAY};
use crate::delivering::progress::{Judgement, Stop};

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Runner<'_> {
    /// A lane that is about to be given back waits for its acknowledgements instead, if there are any.
    pub(super) fn or_awaits(&self, stop: Stop) -> Stop {
        let gives_back = matches!(
            stop.operation,
            Operation::Finish | Operation::Yield | Operation::Release
        );
        if gives_back && self.progress.awaits_acks() {
            Stop::awaits(self.wait_left())
        } else {
            stop
        }
    }

    /// Until the first acknowledgement is late. It begins anew where something was sent or acknowledged.
    fn wait_left(&self) -> Duration {
        match self.claimed.awaiting {
            Some(awaiting) if !self.progress.is_unsettled() => {
                awaiting.left.saturating_sub(self.claimed_at.elapsed())
            }
            _ => self.route.subscription.ack_timeout,
        }
    }

    /// Passes what is acknowledged, and sends what the window has room for.
    pub(super) async fn deliver_acknowledged(&mut self, events: Vec<FetchedEvent>) -> Ending {
        let Ok(acked) = self.acknowledged().await else {
            return Ending::Stopped(Stop::retry(UNREAD_DELAY, None));
        };
        let mut is_late = self
            .claimed
            .awaiting
            .is_some_and(|awaiting| awaiting.left <= self.claimed_at.elapsed());
        let nothing_left = events.is_empty();
        // Events that wait for their acknowledgements, from the head on.
        let mut waiting = 0;
        let mut upcoming = Upcoming::new(events, Vec::new());
        while let Some((event, _)) = upcoming.next() {
            if waiting == 0 && self.progress.is_requeued_before(event.seq) {
                match Box::pin(self.deliver_requeued(event.seq)).await {
                    Ending::Passed => {}
                    ending => return ending,
                }
            }
            let (seq, day, message_id) = (event.seq, event.day, event.message_id);
            if seq < self.progress.next_seq() {
                // It was left out with an earlier one.
                continue;
            }
            let is_acked = acked.contains(&seq);
            if !is_acked && self.is_cancelled(&event) {
                if waiting == 0 {
                    self.progress.cancel(seq, day);
                    self.delivered += 1;
                    if let Err(ending) = self.settle_and_keep().await {
                        return ending;
                    }
                }
                continue;
            }
            if !event.matched || is_acked {
                // Behind an event that waits, its turn comes later.
                if waiting == 0 {
                    self.filtered += u64::from(!event.matched);
                    self.accepted += u64::from(event.matched);
                    if event.matched {
                        self.tell_acked(seq, message_id);
                    }
                    self.progress.pass(seq, day);
                    self.delivered += 1;
                }
                continue;
            }
            if self.progress.is_sent(seq) {
                if !is_late {
                    waiting += 1;
                    continue;
                }
                // Of the head only: with it everything behind it is sent again.
                is_late = false;
                let subscription = &self.route.subscription;
                match self.progress.time_out(seq, day, subscription) {
                    None => self.tell_late(seq, message_id),
                    Some(Judgement::Passed) => {
                        self.delivered += 1;
                        if let Err(ending) = self.settle_and_keep().await {
                            return ending;
                        }
                        continue;
                    }
                    Some(judgement) => return self.ending(judgement).await,
                }
            }
            let is_suspected = waiting > 0 && self.progress.crashes > 0;
            if waiting >= self.route.subscription.ack_window || is_suspected {
                break;
            }
            if self.sends_alone() {
                match self.send_once(event, waiting > 0).await {
                    Ending::Sent => waiting += 1,
                    // It failed. What is behind it is sent behind it.
                    Ending::Passed if waiting > 0 && !Mutation::SentPastAFailure.is_on() => break,
                    Ending::Passed => self.delivered += 1,
                    ending => return ending,
                }
            } else {
                let sending = self.send_ahead_in_batch(event, &mut upcoming, &acked, waiting);
                match Box::pin(sending).await {
                    Ok(now) => waiting = now,
                    Err(ending) => return ending,
                }
            }
            if self.progress.must_settle()
                && let Err(ending) = self.settle_and_keep().await
            {
                return ending;
            }
        }
        let behind = if nothing_left {
            i64::MAX
        } else {
            self.progress.next_seq()
        };
        if waiting == 0 && self.progress.is_requeued_before(behind) {
            return Box::pin(self.deliver_requeued(behind)).await;
        }
        Ending::Passed
    }

    /// Enters the message and sends it.
    async fn send_once(&mut self, event: FetchedEvent, is_ahead: bool) -> Ending {
        let (seq, day, message_id) = (event.seq, event.day, event.message_id);
        let lane_id = self.claimed.lane_id;
        let entered = self.ask(async |client| sent::enter(client, lane_id, seq, message_id).await);
        match entered.await {
            Err(_) => return Ending::Stopped(Stop::retry(UNREAD_DELAY, None)),
            // Acknowledged since it was read.
            Ok(true) if is_ahead => {
                self.progress.send(seq);
                return Ending::Sent;
            }
            Ok(true) => {
                self.accepted += 1;
                self.tell_acked(seq, message_id);
                self.progress.pass(seq, day);
                return Ending::Passed;
            }
            Ok(false) => {}
        }
        self.is_ahead = is_ahead;
        let ending = self.attempt(event).await;
        self.is_ahead = false;
        ending
    }

    /// What the answer to an event means that is not the head.
    pub(super) async fn sent_ahead(
        &mut self,
        seq: i64,
        message_id: Uuid,
        verdict: Verdict,
    ) -> Ending {
        let lane_id = self.claimed.lane_id;
        match verdict {
            Verdict::Sent => {}
            Verdict::Accepted => {
                let remembered =
                    self.ask(async |client| sent::remember(client, lane_id, message_id).await);
                // Otherwise it waits for its acknowledgement like the others.
                let _ = remembered.await;
            }
            // Its turn comes when the earlier ones are acknowledged.
            _ => return Ending::Passed,
        }
        self.progress.send(seq);
        Ending::Sent
    }

    /// The seqs behind the cursor that are acknowledged.
    async fn acknowledged(&self) -> Result<FxHashSet<i64>, Failure> {
        let (lane_id, cursor) = (self.claimed.lane_id, self.progress.next_seq() - 1);
        let sent = self.ask(async |client| sent::of_lane(client, lane_id, cursor).await);
        let sent = sent.await?.into_iter();
        Ok(sent
            .filter_map(|(seq, acked)| acked.then_some(seq))
            .collect())
    }

    /// Asks Postgres over the pool, with a time-out: a connection that hangs must not hold the lane (I13).
    pub(super) async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(
            &tokio_postgres::Client,
        ) -> Result<T, lanekeeper_postgres::StoreError>,
    ) -> Result<T, Failure> {
        let asking = async {
            let client = self.context.shared.pool.get().await?;
            Ok::<_, Failure>(question(&client).await?)
        };
        let answered = timeout(READ_WITHIN, asking).await;
        answered
            .unwrap_or_else(|silent| Err(silent.into()))
            .inspect_err(|error| {
                tracing::warn!(
                    lane_id = self.claimed.lane_id,
                    error = &**error,
                    "what a lane needs to know before it sends could not be read or written; the lane tries again"
                );
            })
    }
}
