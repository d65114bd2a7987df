//! A source that a worker asks: a platform that keeps what people write until a bot fetches it.

use serde::{Deserialize, Serialize};

use super::Template;
use super::command::Commands;

/// The platform that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    Telegram,
}

impl Platform {
    pub const ALL: [Self; 1] = [Self::Telegram];

    /// Its word in the file and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
        }
    }

    /// Short names of what a message says, and where it says that.
    fn names(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Telegram => &[
                ("chat_id", "/chat/id"),
                ("thread_id", "/message_thread_id"),
                ("actor_id", "/from/id"),
            ],
        }
    }

    /// Reads a template about its messages.
    ///
    /// # Errors
    /// In words, where it has a placeholder that is none.
    pub fn template(self, text: &str) -> Result<Template, String> {
        Template::parse_with(text, self.names())
    }
}

/// A polled source as the database keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolledSource {
    pub poll: Platform,
    /// The worker's variable that has the bot's token, or with `_FILE` behind it the token's file.
    pub token_env: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub api_url: Option<String>,
    /// The people and chats whose messages are taken.
    pub allow_from: Vec<i64>,
    /// A template.
    pub session: String,
    /// Whether an edited message is a message again.
    pub edits: bool,
    /// Whether the chat shows that somebody types, once its message is enqueued.
    pub typing: bool,
    #[serde(skip_serializing_if = "Commands::is_empty", default)]
    pub commands: Commands,
}
