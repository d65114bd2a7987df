//! What a lane does when its session is closed or interrupted, or one of its events is cancelled, while it is held.

use jiff::civil::Date;
use lanekeeper_postgres::closing;
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::settle::Operation;

use super::{Ending, Runner, UNREAD_DELAY};
use crate::delivering::progress::Stop;
use crate::waking::interruptions::Reach;

impl Runner<'_> {
    /// What keeps this event from being delivered, as far as this worker heard.
    pub(super) fn ahead(&self, seq: i64) -> Option<Reach> {
        let interruptions = &self.context.shared.waking.interruptions;
        interruptions.ahead(self.claimed.session_id, seq, self.claimed_at)
    }

    /// Whether this event was cancelled: its mark says so, or this worker heard of it after the fetch.
    pub(super) fn is_cancelled(&self, event: &FetchedEvent) -> bool {
        event.is_cancelled() || self.ahead(event.seq) == Some(Reach::Only)
    }

    /// Returns how the delivery of the head ends; or nothing, if it may go on all the same.
    pub(super) async fn give_way(
        &mut self,
        seq: i64,
        day: Date,
        reach: Reach,
    ) -> Result<(), Ending> {
        match reach {
            // The lane's progress is another one now: whatever is settled here, nothing is written.
            Reach::Through => Err(Ending::Stopped(Stop::new(Operation::Release))),
            Reach::Behind => Box::pin(self.let_go()).await,
            // The dead letter was exhausted before its event was cancelled for other lanes.
            Reach::Only if self.progress.head_is_dead_letter() => {
                Err(Ending::Stopped(Stop::yields()))
            }
            // Its turn comes when the earlier ones are acknowledged.
            Reach::Only if self.is_ahead => Err(Ending::Passed),
            Reach::Only => {
                self.progress.cancel(seq, day);
                Err(Ending::Passed)
            }
        }
    }

    /// A barrier. What was delivered is settled; then what waits before the barrier is passed under this lane's lock. The
    /// barrier may concern other lanes only, or be done: then this lane goes on.
    async fn let_go(&mut self) -> Result<(), Ending> {
        if self.progress.is_unsettled() {
            self.settle_and_keep().await?;
        }
        let lane_id = self.claimed.lane_id;
        let finishing = self.ask(async |client| closing::finish(client, None, Some(lane_id)).await);
        match finishing.await {
            Ok(finished) if finished.lanes + finished.unfinished > 0 => {
                Err(Ending::Stopped(Stop::new(Operation::Release)))
            }
            Ok(_) => Ok(()),
            Err(_) => Err(Ending::Stopped(Stop::retry(UNREAD_DELAY, None))),
        }
    }
}
