//! A handler's part of a replay, as `adapter_lane::replayed` has it: each event in a transaction of its own (A9).

use lanekeeper_postgres::claim::ClaimedLane;
use lanekeeper_postgres::replayed::{self, Chunk, Next};
use lanekeeper_postgres::settle::{Operation, Settled};

use super::answer::{SessionError, answer};
use super::{BATCH, INLINE_BYTES, Session};
use crate::claiming::route::Route;
use crate::delivering::progress::{Progress, Stop};

impl Session<'_> {
    /// Handles the next events of the lane's replay. Returns as `handle` does.
    pub(super) async fn deliver_replayed(
        &mut self,
        lane: &ClaimedLane,
        route: &Route,
        progress: &mut Progress,
    ) -> Result<Option<Stop>, SessionError> {
        let most = i32::try_from(BATCH).unwrap_or(i32::MAX);
        let place = (lane.lane_id, lane.session_id);
        let reading = replayed::next(&self.client, place, most, INLINE_BYTES);
        let Chunk {
            replay_id,
            replayed_to,
            events,
            to_seq,
            is_last,
            has_requeued,
        } = match answer(self.shared, reading).await? {
            // Its progress is another one now: whatever is settled here, nothing is written.
            Next::Nothing => return Ok(Some(Stop::yields())),
            Next::LetGo {
                replay_id,
                replayed_to,
            } => {
                progress.let_go_of_replay(replay_id, replayed_to);
                let stop = self.settle_replayed(lane, progress, (false, false)).await?;
                // It may be resumed since: the server knows what comes next, and the next claim reads it.
                return Ok(stop.or_else(|| Some(Stop::yields())));
            }
            Next::Wait(wait) => return Ok(Some(Stop::at_reservation(wait))),
            Next::Chunk(chunk) => chunk,
        };
        progress.begin_replay(replay_id, replayed_to);
        for event in events {
            if self.shared.stopping.is_cancelled() {
                return Ok(Some(Stop::new(Operation::Release)));
            }
            if route.is_replaced() {
                return Ok(Some(Stop::new(Operation::Yield)));
            }
            let stop = self.handle(lane, route, progress, event).await?;
            if stop.is_some() {
                return Ok(stop);
            }
            // What was exhausted is on record before its successor is handled.
            if progress.must_settle() {
                let keep = Stop::new(Operation::Keep);
                if self.settle(lane, progress, keep).await? != Settled::Done {
                    return Ok(Some(Stop::new(Operation::Release)));
                }
            }
        }
        progress.replay_to(to_seq);
        let stop = self
            .settle_replayed(lane, progress, (is_last, has_requeued))
            .await?;
        // Other lanes go first, and then the next range.
        Ok(stop.or_else(|| (!is_last).then(Stop::yields)))
    }

    async fn settle_replayed(
        &mut self,
        lane: &ClaimedLane,
        progress: &mut Progress,
        (is_over, has_requeued): (bool, bool),
    ) -> Result<Option<Stop>, SessionError> {
        let keep = Stop::new(Operation::Keep);
        if self.settle(lane, progress, keep).await? != Settled::Done {
            return Ok(Some(Stop::new(Operation::Release)));
        }
        progress.end_replay(is_over, has_requeued);
        Ok(None)
    }
}
