//! One attempt of a handler: its transaction on the connection that holds the lane's lock, with the settlement.

use std::panic::AssertUnwindSafe;

use futures_util::{FutureExt, TryFutureExt};
use jiff::civil::Date;
use lanekeeper_core::adapter::{Delivery, Verdict};
use lanekeeper_core::observed::Cause;
use lanekeeper_fault::CrashPoint;
#[cfg(feature = "crash-points")]
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::claim::ClaimedLane;
use lanekeeper_postgres::settle::{self, Operation, Settled};
use lanekeeper_telemetry::span::in_trace;

use super::Session;
use super::answer::{SessionError, answer, ended};
use crate::claiming::route::Route;
use crate::delivering::handler::{Handler, HandlerError};
use crate::delivering::progress::{Progress, Stop};
use crate::waking::interruptions::Reach;

/// What became of a transaction.
pub(super) enum Attempt {
    /// Effect and settlement are committed; the lane's progress is this.
    Committed(Progress),
    /// It was rolled back, for this reason.
    Failed(Verdict),
    /// It was rolled back: another process settled the lane.
    Lost,
    /// It was rolled back, because the session or the event was interrupted.
    Interrupted(Reach),
}

/// Undoes, for the handler's own statements, the settings that a lane connection pins.
const BEGIN: &str = "SET LOCAL synchronous_commit = on; SET LOCAL plan_cache_mode = auto;
    SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on;
    SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on";

impl Session<'_> {
    #[allow(
        clippy::too_many_arguments,
        reason = "the head, in the parts that its caller has"
    )]
    pub(super) async fn in_lane_transaction(
        &mut self,
        handler: &dyn Handler,
        lane: &ClaimedLane,
        route: &Route,
        progress: &Progress,
        delivery: &Delivery<'_>,
        day: Date,
        logged_with: Option<&opentelemetry::Context>,
    ) -> Result<Attempt, SessionError> {
        let shared = self.shared;
        let seq = delivery.event.seq;
        let transaction = answer(shared, async {
            let transaction = self.client.transaction().await.map_err(failed())?;
            transaction.batch_execute(BEGIN).await.map_err(failed())?;
            Ok(transaction)
        })
        .await?;
        CrashPoint::Delivering.pass();
        let handling = handler.handle(&transaction, delivery);
        let handling = AssertUnwindSafe(in_trace(logged_with, handling)).catch_unwind();
        let interruptions = &shared.waking.interruptions;
        let handled = tokio::select! {
            biased;
            handled = handling => Ok(handled),
            // The handler's statement is never answered, and its effect was rolled back.
            () = ended(shared, self.backend) => return Err(SessionError::Ended),
            reach = interruptions.wait(lane.session_id, seq, self.claimed_at) => Err(reach),
        };
        let handled = match handled {
            Ok(handled) => handled,
            Err(reach) => {
                answer(shared, transaction.rollback().map_err(failed())).await?;
                return Ok(Attempt::Interrupted(reach));
            }
        };
        CrashPoint::Delivered.pass();
        let handled = handled.unwrap_or_else(|_| {
            delivery.failed_by(Cause::Panic);
            let error = "the handler panicked; see the worker's log".to_owned();
            Err(HandlerError::Retry { error, after: None })
        });
        if let Err(error) = handled {
            answer(shared, transaction.rollback().map_err(failed())).await?;
            return Ok(Attempt::Failed(error.into()));
        }
        #[cfg(feature = "crash-points")]
        if Mutation::EffectCommittedFirst.is_on() {
            let between = transaction.batch_execute("COMMIT; BEGIN");
            between.await.map_err(failed())?;
        }
        let mut passed = progress.clone();
        passed.pass(seq, day);
        let settlement = passed.settlement(Stop::new(Operation::Keep), route.subscription.history);
        let lanes = [(settlement, lane.entry)];
        CrashPoint::Judged.pass();
        let worker_id = shared.peers.worker_id();
        let settling = settle::settle(&transaction, &self.settle, worker_id, &lanes);
        CrashPoint::Settling.pass();
        match answer(shared, settling).await {
            Ok(results) if results == [Settled::Done] => {
                CrashPoint::Committing.pass();
                answer(shared, transaction.commit().map_err(failed())).await?;
                CrashPoint::Settled.pass();
                passed.settled();
                Ok(Attempt::Committed(passed))
            }
            Ok(_) => {
                answer(shared, transaction.rollback().map_err(failed())).await?;
                Ok(Attempt::Lost)
            }
            // The handler returned Ok although its transaction is aborted.
            Err(SessionError::Store(error)) => {
                let error = chain(&error);
                answer(shared, transaction.rollback().map_err(failed())).await?;
                Ok(Attempt::Failed(Verdict::Retry { error, after: None }))
            }
            Err(error) => Err(error),
        }
    }
}

fn failed() -> impl FnOnce(tokio_postgres::Error) -> StoreError {
    StoreError::on("handling an event")
}

fn chain(error: &StoreError) -> String {
    let cause = std::error::Error::source(error)
        .map(ToString::to_string)
        .unwrap_or_default();
    format!("{error}: {cause}")
}
