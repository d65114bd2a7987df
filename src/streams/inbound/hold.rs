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
use lanekeeper_postgres::lane_connection::{self, Opened};
use lanekeeper_postgres::source_poll::{self, Bot, Offset, Watched};
use lanekeeper_postgres::{ErrorClass, StoreError};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::batch::{Batch, Failed, Me, Progress};
use super::ending::end;
use super::memory::Memory;
use super::reply::Replies;
use super::shared::Shared;
use super::{ALIVE_EVERY, ANSWER_WITHIN, telegram};

/// After a sign of life. Whatever was begun by then ends before the holder counts as silent, a statement that its time-out ends
/// included.
const TAKEN_WITHIN: Duration = Duration::from_millis(2_500);
/// How long Telegram may keep a question open, and how long the answer may take beyond that.
const POLL: Duration = Duration::from_secs(25);
const BEYOND: Duration = Duration::from_secs(10);
/// Updates of one answer: Telegram's own limit.
const MOST: u32 = 100;
/// Between two questions of which nothing comes.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// The holder before may have a question open that Telegram has not ended yet.
const CONFLICT: Duration = Duration::from_secs(3);
/// Until a source is tried again that this worker cannot ask.
const UNUSABLE: Duration = Duration::from_secs(30);
const UNCONNECTED: Duration = Duration::from_secs(3);

/// How holding ended.
pub(super) enum Ended {
    /// The source is gone, changed or lost. Nothing keeps this worker from taking it again.
    Gone,
    /// This worker cannot ask, and rests for this long. Another may.
    Rests(Duration),
}

/// Why holding ends.
enum Stop {
    /// The worker stops, or the source was changed.
    Asked,
    /// Another worker has it, or it is gone.
    NotOurs,
    /// The connection ended, or Postgres does not answer on it.
    Lost(String),
    /// This worker cannot ask for it.
    Unusable(String),
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

struct Holder {
    shared: Arc<Shared>,
    client: Client,
    source: Watched,
    stop: CancellationToken,
    /// When Postgres was last told that this holder lives.
    alive_at: Instant,
    /// Questions in a row that came to nothing.
    failures: u32,
    problem: Option<String>,
}

impl Holder {
    async fn hold(mut self, backend: lane_connection::Backend) -> Result<Infallible, Stop> {
        let worker_id = self.shared.polling.worker_id;
        let holding = source_poll::hold(&self.client, &self.source, worker_id, backend);
        if !answered(holding).await? {
            return Err(Stop::NotOurs);
        }
        match self.ask().await {
            Err(Stop::Unusable(reason)) => {
                self.set_problem(Some(reason.clone()));
                self.alive().await?;
                Err(Stop::Unusable(reason))
            }
            ended => ended,
        }
    }

    async fn ask(&mut self) -> Result<Infallible, Stop> {
        let definition = self.source.definition.clone();
        let environment = self.shared.polling.environment.clone();
        // The token may stand in a file.
        let opening = tokio::task::spawn_blocking(move || {
            let api_url = definition.api_url.as_deref();
            TelegramBot::open(&definition.token_env, api_url, &environment)
        });
        let bot = match opening.await {
            Ok(opened) => Arc::new(opened.map_err(Stop::Unusable)?),
            Err(error) => return Err(Stop::Unusable(error.to_string())),
        };
        let template = self.source.definition.poll;
        let template = template.template(&self.source.definition.session);
        let template = template.map_err(Stop::Unusable)?;
        let replies = Replies::new(Arc::clone(&bot));
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
                "allowed_updates": telegram::kinds(&self.source.definition),
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
            let updates = telegram::updates(&self.source.definition, &answer);
            let mut batch = Batch {
                client: &mut self.client,
                source: &self.source,
                template: &template,
                me: &me,
                replies: &replies,
                updates: &self.shared.polling.updates,
                memory: &mut memory,
                until: self.alive_at + TAKEN_WITHIN,
            };
            match batch.take(offset, updates).await {
                Ok(Progress::Moved) => {
                    most = MOST;
                    self.succeeded();
                }
                Ok(Progress::KeptBack) => {
                    self.succeeded();
                    self.pause(SHORTEST).await?;
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

    /// Which bot this is, and that no other source asks for it.
    async fn me(&mut self, bot: &TelegramBot) -> Result<Me, Stop> {
        let me = loop {
            let asking = bot.call("getMe", &Value::Null, BEYOND);
            match self.while_alive(asking).await? {
                Ok(me) if me["id"].is_i64() => break me,
                Ok(_) => self.failed("getMe names no bot".to_owned()).await?,
                Err(error) => self.refused(error).await?,
            }
        };
        let id = format!("{} {}", self.source.definition.poll.as_str(), me["id"]);
        let entering = source_poll::enter_bot(&self.client, self.source.source_id, &id);
        match answered(entering).await? {
            Bot::Entered => {}
            Bot::Lost => return Err(Stop::NotOurs),
            Bot::Taken { by } => {
                let by = by.unwrap_or_else(|| "another".to_owned());
                return Err(Stop::Unusable(format!(
                    "source {by} asks for the same bot: Telegram gives each message to one of them only. Give this \
                     source the token of a bot of its own, or remove one of the two"
                )));
            }
        }
        self.succeeded();
        Ok(Me {
            bot: id,
            username: me["username"].as_str().map(str::to_owned),
        })
    }

    /// A question was refused: waits until it may be asked again.
    async fn refused(&mut self, error: BotError) -> Result<(), Stop> {
        match error {
            BotError::Unauthorized => Err(Stop::Unusable(format!(
                "{error}. Replace what {} holds: the messages wait at Telegram for a day",
                self.source.definition.token_env
            ))),
            BotError::TooFast(after) => {
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
    async fn failed(&mut self, reason: String) -> Result<(), Stop> {
        let pause = SHORTEST * 2_u32.pow(self.failures.min(5));
        self.failures += 1;
        // Once is no problem yet.
        if self.failures > 1 {
            self.set_problem(Some(reason));
        }
        self.pause(pause.min(LONGEST)).await
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        self.set_problem(None);
    }

    fn set_problem(&mut self, problem: Option<String>) {
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

    async fn pause(&mut self, rest: Duration) -> Result<(), Stop> {
        self.while_alive(sleep(rest)).await
    }

    /// Awaits something outside, and gives signs of life meanwhile.
    async fn while_alive<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
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
    async fn alive(&mut self) -> Result<Offset, Stop> {
        if self.stop.is_cancelled() {
            return Err(Stop::Asked);
        }
        self.alive_at = Instant::now();
        let problem = self.problem.as_deref();
        let telling = source_poll::alive(&self.client, self.source.source_id, problem);
        answered(telling).await?.ok_or(Stop::NotOurs)
    }
}

async fn answered<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, Stop> {
    match timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.class() == ErrorClass::ConnectionLost => {
            Err(Stop::Lost(error.to_string()))
        }
        Ok(Err(error)) => Err(Stop::Lost(format!("{error}: {}", error.source))),
        Err(_) => Err(Stop::Lost("Postgres does not answer".to_owned())),
    }
}
