//! The updates of one answer: each is enqueued in a transaction of its own that moves the offset past it, or passed.
//!
//! One transaction each, so that none holds the append locks of several sessions. An update that cannot be enqueued now
//! stays before the offset, and so do later ones of its session; messages of other sessions are enqueued nevertheless, and
//! nothing is done about them when they come again. Each attempt at a locked session costs seconds. So an answer is left at
//! the first session that is newly found locked, and those found before are tried behind all others, one for each answer.

use std::collections::HashSet;

use lanekeeper_core::source::chat::{Content, Message, Passed, Update};
use lanekeeper_core::source::{Action, Template};
use lanekeeper_fault::CrashPoint;
use lanekeeper_postgres::append::{AppendError, Fate};
use lanekeeper_postgres::inbound::{self, NewInbound};
use lanekeeper_postgres::source_poll::{self, Offset, Watched};
use lanekeeper_postgres::{ErrorClass, StoreError, inbound_summary};
use lanekeeper_telemetry::sources::{Became, SourceUpdates};
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;

use super::ANSWER_WITHIN;
use super::downloads::Downloads;
use super::memory::Memory;
use super::reply::Replies;

/// The bot that a source asks for.
pub(super) struct Me {
    /// As Postgres has it.
    pub(super) bot: String,
    pub(super) username: Option<String>,
}

/// What updates are taken with.
pub(super) struct Batch<'a> {
    pub(super) client: &'a mut Client,
    pub(super) source: &'a Watched,
    pub(super) template: &'a Template,
    pub(super) me: &'a Me,
    pub(super) replies: &'a Replies,
    pub(super) updates: &'a SourceUpdates,
    pub(super) memory: &'a mut Memory,
    pub(super) downloads: &'a mut Downloads,
    /// No message is begun later. What is left is asked for again, once the holder has given a sign of life.
    pub(super) until: Instant,
}

/// What came of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// As many of them were taken as there was time for.
    Moved,
    /// A message waits for its session, which is locked, or for its file.
    KeptBack,
    /// There was nothing that was not confirmed before.
    Nothing,
}

/// Why the updates of an answer are not taken. Nothing is passed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The connection is gone, or does not answer, or somebody else has moved the offset.
    Lost(String),
    /// The stream does not take the source's messages, or Postgres cannot at present.
    Later(String),
}

/// What came of one message.
enum Taken {
    Enqueued,
    /// It was passed for good, and the offset not moved yet.
    Passed,
    /// Its session is locked, or its file is under way.
    KeptBack,
}

impl Batch<'_> {
    /// Takes updates, in their order.
    pub(super) async fn take(
        &mut self,
        offset: Offset,
        updates: Vec<Update>,
    ) -> Result<Progress, Failed> {
        let confirmed = offset.next_update.filter(|_| offset.is_fresh);
        let updates: Vec<Update> = updates
            .into_iter()
            .filter(|update| confirmed.is_none_or(|confirmed| update.id >= confirmed))
            .collect();
        let ids = updates.iter().map(|update| update.id).collect();
        let sessions = updates.iter().filter_map(|update| match &update.content {
            Content::Message(message) => Some(message.session(self.template)),
            Content::Passed(_) => None,
        });
        let sessions = sessions.collect();
        self.memory.keep(&ids, &sessions);
        self.downloads.keep(&ids);
        for update in &updates {
            if let Content::Message(message) = &update.content
                && !self.memory.is_done(update.id)
            {
                self.downloads.begin(update.id, message);
            }
        }
        let again = self.memory.tried_longest_ago().map(str::to_owned);
        let mut first_of_it = None;
        let mut stored = offset.next_update;
        // Past what was passed, which is moved with what follows.
        let mut pending = None;
        let mut locked: HashSet<String> = HashSet::new();
        let mut progress = Progress::Nothing;
        let mut failed = None;
        for update in updates {
            if Instant::now() >= self.until {
                progress = Progress::Moved;
                break;
            }
            let (id, to) = (update.id, update.id + 1);
            let may_move = locked.is_empty();
            let mut is_newly_locked = false;
            let taken = match update.content {
                _ if self.memory.is_done(id) => Taken::Passed,
                Content::Passed(why) => {
                    self.note_passed(why);
                    Taken::Passed
                }
                Content::Message(mut message) => {
                    let session = message.session(self.template);
                    let is_whole = self.downloads.settle(id, &mut message);
                    if locked.contains(&session) {
                        Taken::KeptBack
                    } else if !is_whole {
                        locked.insert(session);
                        Taken::KeptBack
                    } else if self.memory.is_locked(&session) {
                        if again.as_ref() == Some(&session) {
                            first_of_it = Some((id, message));
                        }
                        locked.insert(session);
                        Taken::KeptBack
                    } else {
                        let to = may_move.then_some((to, stored));
                        match self.message(&message, &session, to).await {
                            Ok(taken) => {
                                if matches!(taken, Taken::KeptBack) {
                                    is_newly_locked = true;
                                    self.memory.found_locked(&session);
                                    locked.insert(session);
                                }
                                taken
                            }
                            Err(Failed::Later(reason)) => {
                                failed = Some(Failed::Later(reason));
                                break;
                            }
                            Err(lost) => return Err(lost),
                        }
                    }
                }
            };
            match taken {
                Taken::Enqueued | Taken::Passed => self.memory.done(id),
                Taken::KeptBack => {}
            }
            match taken {
                Taken::Enqueued if may_move => {
                    (stored, pending) = (Some(to), None);
                    progress = Progress::Moved;
                }
                Taken::Passed if may_move => pending = Some(to),
                Taken::Enqueued | Taken::Passed | Taken::KeptBack => {}
            }
            if is_newly_locked {
                break;
            }
        }
        if let Some(to) = pending {
            self.pass(to, stored).await?;
            progress = Progress::Moved;
        }
        if let Some(failed) = failed {
            return Err(failed);
        }
        if locked.is_empty() {
            return Ok(progress);
        }
        if let (Some(session), Some((id, message))) = (again, first_of_it)
            && Instant::now() < self.until
        {
            return self.once_more(id, &message, &session).await;
        }
        Ok(Progress::KeptBack)
    }

    /// Tries a session again that was locked.
    async fn once_more(
        &mut self,
        id: i64,
        message: &Message,
        session: &str,
    ) -> Result<Progress, Failed> {
        // Without the offset: what comes before it may be kept back still. The next answer moves it.
        match self.message(message, session, None).await? {
            Taken::KeptBack => {
                self.memory.found_locked(session);
                Ok(Progress::KeptBack)
            }
            Taken::Enqueued | Taken::Passed => {
                self.memory.done(id);
                self.memory.found_free(session);
                Ok(Progress::Moved)
            }
        }
    }

    /// Takes one message. `to`: where the offset moves in the same transaction, and where it was.
    async fn message(
        &mut self,
        message: &Message,
        session: &str,
        to: Option<(i64, Option<i64>)>,
    ) -> Result<Taken, Failed> {
        let source = self.source;
        let commands = &source.definition.chat.commands;
        let action = commands.find(&message.content, self.me.username.as_deref());
        if action == Some(Action::Status) {
            self.tell_status(message, session).await?;
            return Ok(Taken::Passed);
        }
        let producer = format!("source {}", source.name);
        let payload = message.payload();
        let new = NewInbound::of_chat(message, session, &source.name, &producer, &payload);
        let (id, bot) = (source.source_id, self.me.bot.as_str());
        let appending = append(self.client, &new, action, id, bot, to);
        let appended = match timeout(ANSWER_WITHIN, appending).await {
            Ok(appended) => appended,
            Err(_) => return Err(Failed::Lost("Postgres does not answer".to_owned())),
        };
        let refused = match appended {
            Ok(true) => {
                self.updates.count(&source.name, Became::Duplicate);
                return Ok(Taken::Enqueued);
            }
            Ok(false) => {
                self.updates.count(
                    &source.name,
                    match action {
                        None => Became::Enqueued,
                        Some(_) => Became::Interrupted,
                    },
                );
                if source.definition.chat.typing {
                    self.replies.typing(message);
                }
                return Ok(Taken::Enqueued);
            }
            Err(Refused::Moved) => {
                return Err(Failed::Lost(
                    "another worker has moved the offset".to_owned(),
                ));
            }
            Err(Refused::Append(error)) => error,
        };
        match refused.fate() {
            Fate::Later => match later(&refused) {
                Some(failed) => Err(failed),
                None => Ok(Taken::KeptBack),
            },
            Fate::SessionFull | Fate::Event | Fate::Payload => {
                self.note_refused(message, session, &refused);
                Ok(Taken::Passed)
            }
        }
    }

    async fn tell_status(&mut self, message: &Message, session: &str) -> Result<(), Failed> {
        let summing = inbound_summary::summary(&*self.client, session);
        let text = match timeout(ANSWER_WITHIN, summing).await {
            Ok(Ok(summary)) => summary.to_string(),
            Ok(Err(error)) if error.class() == ErrorClass::ConnectionLost => {
                return Err(Failed::Lost(error.to_string()));
            }
            // A busy database is no reason to keep messages back.
            Ok(Err(_)) => "How the session is cannot be read at present.".to_owned(),
            Err(_) => return Err(Failed::Lost("Postgres does not answer".to_owned())),
        };
        self.updates.count(&self.source.name, Became::Status);
        self.replies.say(message, &text);
        Ok(())
    }

    /// Moves the offset past updates that were passed.
    async fn pass(&mut self, to: i64, was: Option<i64>) -> Result<(), Failed> {
        let (id, bot) = (self.source.source_id, self.me.bot.as_str());
        let moving = async {
            let transaction = begin(self.client).await?;
            match source_poll::advance(&transaction, id, bot, to, was).await? {
                true => commit(transaction).await.map(|()| true),
                false => Ok(false),
            }
        };
        match timeout(ANSWER_WITHIN, moving).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(Failed::Lost(
                "another worker has moved the offset".to_owned(),
            )),
            Ok(Err(error)) if error.class() == ErrorClass::ConnectionLost => {
                Err(Failed::Lost(error.to_string()))
            }
            Ok(Err(error)) => Err(Failed::Later(reason(&error))),
            Err(_) => Err(Failed::Lost("Postgres does not answer".to_owned())),
        }
    }

    fn note_passed(&self, why: Passed) {
        let source = &self.source.name;
        let became = match why {
            Passed::NotAllowed { chat, actor } => {
                // Not louder: strangers send as many as they like. The metric counts them.
                tracing::debug!(
                    source,
                    chat,
                    actor,
                    "a message was not taken: neither its author nor its chat is in allow_from"
                );
                Became::NotAllowed
            }
            Passed::Unsupported | Passed::Bot => {
                tracing::debug!(source, ?why, "an update is no message for an agent");
                Became::Unsupported
            }
        };
        self.updates.count(source, became);
    }

    fn note_refused(&self, message: &Message, session: &str, refused: &AppendError) {
        let source = &self.source.name;
        tracing::warn!(
            source,
            session,
            message = message.id,
            error = refused as &dyn std::error::Error,
            "a message was passed, because it cannot be enqueued"
        );
        self.updates.count(source, Became::Refused);
        self.replies.say(message, inbound::passed(refused));
    }
}

/// Why a message is not on record.
enum Refused {
    Append(AppendError),
    /// By another holder.
    Moved,
}

impl From<AppendError> for Refused {
    fn from(error: AppendError) -> Self {
        Self::Append(error)
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Append(error.into())
    }
}

/// Appends a message and moves the offset past it, or neither. Returns whether it was there before.
async fn append(
    client: &mut Client,
    message: &NewInbound<'_>,
    action: Option<Action>,
    source_id: i32,
    bot: &str,
    to: Option<(i64, Option<i64>)>,
) -> Result<bool, Refused> {
    let transaction = begin(client).await?;
    let appended = inbound::append(&transaction, message, action).await?;
    CrashPoint::UpdateAppended.pass();
    if let Some((to, was)) = to
        && !source_poll::advance(&transaction, source_id, bot, to, was).await?
    {
        return Err(Refused::Moved);
    }
    CrashPoint::UpdateMoved.pass();
    commit(transaction).await?;
    CrashPoint::UpdateCommitted.pass();
    Ok(appended.duplicate)
}

async fn begin(client: &mut Client) -> Result<tokio_postgres::Transaction<'_>, StoreError> {
    let begun = client.transaction().await;
    begun.map_err(StoreError::on("beginning to take an update"))
}

async fn commit(transaction: tokio_postgres::Transaction<'_>) -> Result<(), StoreError> {
    let committed = transaction.commit().await;
    committed.map_err(StoreError::on("committing an update"))
}

/// What an append that may succeed later means for the source. `None`: only its session is locked.
fn later(error: &AppendError) -> Option<Failed> {
    let AppendError::Store(store) = error else {
        return Some(Failed::Later(error.to_string()));
    };
    if store.class() == ErrorClass::ConnectionLost {
        return Some(Failed::Lost(reason(store)));
    }
    match store.sqlstate() {
        // Lock and statement time-outs, deadlocks, and what interrupt() makes of the first.
        Some("55P03" | "57014" | "40P01" | "40001" | "LK007") => None,
        _ => Some(Failed::Later(reason(store))),
    }
}

fn reason(error: &StoreError) -> String {
    let said = error.refusal().map(|refusal| refusal.message);
    said.unwrap_or_else(|| format!("{error}: {}", error.source))
}
