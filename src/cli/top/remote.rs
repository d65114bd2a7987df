//! What `top` shows and does through a worker's HTTP API, with an access token: `read` to look, `operate` to act.

use std::time::Duration;

use jiff::Timestamp;
use lanekeeper_core::error::chain;
use lanekeeper_postgres::append::AppendError;
use lanekeeper_postgres::inspect::{LaneStatus, WorkerStatus};
use lanekeeper_producer::remote::{Remote, part};
use lanekeeper_producer::{ProducerError, RemoteError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;

use super::data::{
    ANSWER_WITHIN, Action, EVENTS, Followed, REASON, ROWS, Snapshot, Subscription, lane_told,
    pause_told, resume_told,
};

/// Longer than a reading: an action may wait for a delivery.
const ACT_WITHIN: Duration = Duration::from_secs(20);

/// A worker, or the balancer before several.
pub struct RemoteSource {
    remote: Remote,
}

#[derive(Deserialize)]
struct Subscriptions {
    subscriptions: Vec<Subscription>,
}

#[derive(Deserialize)]
struct Lanes {
    lanes: Vec<LaneStatus>,
}

#[derive(Deserialize)]
struct Workers {
    workers: Vec<WorkerStatus>,
}

#[derive(Deserialize)]
struct Timeline {
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    seq: i64,
    event_type: String,
    created_at: Timestamp,
}

#[derive(Deserialize)]
struct Lane {
    state: String,
}

#[derive(Deserialize)]
struct Changed {
    changed: bool,
}

impl RemoteSource {
    pub fn new(remote: Remote) -> Self {
        Self { remote }
    }

    pub async fn read(&self, followed: Option<(String, String)>) -> Result<Snapshot, String> {
        let deadline = Instant::now() + ANSWER_WITHIN;
        let read = self.snapshot(followed, deadline).await;
        read.map_err(|error| reason(&error))
    }

    async fn snapshot(
        &self,
        followed: Option<(String, String)>,
        deadline: Instant,
    ) -> Result<Snapshot, ProducerError> {
        let path = format!("v1/subscriptions?limit={ROWS}");
        let Subscriptions { subscriptions } = self.remote.read(&path, deadline).await?;
        // What is held up comes first, then what else has something to do.
        let mut lanes: Vec<LaneStatus> = Vec::new();
        for held_up in [true, false] {
            let path = format!("v1/lanes?held_up={held_up}&limit={ROWS}");
            let more: Lanes = self.remote.read(&path, deadline).await?;
            for lane in more.lanes {
                if !lanes.iter().any(|known| known.lane_id == lane.lane_id) {
                    lanes.push(lane);
                }
            }
        }
        lanes.truncate(usize::try_from(ROWS).unwrap_or(usize::MAX));
        let path = format!("v1/workers?limit={ROWS}");
        let workers = match self.remote.read(&path, deadline).await {
            Ok(Workers { workers }) => workers,
            // A token of some streams sees none.
            Err(error) if is_forbidden(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let followed = match followed {
            Some((stream, session)) => Some(self.events(&stream, &session, deadline).await?),
            None => None,
        };
        Ok(Snapshot {
            subscriptions,
            lanes,
            workers,
            followed,
            read_at: Timestamp::now(),
        })
    }

    async fn events(
        &self,
        stream: &str,
        session: &str,
        deadline: Instant,
    ) -> Result<Followed, ProducerError> {
        let path = format!(
            "v1/sessions/{}/{}/timeline?limit={EVENTS}",
            part(stream),
            part(session)
        );
        let Timeline { events } = self.remote.read(&path, deadline).await?;
        let row = |event: Event| (event.seq, event.event_type, event.created_at);
        Ok(Followed {
            events: events.into_iter().map(row).collect(),
        })
    }

    /// Returns what became of it, for people.
    pub async fn act(&self, action: &Action) -> String {
        self.told(action).await.unwrap_or_else(|error| {
            let open = match error.is_outcome_unknown() {
                true => "it may or may not have been done",
                false => "nothing was changed",
            };
            format!("{open}: {}", reason(&error))
        })
    }

    async fn told(&self, action: &Action) -> Result<String, ProducerError> {
        match action {
            Action::Lane {
                lane_id,
                action,
                head,
            } => {
                let path = format!("v1/lanes/{lane_id}/{}", action.as_str());
                let body = json!({"head": head, "reason": REASON});
                let Lane { state } = self.order(&path, &body).await?;
                Ok(lane_told(*lane_id, *action, &state))
            }
            Action::Pause { subscription } => {
                let path = format!("v1/subscriptions/{}/pause", part(subscription));
                let body = json!({"reason": REASON});
                let Changed { changed } = self.order(&path, &body).await?;
                Ok(pause_told(subscription, changed))
            }
            Action::Resume { subscription } => {
                let path = format!("v1/subscriptions/{}/resume", part(subscription));
                let Changed { changed } = self.order(&path, &json!({})).await?;
                Ok(resume_told(subscription, changed))
            }
        }
    }

    async fn order<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<T, ProducerError> {
        let deadline = Instant::now() + ACT_WITHIN;
        self.remote.post(path, body.to_string(), deadline).await
    }
}

/// As the client of producers calls it.
fn is_forbidden(error: &ProducerError) -> bool {
    matches!(error, ProducerError::Append(AppendError::NotAProducer(_)))
}

/// Without what the client says of events.
fn reason(error: &ProducerError) -> String {
    let what = match error {
        ProducerError::Append(AppendError::TimedOut) => "the worker did not answer in time",
        ProducerError::Remote(RemoteError::Unreachable(_)) => {
            "the worker that LANEKEEPER_URL names cannot be reached"
        }
        ProducerError::Remote(RemoteError::Broken(_)) => "the connection to the worker broke",
        error => return chain(error),
    };
    what.to_owned()
}
