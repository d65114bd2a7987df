//! A stream and a subscription with nothing left open: every default resolved.
//!
//! Serialised, they are what `lanekeeper.subscription_version` records and what differences are
//! shown in: the words of the file.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;
use url::Url;

use super::agent::AgentDefinition;
use super::delivery::DeliveryDefaults;
use super::duration;
use super::limit::{self, Limit};
use super::pending::{self, MessageStage, PendingBound};
use crate::adapter::Verdict;
use crate::bucket::Bucket;

/// What happens to an event that ran out of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhaustion {
    /// It is copied to the dead letters with its error, and the lane goes on.
    DeadLetter,
    /// The lane waits for an operator.
    Park,
    /// It is recorded as dropped, and the lane goes on.
    Drop,
}

impl Exhaustion {
    pub const ALL: [Self; 3] = [Self::DeadLetter, Self::Park, Self::Drop];

    /// Its word in the file and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DeadLetter => "dead_letter",
            Self::Park => "park",
            Self::Drop => "drop",
        }
    }
}

/// Where the lane of a session starts that existed before its subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// With the next event.
    Latest,
    /// With the oldest event that is still there.
    Earliest,
}

impl Start {
    pub const ALL: [Self; 2] = [Self::Latest, Self::Earliest];

    /// Its word in the file and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Earliest => "earliest",
        }
    }
}

/// What tells that an event was handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledge {
    /// That the destination accepted it.
    #[default]
    None,
    /// The destination's answer must say so.
    Response,
    /// An acknowledgement, in the answer or later; without one the event is sent again.
    Required,
}

impl Acknowledge {
    pub const ALL: [Self; 3] = [Self::None, Self::Response, Self::Required];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Response => "response",
            Self::Required => "required",
        }
    }

    /// What the verdict of an adapter means here whose destination can acknowledge in its answer, or cannot.
    pub fn of_answer(self, verdict: Verdict, can_acknowledge: bool) -> Verdict {
        let is_sent = match verdict {
            Verdict::Sent => true,
            Verdict::Accepted => !can_acknowledge,
            _ => return verdict,
        };
        match self {
            Self::Required if is_sent => Verdict::Sent,
            Self::Response if is_sent => {
                Verdict::retry("the destination answered without an acknowledgement")
            }
            _ => Verdict::Accepted,
        }
    }
}

/// When a frame that a peer sent is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameAcknowledge {
    /// Once it is in the log.
    #[default]
    OnCommit,
    /// Once every subscription that gets it has handled it.
    OnHandled,
}

impl FrameAcknowledge {
    pub const ALL: [Self; 2] = [Self::OnCommit, Self::OnHandled];

    /// Its word in the file and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnCommit => "on_commit",
            Self::OnHandled => "on_handled",
        }
    }
}

/// A choice of event types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Events {
    /// Every type, written `["*"]`.
    All,
    Only(Vec<String>),
}

impl Events {
    /// As the database has it: `None` stands for every type.
    pub fn from_column(column: Option<Vec<String>>) -> Self {
        column.map_or(Self::All, Self::Only)
    }

    /// See [`Events::from_column`].
    pub fn as_column(&self) -> Option<&[String]> {
        match self {
            Self::All => None,
            Self::Only(types) => Some(types),
        }
    }
}

impl Serialize for Events {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => ["*"].serialize(serializer),
            Self::Only(types) => types.serialize(serializer),
        }
    }
}

/// When a failed event is tried again, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// The wait after each failed attempt; the last one repeats.
    #[serde(serialize_with = "in_words")]
    pub schedule: Vec<Duration>,
    /// 0: for ever.
    pub max_attempts: u32,
    pub on_exhausted: Exhaustion,
}

fn one_in_words<S: Serializer>(wait: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&duration::written(*wait))
}

fn in_words<S: Serializer>(schedule: &[Duration], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(schedule.iter().map(|wait| duration::written(*wait)))
}

/// A stream's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamDefinition {
    pub max_payload_bytes: u32,
    /// What subscriptions without a list of their own receive.
    pub fan_out: Events,
    /// What is never coalesced.
    pub critical: Events,
    pub retry: Retry,
    /// For subscriptions that say nothing of their own.
    #[serde(flatten)]
    pub pending: PendingBound,
    /// For subscriptions that say nothing of their own.
    #[serde(flatten)]
    pub delivery: DeliveryDefaults,
    /// Of frames that arrive for the stream.
    pub acknowledge: FrameAcknowledge,
    /// Whether its events are kept when their day leaves the log.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_events: bool,
    /// Event types of which one is the last event of its session. Empty: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub terminal: Vec<String>,
    /// The agent that it is for callers who speak A2A.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a2a: Option<AgentDefinition>,
    /// What payloads of an event type must match, by the type.
    #[serde(rename = "schema", skip_serializing_if = "BTreeMap::is_empty")]
    pub schemas: BTreeMap<String, EventSchema>,
}

/// The JSON Schema of an event type. It is written as the schema alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Value")]
pub struct EventSchema {
    /// As the file has it.
    pub schema: Value,
    /// What the database checks: see `event_schema.rules`.
    pub rules: Value,
}

impl From<EventSchema> for Value {
    fn from(of: EventSchema) -> Self {
        of.schema
    }
}

impl Default for StreamDefinition {
    /// A stream of the user's own of which the file says nothing more.
    fn default() -> Self {
        Self {
            max_payload_bytes: 1024 * 1024,
            fan_out: Events::All,
            critical: Events::All,
            retry: Retry {
                schedule: [1, 2, 4, 8, 16, 32, 60].map(Duration::from_secs).to_vec(),
                max_attempts: 0,
                on_exhausted: Exhaustion::DeadLetter,
            },
            pending: PendingBound::default(),
            delivery: DeliveryDefaults::default(),
            acknowledge: FrameAcknowledge::default(),
            keep_events: false,
            terminal: Vec::new(),
            a2a: None,
            schemas: BTreeMap::new(),
        }
    }
}

/// A subscription's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Definition {
    pub stream: String,
    pub adapter: String,
    pub events: Events,
    pub start: Start,
    pub retry: Retry,
    pub coalesce: bool,
    pub concurrency: u32,
    pub history: bool,
    pub ack: Acknowledge,
    /// How long an acknowledgement may take.
    #[serde(serialize_with = "one_in_words")]
    pub ack_timeout: Duration,
    /// How many events of a session may wait for theirs at once.
    #[serde(rename = "window")]
    pub ack_window: u32,
    /// Whether its lanes belong to the hosts of their sessions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub host_bound: bool,
    #[serde(flatten)]
    pub pending: PendingBound,
    /// An event that is older when its turn comes expires.
    #[serde(
        serialize_with = "pending::in_words",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_age: Option<Duration>,
    /// What the lifecycle feed is told of its messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lifecycle: Vec<MessageStage>,
    #[serde(rename = "limit", skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// The adapter's own.
    pub settings: Value,
}

/// All that is shown of a URL: its user, path and query are often credentials.
fn origin(url: &str) -> String {
    let Ok(url) = Url::parse(url) else {
        return "…".to_owned();
    };
    let origin = url.origin().ascii_serialization();
    match (url.path(), url.query()) {
        ("/", None) => origin,
        _ => format!("{origin}/…"),
    }
}

impl Definition {
    /// What every send draws on.
    pub fn buckets(&self) -> Vec<Bucket> {
        limit::buckets(&self.limits, &self.adapter, &self.settings)
    }

    /// The adapter and where it delivers to, for people.
    pub fn destination(&self) -> String {
        let place = match (self.settings.get("url"), self.settings.get("command")) {
            (Some(Value::String(url)), _) => Some(origin(url)),
            (_, Some(Value::String(command))) => Some(command.clone()),
            (_, Some(Value::Array(words))) => Some(
                words
                    .iter()
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join(" "),
            ),
            // A projection's function says more than where its role's connection string is.
            _ => ["function", "chat", "channel", "url_env", "token_env"]
                .iter()
                .find_map(|key| self.settings.get(key)?.as_str())
                .map(str::to_owned),
        };
        match place {
            Some(place) => format!("{} {place}", self.adapter),
            None => self.adapter.clone(),
        }
    }
}
