//! One source from its lock to the loss of it: enters its bot, asks for updates, gives signs of life while it waits.
//!
//! | answer | what follows |
//! |---|---|
//! | updates | they are taken, and the next question confirms them |
//! | none | the next question, a second later at the earliest |
//! | only updates that were confirmed | as of a fault: asked again after 1 to 30 s |
//! | 409 | another program asks, or a webhook is set: after 3 s, in case it was the holder before, then every 30 s |
//! | 429 | after as long as it wants |
//! | 401, another source with this bot, no usable token | the source is let go: another worker may have a better token |
//! | cut off or too long | asked for fewer updates |
//! | none in time, 5xx | asked again after 1 to 30 s |

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_adapters::{BotError, TelegramBot};
use lanekeeper_core::source::{Platform, telegram};
use lanekeeper_postgres::lane_connection::{self, Opened};
use lanekeeper_postgres::source_poll::{self, Bot, Offset, Watched};
use lanekeeper_postgres::{ErrorClass, StoreError};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::batch::{Batch, Failed, Me, Progress};
use super::downloads::{Downloads, Wanted};
use super::ending::end;
use super::memory::Memory;
use super::reply::Replies;
use super::shared::Shared;
use super::{ALIVE_EVERY, ANSWER_WITHIN};

/// After a sign of life. Whatever was begun by then ends before the holder counts as silent, a statement that its time-out ends
/// included.
pub(super) const TAKEN_WITHIN: Duration = Duration::from_millis(2_500);
/// How long Telegram may keep a question open, and how long the answer may take beyond that.
const POLL: Duration = Duration::from_secs(25);
pub(super) const BEYOND: Duration = Duration::from_secs(10);
/// Updates of one answer: Telegram's own limit.
const MOST: u32 = 100;
/// Between two questions of which nothing comes.
pub(super) const SHORTEST: Duration = Duration::from_secs(1);
pub(super) const LONGEST: Duration = Duration::from_secs(30);
/// The holder before may have a question open that Telegram has not ended yet.
const CONFLICT: Duration = Duration::from_secs(3);
/// Until a source is tried again that this worker cannot ask.
const UNUSABLE: Duration = Duration::from_secs(30);
/// The same, where the platform wants no other attempt. A changed definition is tried at once.
const REFUSED: Duration = Duration::from_secs(600);
const UNCONNECTED: Duration = Duration::from_secs(3);

/// How holding ended.
pub(super) enum Ended {
    /// The source is gone, changed or lost. Nothing keeps this worker from taking it again.
    Gone,
    /// This worker cannot ask, and rests for this long. Another may.
    Rests(Duration),
}

/// Why holding ends.
pub(super) enum Stop {
    /// The worker stops, or the source was changed.
    Asked,
    /// Another worker has it, or it is gone.
    NotOurs,
    /// The connection ended, or Postgres does not answer on it.
    Lost(String),
    /// This worker cannot ask for it.
    Unusable(String),
    /// The platform would refuse it again.
    Refused(String),
}

/// Holds a source, if nobody else does, and asks for it.
pub(super) async fn run(shared: Arc<Shared>, source: Watched, stop: CancellationToken) -> Ended {
    let name = source.name.clone();
    let purpose = format!("source {}", shared.polling.worker_id);
    let opened = lane_connection::open(&shared.polling.database, &purpose).await;
    let Opened {
        client,
        task,
        backend,
    } = match opened {
        Ok(opened) => opened,
        Err(error) => {
            shared.tell(&source, &format!("no connection to Postgres: {error}"));
            return Ended::Rests(UNCONNECTED);
        }
    };
    let mut connection = AbortOnDropHandle::new(task);
    let holder = Holder {
        shared: Arc::clone(&shared),
        client,
        alive_at: Instant::now(),
        failures: 0,
        problem: None,
        source,
        stop,
    };
    let ended = tokio::select! {
        biased;
        _ = &mut connection => Stop::Lost("the connection to Postgres has ended".to_owned()),
        ended = holder.hold(backend) => match ended {
            Err(stop) => stop,
        },
    };
    match ended {
        Stop::Asked | Stop::NotOurs => Ended::Gone,
        Stop::Unusable(_) => Ended::Rests(UNUSABLE),
        Stop::Refused(_) => Ended::Rests(REFUSED),
        Stop::Lost(reason) => {
            tracing::warn!(
                source = name,
                reason,
                "a source's connection was lost; whoever finds the source free asks on"
            );
            // The server may still have it, with the lock.
            drop(connection);
            end(&shared.polling.pool, &[backend]).await;
            Ended::Gone
        }
    }
}

pub(super) struct Holder {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Client,
    pub(super) source: Watched,
    pub(super) stop: CancellationToken,
    /// When Postgres was last told that this holder lives.
    pub(super) alive_at: Instant,
    /// Questions in a row that came to nothing.
    pub(super) failures: u32,
    pub(super) problem: Option<String>,
}

impl Holder {
    async fn hold(mut self, backend: lane_connection::Backend) -> Result<Infallible, Stop> {
        let worker_id = self.shared.polling.worker_id;
        let holding = source_poll::hold(&self.client, &self.source, worker_id, backend);
        if !answered(holding).await? {
            return Err(Stop::NotOurs);
        }
        let ended = match self.source.definition.poll {
            Platform::Telegram => self.ask().await,
            Platform::Discord => self.listen().await,
        };
        if let Err(Stop::Unusable(reason) | Stop::Refused(reason)) = &ended {
            self.set_problem(Some(reason.clone()));
            self.alive().await?;
        }
        ended
    }

    async fn ask(&mut self) -> Result<Infallible, Stop> {
        let definition = self.source.definition.clone();
        let environment = self.shared.polling.environment.clone();
        // The token may stand in a file.
        let opening = tokio::task::spawn_blocking(move || {
            let api_url = definition.chat.api_url.as_deref();
            TelegramBot::open(&definition.token_env, api_url, &environment)
        });
        let bot = match opening.await {
            Ok(opened) => Arc::new(opened.map_err(Stop::Unusable)?),
            Err(error) => return Err(Stop::Unusable(error.to_string())),
        };
        let template = self.source.definition.poll;
        let template = template.template(&self.source.definition.chat.session);
        let template = template.map_err(Stop::Unusable)?;
        let wanted = self.wanted(&bot)?;
        let mut downloads = Downloads::new(&self.source.name, wanted);
        let replies = Replies::telegram(Arc::clone(&bot));
        let me = self.me(&bot).await?;
        tracing::info!(
            source = self.source.name,
            bot = me.username,
            "this worker asks for a source's messages"
        );
        let mut most = MOST;
        let mut memory = Memory::default();
        loop {
            let offset = self.alive().await?;
            let asked_at = Instant::now();
            // After a failure the answer is wanted at once: it says whether that is over.
            let keep_open = if self.failures == 0 {
                POLL
            } else {
                Duration::ZERO
            };
            let mut question = json!({
                "timeout": keep_open.as_secs(),
                "limit": most,
                "allowed_updates": telegram::kinds(&self.source.definition.chat),
            });
            if let Some(next) = offset.next_update.filter(|_| offset.is_fresh) {
                question["offset"] = next.into();
            }
            let answer = bot.call("getUpdates", &question, POLL + BEYOND);
            let answer = match self.while_alive(answer).await? {
                Ok(answer) => answer,
                Err(BotError::Unreadable(reason)) => {
                    most = (most / 4).max(1);
                    self.failed(reason).await?;
                    continue;
                }
                Err(error) => {
                    self.refused(error).await?;
                    continue;
                }
            };
            let is_empty = answer.as_array().is_some_and(Vec::is_empty);
            let updates = telegram::updates(&self.source.definition.chat, &answer);
            let mut batch = Batch {
                client: &mut self.client,
                source: &self.source,
                template: &template,
                me: &me,
                replies: &replies,
                updates: &self.shared.polling.updates,
                memory: &mut memory,
                downloads: &mut downloads,
                until: self.alive_at + TAKEN_WITHIN,
            };
            match batch.take(offset, updates).await {
                Ok(Progress::Moved) => {
                    most = MOST;
                    self.succeeded();
                }
                Ok(Progress::KeptBack) => {
                    self.succeeded();
                    let waiting = timeout(SHORTEST, downloads.arrived());
                    let _is_over = self.while_alive(waiting).await?;
                }
                Ok(Progress::Nothing) if is_empty => {
                    self.succeeded();
                    let rest = SHORTEST.saturating_sub(asked_at.elapsed());
                    self.pause(rest).await?;
                }
                Ok(Progress::Nothing) => {
                    let reason = "the platform sends nothing but updates that it was told to forget, or that have no id";
                    self.failed(reason.to_owned()).await?;
                }
                Err(Failed::Later(reason)) => {
                    self.failures = self.failures.max(4);
                    self.failed(format!("its messages wait: {reason}")).await?;
                }
                Err(Failed::Lost(reason)) => return Err(Stop::Lost(reason)),
            }
        }
    }

    /// Where attachments go. Another worker may have a folder for them.
    fn wanted(&self, bot: &Arc<TelegramBot>) -> Result<Option<Wanted>, Stop> {
        let Some(most) = self.source.definition.chat.max_file_bytes else {
            return Ok(None);
        };
        let attachments = self.shared.polling.environment.attachments().cloned();
        let attachments = attachments.ok_or_else(|| {
            Stop::Unusable(
                "this worker has no folder for attachments: set worker.attachments_dir, or take `attachments` out of \
                 the source"
                    .to_owned(),
            )
        })?;
        let bot = Arc::clone(bot);
        Ok(Some(Wanted {
            bot,
            attachments,
            most,
        }))
    }

    /// Which bot this is, and that no other source asks for it.
    async fn me(&mut self, bot: &TelegramBot) -> Result<Me, Stop> {
        loop {
            let asking = bot.call("getMe", &Value::Null, BEYOND);
            match self.while_alive(asking).await? {
                Ok(me) if me["id"].is_i64() => {
                    let bot = format!("telegram {}", me["id"]);
                    return self.enter(bot, me["username"].as_str()).await;
                }
                Ok(_) => self.failed("getMe names no bot".to_owned()).await?,
                Err(error) => self.refused(error).await?,
            }
        }
    }

    /// Enters which bot this is.
    pub(super) async fn enter(&mut self, id: String, username: Option<&str>) -> Result<Me, Stop> {
        let entering = source_poll::enter_bot(&self.client, self.source.source_id, &id);
        match answered(entering).await? {
            Bot::Entered => {}
            Bot::Lost => return Err(Stop::NotOurs),
            Bot::Taken { by } => {
                let by = by.unwrap_or_else(|| "another".to_owned());
                return Err(Stop::Unusable(format!(
                    "source {by} asks for the same bot: each message is for one of them only. Give this source the \
                     token of a bot of its own, or remove one of the two"
                )));
            }
        }
        self.succeeded();
        Ok(Me {
            bot: id,
            username: username.map(str::to_owned),
        })
    }

    /// A question was refused: waits until it may be asked again.
    pub(super) async fn refused(&mut self, error: BotError) -> Result<(), Stop> {
        match error {
            BotError::Unauthorized(_) => Err(Stop::Unusable(format!(
                "{error}. Replace what {} holds: {}",
                self.source.definition.token_env,
                match self.source.definition.poll {
                    Platform::Telegram => "the messages wait at Telegram for a day",
                    Platform::Discord => "Discord keeps messages for bots for some minutes only",
                }
            ))),
            BotError::TooFast(_, after) => {
                self.set_problem(Some(error.to_string()));
                self.pause(after).await
            }
            BotError::Conflict(told) => {
                self.failures += 1;
                if self.failures == 1 {
                    return self.pause(CONFLICT).await;
                }
                self.set_problem(Some(format!(
                    "another program asks for this bot's messages, or it has a webhook: stop that program, or call \
                     deleteWebhook. {told}"
                )));
                self.pause(LONGEST).await
            }
            BotError::Unreadable(reason) | BotError::Refused(reason) | BotError::Away(reason) => {
                self.failed(reason).await
            }
        }
    }

    /// A question came to nothing: waits longer each time.
    pub(super) async fn failed(&mut self, reason: String) -> Result<(), Stop> {
        let pause = SHORTEST * 2_u32.pow(self.failures.min(5));
        self.failures += 1;
        // Once is no problem yet.
        if self.failures > 1 {
            self.set_problem(Some(reason));
        }
        self.pause(pause.min(LONGEST)).await
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.set_problem(None);
    }

    pub(super) fn set_problem(&mut self, problem: Option<String>) {
        match &problem {
            Some(problem) => self.shared.tell(&self.source, problem),
            None => self.shared.mended(&self.source),
        }
        if self.problem != problem {
            self.problem = problem;
            // Postgres is told with the next sign of life: soon.
            self.alive_at -= ALIVE_EVERY.min(self.alive_at.elapsed());
        }
    }

    pub(super) async fn pause(&mut self, rest: Duration) -> Result<(), Stop> {
        self.while_alive(sleep(rest)).await
    }

    /// Awaits something outside, and gives signs of life meanwhile.
    pub(super) async fn while_alive<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Stop::Asked),
                done = &mut work => return Ok(done),
                () = sleep_until(self.alive_at + ALIVE_EVERY) => {}
            }
            self.alive().await?;
        }
    }

    /// Tells Postgres that this holder lives, and what is wrong; learns how far the source is.
    pub(super) async fn alive(&mut self) -> Result<Offset, Stop> {
        if self.stop.is_cancelled() {
            return Err(Stop::Asked);
        }
        self.alive_at = Instant::now();
        let problem = self.problem.as_deref();
        let telling = source_poll::alive(&self.client, self.source.source_id, problem);
        answered(telling).await?.ok_or(Stop::NotOurs)
    }
}

pub(super) async fn answered<T>(
    asked: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, Stop> {
    match timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.class() == ErrorClass::ConnectionLost => {
            Err(Stop::Lost(error.to_string()))
        }
        Ok(Err(error)) => Err(Stop::Lost(format!("{error}: {}", error.source))),
        Err(_) => Err(Stop::Lost("Postgres does not answer".to_owned())),
    }
}
