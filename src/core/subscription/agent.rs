//! The agent that a stream is for callers who speak A2A (docs/a2a.md): what `[stream.NAME.a2a]` of the file for `apply` says.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration;

/// How long a call waits for its task, unless the file says otherwise: less than what clients made with the SDK of Python
/// wait for an answer (5 s).
pub const WAIT: Duration = Duration::from_secs(4);
/// The longest that the file may ask for.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The type of the events that messages become, unless the file says otherwise.
pub const EVENT_TYPE: &str = "message";

/// When a task is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompleteOn {
    /// Once every subscription that gets the message has handled it.
    #[default]
    Handled,
    /// Once the agent has answered it: with the RESPONSE of a frame.
    Response,
}

impl CompleteOn {
    pub const ALL: [Self; 2] = [Self::Handled, Self::Response];

    /// Its word in the file and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Response => "response",
        }
    }
}

/// Something that the agent can do, as its card says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    pub id: String,
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// An agent as the database keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDefinition {
    /// Where callers reach a worker's HTTP server, without a slash at its end.
    pub url: String,
    pub name: String,
    pub description: String,
    pub version: String,
    /// Of the events that messages become.
    pub event_type: String,
    pub complete_on: CompleteOn,
    /// How long a call waits for its task: a duration in the words of the file.
    pub wait: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Skill>,
}

impl AgentDefinition {
    pub fn wait(&self) -> Duration {
        duration::parse_up_to(&self.wait, LONGEST_WAIT).unwrap_or(WAIT)
    }
}
