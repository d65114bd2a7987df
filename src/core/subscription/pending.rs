//! How many undelivered events a session may have for a subscription, how old they may become, and which messages the
//! lifecycle feed is told of.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::duration;

/// What happens to an event beyond `max_pending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// Its append fails.
    #[default]
    Refuse,
    /// The oldest that are not being delivered are dropped, before the lane delivers on.
    DropOldest,
}

impl OnFull {
    pub const ALL: [Self; 2] = [Self::Refuse, Self::DropOldest];

    /// Its word in the file and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::DropOldest => "drop_oldest",
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A bound on a session's undelivered events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PendingBound {
    /// `None`: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pending: Option<u32>,
    #[serde(skip_serializing_if = "OnFull::is_default")]
    pub on_full: OnFull,
}

impl PendingBound {
    /// The number beyond which a lane drops its oldest events.
    pub fn drops_beyond(&self) -> Option<u32> {
        self.max_pending
            .filter(|_| self.on_full == OnFull::DropOldest)
    }
}

/// How old an event may become, in the words of the file.
pub(super) fn in_words<S: Serializer>(
    age: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match age {
        Some(age) => serializer.serialize_str(&duration::written(*age)),
        None => serializer.serialize_none(),
    }
}

/// What the lifecycle feed may be told of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageStage {
    /// The destination took it.
    Sent,
    /// It was acknowledged.
    Acked,
    /// An attempt failed, and another one follows.
    Retried,
    /// It is not tried again.
    Failed,
    /// It was older than `max_age`.
    Expired,
    /// It was one of the oldest of too many.
    Dropped,
}

impl MessageStage {
    pub const ALL: [Self; 6] = [
        Self::Sent,
        Self::Acked,
        Self::Retried,
        Self::Failed,
        Self::Expired,
        Self::Dropped,
    ];

    /// Its word in the file and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Acked => "acked",
            Self::Retried => "retried",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Dropped => "dropped",
        }
    }
}
