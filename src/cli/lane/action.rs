//! Applies one action to several lanes, each in a transaction of its own. So a lane whose delivery does not end delays
//! no other lane.

use std::process::ExitCode;

use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::inspect::LaneStatus;
use lanekeeper_postgres::operate::{self, LaneAction};
use serde::Serialize;
use tokio_postgres::Client;

use crate::Failure;
use crate::output::{self, Output};

/// What is done, and why.
pub(crate) struct Change {
    pub action: LaneAction,
    pub reason: Option<String>,
    /// Only where this seq is still the lane's head. A skip without one is of the head that was
    /// just read.
    pub head: Option<i64>,
}

impl Change {
    pub fn new(action: LaneAction, reason: Option<String>) -> Self {
        Self {
            action,
            reason,
            head: None,
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    lane_id: i64,
    stream: &'a str,
    session: &'a str,
    subscription: &'a str,
    action: &'static str,
    /// The lane's new state.
    state: &'a str,
}

/// Acts on the lanes and prints what became of each. The first failure is reported when all were
/// tried.
pub(crate) async fn change(
    client: &Client,
    lanes: &[LaneStatus],
    change: &Change,
    form: Output,
) -> Result<ExitCode, Failure> {
    let mut failed: Option<StoreError> = None;
    let mut changed = 0;
    for lane in lanes {
        let reason = change.reason.as_deref();
        let seen = lane.head_seq.filter(|_| change.action == LaneAction::Skip);
        let head = change.head.or(seen);
        match operate::change_lane(client, lane.lane_id, change.action, reason, head).await {
            Ok(state) => {
                changed += 1;
                print(lane, change.action, &state, form)?;
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let Some(error) = failed else {
        return Ok(ExitCode::SUCCESS);
    };
    if lanes.len() > 1 {
        eprintln!("{changed} of {} lanes were changed", lanes.len());
    }
    Err(error.into())
}

fn print(lane: &LaneStatus, action: LaneAction, state: &str, form: Output) -> Result<(), Failure> {
    match form {
        Output::Json => output::json_line(&Line {
            lane_id: lane.lane_id,
            stream: &lane.stream,
            session: &lane.session,
            subscription: &lane.subscription,
            action: action.as_str(),
            state,
        }),
        Output::Text => output::line(format!(
            "lane {} ({}/{} → {}): {} done, now {state}",
            lane.lane_id,
            lane.stream,
            output::plain(&lane.session),
            lane.subscription,
            action.as_str(),
        )),
    }
}
