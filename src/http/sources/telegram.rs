//! Telegram's updates, sent to a webhook: the same messages, commands and answers as of a source that a worker asks.
//!
//! What the chat is shown (that somebody types, how its session is, why a message was not taken) is the answer to the
//! request, which Telegram carries out as a call of the Bot API: so no token is needed for it. Telegram repeats what is not
//! answered with success, and with `max_connections=1` sends nothing meanwhile. So only what may succeed later is refused;
//! what never will is answered, and its author told.
//!
//! An attachment is fetched between the verified request and the append: no transaction is open, nothing is on record yet,
//! and a request that Telegram gave up and repeats finds the file, or is a duplicate. After [`FETCHED_WITHIN`] the message
//! goes without it.

use std::time::Duration;

use axum::response::Response;
use lanekeeper_adapters::TelegramBot;
use lanekeeper_core::source::Action;
use lanekeeper_core::source::chat::{Attachment, Content, Message, Passed};
use lanekeeper_core::source::telegram;
use lanekeeper_postgres::append::{AppendError, Fate};
use lanekeeper_postgres::inbound::{self, NewInbound};
use lanekeeper_postgres::inbound_summary;
use lanekeeper_telemetry::sources::Became;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::problem::Problem;
use super::answer::{self, Reader, Told, unknown};
use super::loaded::Telegram;
use super::{Receiving, enqueue};

/// For an attachment, the wait for its place included.
const FETCHED_WITHIN: Duration = Duration::from_secs(20);
/// For Postgres.
const ENQUEUED_WITHIN: Duration = Duration::from_secs(9);

pub(super) async fn take(
    receiving: &Receiving,
    name: &str,
    source: &Telegram,
    body: &[u8],
) -> Result<Response, Problem> {
    let chat = &source.definition.chat;
    let desk = &receiving.desk;
    let json = serde_json::from_slice(body).ok();
    let update = json.and_then(|json| telegram::update(chat, &json));
    let mut message = match update
        .ok_or_else(|| unknown("no update of Telegram"))?
        .content
    {
        Content::Message(message) => message,
        Content::Passed(why) => {
            let (became, reason) = passed(why);
            desk.updated(name, became);
            return Ok(answer::ignored(Reader::Platform, reason.to_owned()));
        }
    };
    let session = message.session(&source.session);
    let bot_name = source.definition.bot_name.as_deref();
    let action = chat.commands.find(&message.content, bot_name);
    if action == Some(Action::Status) {
        return tell_status(receiving, name, &message, &session).await;
    }
    if let (Some(most), Some(attachment)) = (chat.max_file_bytes, message.attachment()) {
        let fetched = fetch(receiving, name, source, &message.id, &attachment, most).await;
        if let Err(reason) = &fetched {
            tracing::warn!(
                source = name,
                message = message.id,
                reason,
                "an attachment was not fetched; its message goes without it"
            );
        }
        message.attach(fetched.as_deref().map_err(String::as_str));
    }
    let producer = format!("source {name}");
    let payload = message.payload();
    let new = NewInbound::of_chat(&message, &session, name, &producer, &payload);
    let until = Instant::now() + ENQUEUED_WITHIN;
    let refused = match enqueue(desk, &new, action, until).await? {
        Ok(enqueued) => {
            let became = match (enqueued.duplicate, action) {
                (true, _) => Became::Duplicate,
                (false, None) => Became::Enqueued,
                (false, Some(_)) => Became::Interrupted,
            };
            desk.updated(name, became);
            return Ok(match !enqueued.duplicate && chat.typing {
                true => Told::call(telegram::typing(&message)).response(),
                false => answer::committed(&enqueued),
            });
        }
        Err(refused) => refused,
    };
    match refused.fate() {
        Fate::Later => Err(Problem::of_append(&refused)),
        Fate::SessionFull | Fate::Event | Fate::Payload => {
            Ok(tell_refused(receiving, name, &message, &refused))
        }
    }
}

fn passed(why: Passed) -> (Became, &'static str) {
    match why {
        Passed::NotAllowed { .. } => (
            Became::NotAllowed,
            "neither its author nor its chat is in allow_from",
        ),
        Passed::Unsupported | Passed::Bot => (Became::Unsupported, "it is no message for an agent"),
    }
}

fn tell_refused(
    receiving: &Receiving,
    name: &str,
    message: &Message,
    refused: &AppendError,
) -> Response {
    tracing::warn!(
        source = name,
        message = message.id,
        error = refused as &dyn std::error::Error,
        "a message was passed, because it cannot be enqueued"
    );
    receiving.desk.updated(name, Became::Refused);
    Told::call(telegram::answer(message, inbound::passed(refused))).response()
}

async fn tell_status(
    receiving: &Receiving,
    name: &str,
    message: &Message,
    session: &str,
) -> Result<Response, Problem> {
    let summing = receiving
        .desk
        .ask(async |client| inbound_summary::summary(client, session).await);
    let summary = timeout(ENQUEUED_WITHIN, summing).await;
    let summary = summary.map_err(|_| Problem::busy())??;
    receiving.desk.updated(name, Became::Status);
    Ok(Told::call(telegram::answer(message, &summary.to_string())).response())
}

/// The path of what came with a message, or why there is none.
async fn fetch(
    receiving: &Receiving,
    name: &str,
    source: &Telegram,
    message_id: &str,
    attachment: &Attachment,
    most: u32,
) -> Result<String, String> {
    let until = Instant::now() + FETCHED_WITHIN;
    let Ok(Ok(_place)) = timeout_at(until, receiving.fetching.acquire()).await else {
        return Err("too many others were fetched at the time".to_owned());
    };
    let environment = receiving.sources.environment().clone();
    let attachments = environment.attachments().cloned();
    let attachments = attachments.ok_or("this worker has no folder for attachments")?;
    let definition = &source.definition;
    let token_env = definition.token_env.clone();
    let token_env = token_env.ok_or("the source names no token")?;
    let api_url = definition.chat.api_url.clone();
    // The token may stand in a file.
    let opening = tokio::task::spawn_blocking(move || {
        TelegramBot::open(&token_env, api_url.as_deref(), &environment)
    });
    let bot = opening.await.map_err(|error| error.to_string())??;
    let within = until.saturating_duration_since(Instant::now());
    let names = (name, message_id);
    let fetching = attachments.fetch(&bot, names, attachment, most, within);
    fetching.await.map_err(|error| error.to_string())
}
