//! What sending to an agent over A2A 1.0 and hearing from it have in common: the states of tasks, and where it is remembered
//! which task a message became.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use uuid::Uuid;

/// The version that is spoken.
pub const VERSION: &str = "1.0";
/// The place and the key of a session's tasks in the memory of what was sent.
pub const PLACE: &str = "a2a";
pub const KEY: &str = "tasks";
/// Tasks of a session that are remembered: more than a window has messages.
pub const REMEMBERED: i64 = 64;
/// Bytes of a task's id.
pub const LONGEST_TASK_ID: usize = 256;

/// Where a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskState {
    Submitted,
    Working,
    Completed,
    Failed,
    Canceled,
    InputRequired,
    Rejected,
    AuthRequired,
    /// Not said, or a word of a later version.
    #[default]
    Unknown,
}

impl TaskState {
    /// Its word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Failed => "TASK_STATE_FAILED",
            Self::Canceled => "TASK_STATE_CANCELED",
            Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            Self::Rejected => "TASK_STATE_REJECTED",
            Self::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
            Self::Unknown => "TASK_STATE_UNSPECIFIED",
        }
    }

    /// Whether nothing more becomes of it.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected
        )
    }
}

impl<'de> Deserialize<'de> for TaskState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const ALL: [TaskState; 8] = [
            TaskState::Submitted,
            TaskState::Working,
            TaskState::Completed,
            TaskState::Failed,
            TaskState::Canceled,
            TaskState::InputRequired,
            TaskState::Rejected,
            TaskState::AuthRequired,
        ];
        let word = String::deserialize(deserializer)?;
        let known = ALL.into_iter().find(|state| state.as_str() == word);
        Ok(known.unwrap_or_default())
    }
}

/// The task that a message became, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageTask {
    pub seq: i64,
    pub message_id: Uuid,
    pub task_id: String,
}

impl MessageTask {
    /// Where the task of the message with this seq is. Later ones take the place of earlier ones.
    pub fn part(seq: i64) -> i32 {
        i32::try_from(seq.rem_euclid(REMEMBERED)).unwrap_or_default()
    }
}

impl fmt::Display for MessageTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.seq, self.message_id, self.task_id)
    }
}

/// A reference that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it names no task")]
pub struct NoTask;

impl FromStr for MessageTask {
    type Err = NoTask;

    fn from_str(reference: &str) -> Result<Self, NoTask> {
        let mut words = reference.splitn(3, ' ');
        let mut word = || words.next().ok_or(NoTask);
        Ok(Self {
            seq: word()?.parse().map_err(|_| NoTask)?,
            message_id: word()?.parse().map_err(|_| NoTask)?,
            task_id: word()?.to_owned(),
        })
    }
}

/// Whether an agent may call a task so: it stands in a path, in the memory and in errors.
pub fn is_task_id(id: &str) -> bool {
    (1..=LONGEST_TASK_ID).contains(&id.len())
        && !id.chars().any(char::is_control)
        && !matches!(id, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_remembered_as_it_was_named() {
        let task = MessageTask {
            seq: 7,
            message_id: Uuid::from_u128(5),
            task_id: "a b".to_owned(),
        };
        assert_eq!(task.to_string().parse(), Ok(task));
        for none in ["", "7", "7 x y", "x 00000000-0000-0000-0000-000000000005 y"] {
            assert_eq!(none.parse::<MessageTask>(), Err(NoTask), "{none}");
        }
    }

    #[test]
    fn the_messages_of_a_window_have_places_of_their_own() {
        let places: std::collections::HashSet<i32> = (100..150).map(MessageTask::part).collect();
        assert_eq!(places.len(), 50);
        assert!(places.iter().all(|place| (0..64).contains(place)));
    }

    #[test]
    fn states_are_read_and_an_unknown_word_is_no_error() {
        let state = |word: &str| serde_json::from_str::<TaskState>(&format!("\"{word}\"")).unwrap();
        assert_eq!(state("TASK_STATE_INPUT_REQUIRED"), TaskState::InputRequired);
        assert_eq!(state("TASK_STATE_COMPLETED"), TaskState::Completed);
        assert_eq!(state("completed"), TaskState::Unknown);
        assert!(!TaskState::Unknown.is_terminal());
    }

    #[test]
    fn ids_that_would_lead_elsewhere_are_no_task_ids() {
        assert!(is_task_id("a/b?c"));
        for id in ["", ".", "..", "a\nb", &"x".repeat(257)] {
            assert!(!is_task_id(id), "{id}");
        }
    }
}
