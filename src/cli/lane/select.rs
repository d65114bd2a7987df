//! Selects the lanes that a command acts on: one by its id, or those of a session.

use lanekeeper_postgres::inspect::{self, LaneStatus};
use tokio_postgres::Client;

use crate::Failure;

/// Flattened into the arguments of commands that act on lanes.
#[derive(Debug, clap::Args)]
pub(super) struct Selector {
    /// The lane's id, as `lane list` shows it
    #[arg(value_name = "LANE", required_unless_present = "stream", conflicts_with = "stream", value_parser = clap::value_parser!(i64).range(1..))]
    lane_id: Option<i64>,
    /// The lanes of a session of this stream
    #[arg(long, value_name = "STREAM", requires = "session")]
    stream: Option<String>,
    /// The session
    #[arg(long, value_name = "SESSION", requires = "stream")]
    session: Option<String>,
    /// Only the session's lane of this subscription
    #[arg(long, value_name = "NAME", requires = "stream")]
    subscription: Option<String>,
}

impl Selector {
    /// The lanes; at least one, else a failure that says what there is not.
    pub(super) async fn find(&self, client: &mut Client) -> Result<Vec<LaneStatus>, Failure> {
        let reading = inspect::begin(client).await?;
        let ids = match (self.lane_id, &self.stream, &self.session) {
            (Some(lane_id), ..) => vec![lane_id],
            (None, Some(stream), Some(session)) => {
                let session_id = inspect::find_session(&reading, stream, session).await?;
                let subscription_id = match &self.subscription {
                    Some(name) => Some(inspect::find_subscription(&reading, name).await?),
                    None => None,
                };
                inspect::lanes_of_session(&reading, session_id, subscription_id).await?
            }
            _ => return Err(Failure::usage("name a lane, or --stream and --session")),
        };
        let lanes = inspect::lanes(&reading, &ids).await?;
        if !lanes.is_empty() {
            return Ok(lanes);
        }
        Err(match self.lane_id {
            Some(lane_id) => Failure::failed(format!("there is no lane {lane_id}"))
                .advise("list lanes with `lanekeeper lane list` or `lanekeeper session show`"),
            None => Failure::failed("the session has no such lane")
                .advise("see its lanes with `lanekeeper session show`"),
        })
    }
}
