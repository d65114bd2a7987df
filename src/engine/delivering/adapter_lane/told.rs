//! What a lane tells of its messages: figures for `status`, and notes for the lifecycle feed where its subscription asks
//! for them. Both go out after the settlement is committed.

use lanekeeper_core::adapter::Verdict;
use lanekeeper_core::subscription::{Acknowledge, MessageStage};
use lanekeeper_postgres::settle::{Operation, Outcome};
use uuid::Uuid;

use super::Runner;
use crate::delivering::progress::Stop;
use crate::maintenance::lifecycle::is_feed;
use crate::maintenance::notes::Note;

/// Events that ended in a settlement otherwise than delivered.
pub(super) struct Ended {
    pub outcome: &'static str,
    stage: Option<MessageStage>,
    pub events: u64,
}

impl Ended {
    pub(super) fn of(outcome: &Outcome) -> Self {
        Self {
            outcome: outcome.kind.as_str(),
            stage: outcome.kind.stage(),
            events: outcome.events(),
        }
    }
}

/// What a lane tells with its next settlement.
#[derive(Default)]
pub(super) struct Told {
    sent: u64,
    retried: u64,
    notes: Vec<Note>,
}

impl Runner<'_> {
    /// The destination answered an attempt on this event.
    pub(super) fn tell_attempt(&mut self, seq: i64, message_id: Uuid, verdict: &Verdict) {
        match verdict {
            Verdict::Accepted | Verdict::Sent => {
                self.told.sent += 1;
                self.note(MessageStage::Sent, seq, Some(message_id), None);
                let acks = self.route.subscription.ack != Acknowledge::None;
                if acks && *verdict == Verdict::Accepted && !self.is_ahead {
                    self.note(MessageStage::Acked, seq, Some(message_id), None);
                }
            }
            Verdict::Retry { error, .. } if !self.is_ahead => {
                let most = self.route.subscription.max_attempts;
                // Of the last attempt the outcome tells.
                if most == 0 || self.progress.attempt() < most {
                    self.told.retried += 1;
                    self.note(MessageStage::Retried, seq, Some(message_id), Some(error));
                }
            }
            _ => {}
        }
    }

    /// The head was not acknowledged in time, and is sent again.
    pub(super) fn tell_late(&mut self, seq: i64, message_id: Uuid) {
        self.told.retried += 1;
        let error = Some("not acknowledged in time");
        self.note(MessageStage::Retried, seq, Some(message_id), error);
    }

    /// The cursor passes this event, because it is acknowledged.
    pub(super) fn tell_acked(&mut self, seq: i64, message_id: Uuid) {
        self.note(MessageStage::Acked, seq, Some(message_id), None);
    }

    fn note(&mut self, stage: MessageStage, seq: i64, id: Option<Uuid>, error: Option<&str>) {
        if !self.route.subscription.lifecycle.is_empty() {
            self.push(stage, (seq, None), id, error.map(str::to_owned));
        }
    }

    fn push(
        &mut self,
        stage: MessageStage,
        (seq, to_seq): (i64, Option<i64>),
        message_id: Option<Uuid>,
        error: Option<String>,
    ) {
        let subscription = &self.route.subscription;
        let is_asked = subscription.lifecycle.contains(&stage) && !is_feed(self.route);
        if is_asked && self.context.shared.maintenance.has_feed() {
            self.told.notes.push(Note {
                stage,
                stream: subscription.stream.clone(),
                session: self.claimed.session.clone(),
                subscription: subscription.name.clone(),
                seq,
                to_seq,
                message_id,
                attempt: to_seq.is_none().then(|| self.progress.attempt()),
                error,
            });
        }
    }

    /// Notes what a settlement is about to record.
    pub(super) fn tell_outcomes(&mut self, stop: &Stop) {
        if self.route.subscription.lifecycle.is_empty() {
            return;
        }
        for Outcome { seq, kind } in self.progress.outcomes().to_vec() {
            let Some(stage) = kind.stage() else {
                continue;
            };
            let (to_seq, error) = kind.range_and_error();
            // An exhausted event is settled before the next one is tried.
            let id = to_seq.is_none().then(|| self.progress.head());
            self.push(stage, (seq, to_seq), id, error.map(str::to_owned));
        }
        if let (Operation::Park, Some(error)) = (stop.operation, &stop.error) {
            let (seq, id) = (self.progress.next_seq(), self.progress.head());
            self.push(
                MessageStage::Failed,
                (seq, None),
                Some(id),
                Some(error.clone()),
            );
        }
    }

    /// The settlement is committed.
    pub(super) fn tell(&mut self, accepted: u64, outcomes: &[Ended]) {
        let counts = &self.route.counts;
        let Told {
            sent,
            retried,
            notes,
        } = std::mem::take(&mut self.told);
        counts.add(MessageStage::Sent, sent);
        counts.add(MessageStage::Retried, retried);
        if self.route.subscription.ack != Acknowledge::None {
            counts.add(MessageStage::Acked, accepted);
        }
        for ended in outcomes {
            if let Some(stage) = ended.stage {
                counts.add(stage, ended.events);
            }
        }
        if !notes.is_empty() {
            let feed = &self.context.shared.maintenance.message_feed;
            feed.tell(notes.into_iter());
        }
    }
}
