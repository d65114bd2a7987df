//! Sources of chats whose bot is known to a worker: one that a worker asks, or whose gateway it listens to, and one whose
//! platform sends it updates.
//!
//! Both make the same messages of the same updates, by what [`ChatSource`] says.

use serde::{Deserialize, Serialize};

use super::Template;
use super::command::Commands;

/// The largest attachment that is fetched, unless the file says otherwise: what Telegram gives a bot.
pub const MAX_FILE_BYTES: u32 = 20 << 20;

/// The platform of a bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    Telegram,
    Discord,
}

impl Platform {
    pub const ALL: [Self; 2] = [Self::Telegram, Self::Discord];
    /// Those that send a bot's updates to a webhook.
    pub const WEBHOOKS: [Self; 1] = [Self::Telegram];

    /// Its word in the file and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
            Self::Discord => "discord",
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
            Self::Discord => &[
                ("channel_id", "/channel_id"),
                ("guild_id", "/guild_id"),
                ("actor_id", "/author/id"),
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
    #[serde(flatten)]
    pub chat: ChatSource,
}

/// A source whose platform sends a bot's updates to the worker, as the database keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSource {
    pub webhook: Platform,
    /// The worker's variable that has what the platform shows with each update, or with `_FILE` behind it its file.
    pub secret_env: String,
    /// As of [`PolledSource`]. `None`: the bot is asked for nothing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token_env: Option<String>,
    /// The bot's name, which may stand behind a command.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bot_name: Option<String>,
    #[serde(flatten)]
    pub chat: ChatSource,
}

/// What of a bot's updates becomes a message, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatSource {
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
    /// Bytes of the largest recording or file that is fetched to the worker. `None`: none is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_file_bytes: Option<u32>,
}
