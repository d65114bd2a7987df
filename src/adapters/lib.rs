//! The adapters: the code that delivers to destinations.
//!
//! Each implements [`Adapter`](lanekeeper_core::adapter::Adapter), which defines what an adapter gets and answers.
//!
//! [`build`] makes the adapter that a subscription names; [`check`] judges its settings without
//! reading a secret. Every adapter sends the same body ([`lanekeeper_core::envelope`]) and passes the same
//! conformance suite (`tests/it/conformance`).

mod a2a;
mod agent;
mod attachments;
mod chat;
pub mod descriptors;
mod discord;
mod embedded;
mod environment;
mod excerpt;
mod exec;
pub mod fake;
mod fetch_error;
mod file_system;
mod http;
pub mod projection;
mod redis_pubsub;
mod redis_server;
mod redis_stream;
mod registry;
mod reload;
mod retry_after;
mod settings;
mod signature;
mod slack;
mod stdout;
mod takes;
mod target;
mod telegram;
mod tmux;
mod webhook;

use lanekeeper_core::envelope;

pub use a2a::PushKey;
pub use attachments::Attachments;
pub use chat::PlatformRate;
pub use discord::{Closed, DiscordBot, Frame, Gateway};
pub use environment::{Environment, SecretError};
pub use exec::Exec;
pub use fetch_error::FetchError;
pub use registry::{
    KINDS, NAMES, acknowledges, awaits_completion, check, is_of_host, platform_rates,
    shows_progress,
};
pub use reload::build;
pub use settings::SettingsError;
pub use signature::{KeyError, RandomError, Signer};
pub use stdout::{LineWriter, Stdout};
pub use takes::takes;
pub use telegram::{BotError, TelegramBot};
pub use tmux::{SESSION_OPTION, Server as TmuxServer, Tmux, TmuxError};
pub use webhook::{Attempt, Webhook};
