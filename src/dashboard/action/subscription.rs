//! Pause and resume a subscription.

use axum::response::Response;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::operate;

use super::{Order, refused};
use crate::notice::Notice;
use crate::trouble::Trouble;

/// `POST /action/subscription`
pub(crate) async fn carry_out(order: Order) -> Result<Response, Trouble> {
    let name = order.form.required("name")?;
    let action = order.form.required("action")?;
    let reason = order.reason()?;
    let lease = Lease::take(&order.dashboard.pool).await?;
    let client = lease.client();
    let known = order.visitor.subscriptions(client).await?;
    let found = known.iter().find(|it| *it.name == *name);
    let found = found.ok_or_else(|| {
        Trouble::not_found(format!(
            "There is no subscription {name:?}, or your token is not for its stream."
        ))
    })?;
    order.visitor.require_operate(&found.stream)?;
    let (changed, state) = match action {
        "pause" => (
            operate::pause_subscription(client, name, &reason).await,
            "paused",
        ),
        "resume" => (operate::resume_subscription(client, name).await, "running"),
        _ => {
            return Err(Trouble::invalid(
                "There is no such action on a subscription.",
            ));
        }
    };
    let notice = match changed {
        Ok(true) => Notice::done(format!("{name} is {state}.")),
        Ok(false) => Notice::refused(format!(
            "{name} was {state} already: somebody else did it. Nothing was changed."
        )),
        Err(error) => refused(error)?,
    };
    lease.done();
    Ok(order.tell(&notice))
}
