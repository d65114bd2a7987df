//! What a handler's lane does when its session is closed or interrupted, or one of its events is cancelled, while it is held:
//! as an adapter's.

use jiff::civil::Date;
use lanekeeper_postgres::claim::ClaimedLane;
use lanekeeper_postgres::closing;
use lanekeeper_postgres::settle::{Operation, Settled};

use super::Session;
use super::answer::{SessionError, answer};
use crate::delivering::progress::{Progress, Stop};
use crate::waking::interruptions::Reach;

impl Session<'_> {
    /// What keeps this event from being handled, as far as this worker heard.
    pub(super) fn ahead(&self, lane: &ClaimedLane, seq: i64) -> Option<Reach> {
        let interruptions = &self.shared.waking.interruptions;
        interruptions.ahead(lane.session_id, seq, self.claimed_at)
    }

    /// Returns what `handle` is to return; or nothing, if the head may be handled all the same.
    pub(super) async fn give_way(
        &mut self,
        lane: &ClaimedLane,
        progress: &mut Progress,
        seq: i64,
        day: Date,
        reach: Reach,
    ) -> Result<Option<Option<Stop>>, SessionError> {
        match reach {
            Reach::Through => Ok(Some(Some(Stop::new(Operation::Release)))),
            Reach::Only if progress.head_is_dead_letter() => Ok(Some(Some(Stop::yields()))),
            Reach::Only => {
                progress.cancel(seq, day);
                let keep = Stop::new(Operation::Keep);
                let settled = self.settle(lane, progress, keep).await?;
                let is_lost = settled != Settled::Done;
                Ok(Some(is_lost.then(|| Stop::new(Operation::Release))))
            }
            Reach::Behind => {
                if progress.is_unsettled() {
                    let keep = Stop::new(Operation::Keep);
                    if self.settle(lane, progress, keep).await? != Settled::Done {
                        return Ok(Some(Some(Stop::new(Operation::Release))));
                    }
                }
                let finishing = closing::finish(&self.client, None, Some(lane.lane_id));
                let finished = answer(self.shared, finishing).await?;
                let is_passed = finished.lanes + finished.unfinished > 0;
                Ok(is_passed.then(|| Some(Stop::new(Operation::Release))))
            }
        }
    }
}
