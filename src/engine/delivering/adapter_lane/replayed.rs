//! Delivers a lane's part of a replay: see `progress::replaying`.
//!
//! ```text
//! next range ─► its events, in order ─► settled with how far it came ─► the next ─► … ─► at its end: requeued, live events
//!     ├─ the replay was paused or is ending ─► settled; the lane goes on with what it has not delivered yet
//!     └─ its rate allows nothing yet ────────► entry due then, lock released
//! ```

use lanekeeper_postgres::replayed::{self, Chunk, Next};
use lanekeeper_postgres::settle::Operation;

use super::upcoming::Upcoming;
use super::{EVENTS_PER_HOLDING, Ending, Runner, SETTLE_EVERY, UNREAD_DELAY};
use crate::claiming::request::{Batch, INLINE_BYTES};
use crate::delivering::coalesce::Step;
use crate::delivering::progress::Stop;

/// Events of a range that are read at once, where there is memory for so many of the largest inline size: a read has a fixed
/// cost.
const MOST: usize = 250;
/// Where there is none: the lane is held, and goes on.
const LEAST: usize = 20;
/// The part of the free memory that one read may take: other lanes read at the same time.
const MEMORY_PART: usize = 4;

impl Runner<'_> {
    /// Delivers the next events of the lane's replay, and settles them.
    pub(super) async fn deliver_replayed(&mut self) -> Ending {
        if self.delivered >= EVENTS_PER_HOLDING {
            return Ending::Stopped(Stop::new(Operation::Yield));
        }
        if let Err(ending) = self.may_go_on() {
            return ending;
        }
        let lane = (self.claimed.lane_id, self.claimed.session_id);
        let most = events_within(self.context.shared.delivering.budget.room());
        let reading =
            self.ask(async |client| replayed::next(client, lane, most, INLINE_BYTES).await);
        let Ok(next) = reading.await else {
            return Ending::Stopped(Stop::retry(UNREAD_DELAY, None));
        };
        match next {
            // Its progress is another one now: whatever is settled here, nothing is written.
            Next::Nothing => Ending::Stopped(Stop::yields()),
            Next::LetGo {
                replay_id,
                replayed_to,
            } => {
                self.progress.let_go_of_replay(replay_id, replayed_to);
                if let Err(ending) = self.settle_and_keep().await {
                    return ending;
                }
                // It may be resumed since: the server knows what comes next, and the next claim reads it.
                Ending::Stopped(Stop::yields())
            }
            Next::Wait(wait) => Ending::Stopped(Stop::at_reservation(wait)),
            Next::Chunk(chunk) => self.deliver_chunk(chunk).await,
        }
    }

    async fn deliver_chunk(&mut self, chunk: Chunk) -> Ending {
        let Chunk {
            replay_id,
            replayed_to,
            events,
            to_seq,
            is_last,
            has_requeued,
        } = chunk;
        self.progress.begin_replay(replay_id, replayed_to);
        let Batch {
            events,
            reservation: _reservation,
        } = Batch::new(events, &self.context.shared.delivering.budget);
        let last = events.last().map_or(replayed_to, |event| event.seq);
        let mut upcoming = Upcoming::new(events, Vec::new());
        while let Some((event, step)) = upcoming.next() {
            let ending = match step {
                Step::Deliver if self.route.batch > 1 => {
                    Box::pin(self.attempt_batch(event, &mut upcoming)).await
                }
                Step::Deliver => self.attempt(event).await,
                step => {
                    self.pass_by(step, event.seq, event.day);
                    Ending::Passed
                }
            };
            match ending {
                Ending::Passed => {}
                ending => return ending,
            }
            self.delivered += 1;
            let due = self.sent_at.saturating_duration_since(self.settled_at) > SETTLE_EVERY;
            if (due || self.progress.must_settle())
                && let Err(ending) = self.settle_and_keep().await
            {
                return ending;
            }
        }
        // A batch that was taken only in part left the others: they are read again.
        let is_whole = self.progress.replayed_to() >= Some(last);
        if is_whole {
            self.progress.replay_to(to_seq);
        }
        self.settle_replayed(is_whole && is_last, has_requeued)
            .await
    }

    async fn settle_replayed(&mut self, is_over: bool, has_requeued: bool) -> Ending {
        if let Err(ending) = self.settle_and_keep().await {
            return ending;
        }
        self.progress.end_replay(is_over, has_requeued);
        Ending::Passed
    }
}

/// How many events a lane reads at once, if so many bytes may still be fetched (I11).
fn events_within(room: usize) -> i32 {
    let inline = usize::try_from(INLINE_BYTES).unwrap_or(usize::MAX);
    let fitting = room / MEMORY_PART / inline;
    i32::try_from(fitting.clamp(LEAST, MOST)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_takes_a_part_of_the_memory_that_is_left() {
        let rooms = [0, 1 << 20, 4 << 20, usize::MAX];
        assert_eq!(rooms.map(events_within), [20, 64, 250, 250]);
    }
}
