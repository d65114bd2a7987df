//! Retry, skip, park and unpark.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::inspect;
use lanekeeper_postgres::operate::{self, LaneAction};

use super::{Order, refused};
use crate::notice::Notice;
use crate::trouble::Trouble;

/// `POST /action/lane`
pub(crate) async fn carry_out(order: Order) -> Result<Response, Trouble> {
    let lane_id = order.form.required_number("lane")?;
    let head = order.form.number("head")?;
    let action = match order.form.required("action")? {
        "retry" => LaneAction::Retry,
        "skip" => LaneAction::Skip,
        "park" => LaneAction::Park,
        "unpark" => LaneAction::Unpark,
        _ => return Err(Trouble::invalid("There is no such action on a lane.")),
    };
    if action == LaneAction::Skip && head.is_none() {
        return Err(Trouble::invalid("A skip names the head that was seen."));
    }
    let reason = order.reason()?;
    let lease = Lease::take(&order.dashboard.pool).await?;
    let client = lease.client();
    let lane = inspect::lanes(client, &[lane_id]).await?.pop();
    let lane = lane.filter(|lane| order.visitor.reaches(&lane.stream));
    let lane = lane.ok_or_else(|| Trouble::not_found(format!("There is no lane {lane_id}.")))?;
    order.visitor.require_operate(&lane.stream)?;
    let changed = operate::change_lane(client, lane_id, action, Some(&reason), head).await;
    let notice = match changed {
        Ok(_) => Notice::done(match (action, head) {
            (LaneAction::Skip, Some(seq)) => {
                format!(
                    "Seq {seq} was skipped; what is behind it goes on to {}.",
                    lane.subscription
                )
            }
            (LaneAction::Park, _) => {
                format!(
                    "The lane to {} is parked until somebody unparks it.",
                    lane.subscription
                )
            }
            (LaneAction::Unpark, _) => format!("The lane to {} goes on.", lane.subscription),
            _ => format!("The head is tried at once, to {}.", lane.subscription),
        }),
        Err(error) => refused(error)?,
    };
    lease.done();
    Ok(order.tell(&notice))
}
