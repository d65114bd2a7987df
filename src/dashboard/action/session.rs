//! Pause, resume, close and reopen a session.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::operate::LaneAction;
use lanekeeper_postgres::{StoreError, closing, inspect, operate_many};
use tokio_postgres::Client;

use super::{Order, refused};
use crate::notice::Notice;
use crate::part::format::plural;
use crate::trouble::Trouble;

/// `POST /action/session`
pub(crate) async fn carry_out(order: Order) -> Result<Response, Trouble> {
    let (stream, name) = (order.form.required("stream")?, order.form.required("name")?);
    let action = order.form.required("action")?;
    order.visitor.require_operate(stream)?;
    let reason = order.reason()?;
    let lease = Lease::take(&order.dashboard.pool).await?;
    let client = lease.client();
    let session_id = inspect::find_session(client, stream, name).await?;
    let done = match action {
        "pause" => change(client, session_id, LaneAction::Park, &reason).await,
        "resume" => change(client, session_id, LaneAction::Unpark, &reason).await,
        "close" => close(client, stream, name, &reason).await,
        "drain" => closing::close_session(client, stream, name, Some(&reason), true)
            .await
            .map(|_| {
                Notice::done("The session takes no more events; what is there is delivered first.")
            }),
        "reopen" => closing::reopen_session(client, stream, name)
            .await
            .map(|reopened| match reopened {
                true => Notice::done("The session takes events again."),
                false => Notice::refused("The session was not closed: nothing was changed."),
            }),
        _ => return Err(Trouble::invalid("There is no such action on a session.")),
    };
    let notice = match done {
        Ok(notice) => notice,
        Err(error) => refused(error)?,
    };
    lease.done();
    Ok(order.tell(&notice))
}

async fn close(
    client: &Client,
    stream: &str,
    name: &str,
    reason: &str,
) -> Result<Notice, StoreError> {
    let expired = closing::close_session(client, stream, name, Some(reason), false).await?;
    Ok(Notice::done(format!(
        "The session is closed; {} expired.",
        plural(expired, "event", "events")
    )))
}

/// Every lane that is not so already.
async fn change(
    client: &Client,
    session_id: i64,
    action: LaneAction,
    reason: &str,
) -> Result<Notice, StoreError> {
    let ids = inspect::lanes_of_session(client, session_id, None).await?;
    let mut lanes = inspect::lanes(client, &ids).await?;
    // Parking again would write this reason over the one that is on the lane.
    lanes.retain(|lane| (action == LaneAction::Park) != lane.parked_at.is_some());
    let many = operate_many::change_lanes(client, &lanes, action, reason).await;
    let changed = many.done.len();
    let what = match action {
        LaneAction::Park => "parked",
        _ => "unparked",
    };
    let all = lanes.len() as i64;
    match many.failed {
        Some(error) if changed == 0 => Err(error),
        _ if !many.left.is_empty() => Ok(Notice::refused(format!(
            "{changed} of {all} lanes were {what}; the others are being delivered and did not stop within 5 seconds. Try again."
        ))),
        _ if all == 0 => Ok(Notice::refused(format!(
            "Every lane was {what} already: nothing was changed."
        ))),
        _ => Ok(Notice::done(format!(
            "{} {what}.",
            match all {
                1 => "1 lane was".to_owned(),
                _ => format!("{all} lanes were"),
            }
        ))),
    }
}
