//! Replays: a range of the log behind the cursor that a lane delivers again.
//!
//! A third source of heads, beside the log and requeued dead letters. The rules of those hold, with a range in place of a
//! row. `replay_lane` says up to where the lane is replayed; `requeued_after` is -1, so that the range comes before
//! everything else; its events are delivered as heads, in their order, in batches where the destination takes them, and
//! not merged. **The cursor stays where it is**: it passed these events when they were settled, so nothing that
//! is judged by cursors (I4, I13, retention, `max_pending`) changes, and a replay that ends early leaves no hole. How far
//! the range is delivered is recorded with the settlement, under its compare-and-set: after a crash, the next holder goes
//! on with the first event that is not on record (I5). What is exhausted becomes a dead letter, or is dropped where the
//! subscription's policy is that. It parks no lane: the head goes away when its replay is paused. Such an event
//! waits for no acknowledgement, and is never too old.

use lanekeeper_postgres::settle::{Outcome, OutcomeKind};

use super::Progress;

/// How far a lane is replayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replaying {
    replay_id: i64,
    /// Up to this seq.
    replayed_to: i64,
    /// Since the last settlement.
    delivered: i32,
    exhausted: i32,
    /// There is something to record.
    moved: bool,
}

impl Replaying {
    /// An event was accepted, or exhausted.
    pub(super) fn pass(&mut self, seq: i64) {
        self.replayed_to = seq;
        self.delivered += 1;
        self.moved = true;
    }

    /// The event that was passed last was not delivered.
    pub(super) fn was_exhausted(&mut self) {
        self.delivered -= 1;
        self.exhausted += 1;
    }

    /// What the next settlement records, if there is anything new.
    pub(super) fn outcome(&mut self) -> Option<Outcome> {
        std::mem::take(&mut self.moved).then(|| Outcome {
            seq: self.replayed_to,
            kind: OutcomeKind::Replayed {
                replay_id: self.replay_id,
                delivered: std::mem::take(&mut self.delivered),
                exhausted: std::mem::take(&mut self.exhausted),
            },
        })
    }
}

impl Progress {
    /// Whether the lane is replayed.
    pub fn is_replayed(&self) -> bool {
        self.requeued_after.is_some_and(|after| after < 0)
    }

    /// Makes events of this replay the heads, from the first one behind this seq on.
    pub fn begin_replay(&mut self, replay_id: i64, replayed_to: i64) {
        self.replaying = Some(Replaying {
            replay_id,
            replayed_to,
            delivered: 0,
            exhausted: 0,
            moved: false,
        });
    }

    /// Up to this seq nothing is left to replay; the next settlement says so.
    pub fn replay_to(&mut self, seq: i64) {
        if let Some(replaying) = &mut self.replaying {
            replaying.replayed_to = replaying.replayed_to.max(seq);
            replaying.moved = true;
            self.changed = true;
        }
    }

    /// The replay was paused or is ending: the next settlement says how far it came, and the head that it displaced begins
    /// anew.
    pub fn let_go_of_replay(&mut self, replay_id: i64, replayed_to: i64) {
        self.begin_replay(replay_id, replayed_to);
        self.replay_to(replayed_to);
        self.next_head();
    }

    /// Events of the replay are no longer the heads. `is_over`: it is settled that the lane is at its end; then requeued
    /// dead letters come, if the lane has some.
    pub fn end_replay(&mut self, is_over: bool, has_requeued: bool) {
        self.replaying = None;
        if is_over {
            self.requeued_after = has_requeued.then_some(0);
        }
    }

    /// How far the replay came whose events are the heads.
    pub fn replayed_to(&self) -> Option<i64> {
        self.replaying.map(|replaying| replaying.replayed_to)
    }

    /// The replay that the head is an event of.
    pub fn replay_id(&self) -> Option<i64> {
        self.replaying.map(|replaying| replaying.replay_id)
    }

    /// Whether the head is an event of a replay.
    pub fn head_is_replayed(&self) -> bool {
        self.replaying.is_some()
    }
}
