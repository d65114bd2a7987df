//! What is known of agents that live in terminals, and how far the typing of a message has come.
//!
//! Typing into a terminal cannot be undone and gives no answer. So its stages are on record before they begin, where the
//! next worker finds them: a message whose typing had begun is never typed again.

use async_trait::async_trait;
use thiserror::Error;
use uuid::Uuid;

/// A message for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub subscription: &'a str,
    pub session: &'a str,
    pub message_id: Uuid,
    /// The event's, as JSON text.
    pub payload: &'a str,
}

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// On record before the paste: some of it may be in the terminal.
    Pasting,
    /// Pasted, and Enter was sent.
    Entered,
    /// The agent reported a prompt after it.
    Confirmed,
    /// It did not, or nobody knows whether Enter was sent.
    Unconfirmed,
}

impl Stage {
    pub const ALL: [Self; 4] = [
        Self::Pasting,
        Self::Entered,
        Self::Confirmed,
        Self::Unconfirmed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pasting => "pasting",
            Self::Entered => "entered",
            Self::Confirmed => "confirmed",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// What the database knows of a message and its agent session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The message's; `None`: nothing of it was typed.
    pub stage: Option<Stage>,
    /// The agent reported a prompt since the message's typing began.
    pub is_prompted: bool,
    /// The agent's hooks have reported the session, and not its end.
    pub is_live: bool,
    pub native_session_id: Option<String>,
    pub cwd: Option<String>,
}

/// Where that is kept.
#[async_trait]
pub trait Terminals: Send + Sync + 'static {
    /// # Errors
    /// Nothing is known then: nothing may be typed.
    async fn look(&self, input: Input<'_>) -> Result<Known, TerminalsError>;

    /// Puts a stage on record; `None`: nothing of the message was typed after all. With [`Stage::Entered`] the agent
    /// session learns of its last input, and the session's other destinations are told. Can be repeated.
    ///
    /// # Errors
    /// Whether it is on record is not known.
    async fn mark(&self, input: Input<'_>, stage: Option<Stage>) -> Result<(), TerminalsError>;
}

/// The database cannot be reached. Time may mend it.
#[derive(Debug, Error)]
#[error("what was typed before is not known: {source}")]
pub struct TerminalsError {
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// For adapters that nobody gave any: nothing is typed.
#[derive(Debug, Default)]
pub struct NoTerminals;

#[derive(Debug, Error)]
#[error("this program keeps no record of what it types: give Environment::with_terminals one")]
struct Absent;

#[async_trait]
impl Terminals for NoTerminals {
    async fn look(&self, _input: Input<'_>) -> Result<Known, TerminalsError> {
        let source = Box::new(Absent);
        Err(TerminalsError { source })
    }

    async fn mark(&self, _input: Input<'_>, _stage: Option<Stage>) -> Result<(), TerminalsError> {
        let source = Box::new(Absent);
        Err(TerminalsError { source })
    }
}
