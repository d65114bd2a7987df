//! A source of Discord's gateway from its bot to the loss of the source: one connection after the other, each of which goes
//! on where the one before ended, whichever worker had it.
//!
//! ```text
//! /users/@me ─► bot entered ─► connect ─► HELLO ─► RESUME ─────────► RESUMED ─► dispatches ─► append + move the seq
//!                                 ▲           └─► IDENTIFY ─► READY ─┘ (kept)       │
//!                                 └──────────────── ended ◄─────────────────────────┘
//! ```
//!
//! The id and the address of the session that `READY` names, and the seq behind the last message that was taken, are kept in
//! Postgres, the seq in the transaction that enqueues. Discord dispatches again what came after the seq that RESUME names, so a
//! worker that dies loses nothing, and what comes twice is a duplicate by channel and message. Dispatches are taken as
//! updates of Telegram are (`batch`): one of a locked session waits here, and those of other sessions go on.
//!
//! | what happens | what follows |
//! |---|---|
//! | the connection ends, RECONNECT, a close code not named below | connected again after 1 to 30 s, and resumed |
//! | no heartbeat is acknowledged within the interval | the same: the peer is gone |
//! | INVALID_SESSION that may be resumed | resumed |
//! | INVALID_SESSION, close codes 4007 and 4009 | what is kept is forgotten, and a session begun after 5 s: what was written since is not dispatched |
//! | close codes 4004, 4010 to 4014, 401 | the source is let go, and says why: another worker may have a better token |
//! | no session may be begun today (`session_start_limit`) | asked again after as long as Discord says |
//! | as many messages as `MOST_WAITING` wait for locked sessions | disconnected: they wait at Discord |

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_adapters::{Closed, DiscordBot, Frame, Gateway};
use lanekeeper_core::source::chat::Update;
use lanekeeper_core::source::{Template, discord};
use lanekeeper_postgres::source_poll::{self, Resumption};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use super::ALIVE_EVERY;
use super::batch::{Batch, Failed, Me, Progress};
use super::downloads::Downloads;
use super::hold::{BEYOND, Holder, LONGEST, SHORTEST, Stop, TAKEN_WITHIN, answered};
use super::memory::Memory;
use super::reply::Replies;

/// Dispatches that wait for their sessions.
const MOST_WAITING: usize = 1_000;
/// Discord wants a pause of 1 to 5 s before a session is begun anew.
const BEFORE_IDENTIFY: Duration = Duration::from_secs(5);
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// Discord says some 40 s. Bounds for what a fake or a fault says.
const INTERVALS: (u64, u64) = (100, 300_000);
/// Of the id and the address of a session together. Postgres keeps no longer ones.
const LONGEST_SESSION: usize = 1_000;
/// Attempts in a row after which the address that the session was given is not used any more.
const MOST_AT_ADDRESS: u32 = 3;

/// Close codes after which another connection would end the same way.
const FINAL: [(u16, &str); 6] = [
    (4004, "the token is wrong or was revoked"),
    (4010, "an invalid shard"),
    (
        4011,
        "the bot is in so many servers that Discord wants shards, which Lanekeeper does not have",
    ),
    (4012, "an invalid version of the gateway"),
    (4013, "invalid intents"),
    (
        4014,
        "an intent that is not allowed: switch on Message Content Intent on the page Bot of the application",
    ),
];
/// Close codes after which the session cannot be resumed.
const FORGOTTEN: [u16; 2] = [4007, 4009];

/// What all connections of one holding share.
struct Listening {
    bot: Arc<DiscordBot>,
    template: Template,
    me: Me,
    replies: Replies,
    memory: Memory,
    downloads: Downloads,
    /// In the order of their seqs: those from the first that was not taken on.
    waiting: Vec<Update>,
}

/// One connection.
struct Connection {
    gateway: Gateway,
    interval: Duration,
    beat_at: Instant,
    is_acknowledged: bool,
    /// Of the last dispatch.
    seq: Option<i64>,
}

impl Connection {
    async fn beat(&mut self) -> Result<(), Closed> {
        self.beat_at = Instant::now() + self.interval;
        self.gateway.send(&json!({"op": 1, "d": self.seq})).await
    }
}

impl Holder {
    /// Holds connections to the gateway until the source is lost.
    pub(super) async fn listen(&mut self) -> Result<Infallible, Stop> {
        let definition = self.source.definition.clone();
        let environment = self.shared.polling.environment.clone();
        // The token may stand in a file.
        let opening = tokio::task::spawn_blocking(move || {
            let api_url = definition.chat.api_url.as_deref();
            DiscordBot::open(&definition.token_env, api_url, &environment)
        });
        let bot = match opening.await {
            Ok(opened) => Arc::new(opened.map_err(Stop::Unusable)?),
            Err(error) => return Err(Stop::Unusable(error.to_string())),
        };
        let definition = &self.source.definition;
        let template = definition.poll.template(&definition.chat.session);
        let template = template.map_err(Stop::Unusable)?;
        let me = self.who(&bot).await?;
        let mut listening = Listening {
            replies: Replies::discord(Arc::clone(&bot)),
            bot,
            template,
            me,
            memory: Memory::default(),
            downloads: Downloads::none(),
            waiting: Vec::new(),
        };
        tracing::info!(
            source = self.source.name,
            bot = listening.me.username,
            "this worker listens for a source's messages"
        );
        loop {
            let why = self.connection(&mut listening).await?;
            tracing::debug!(
                source = self.source.name,
                why,
                "a connection to a gateway ended"
            );
            self.failed(why).await?;
        }
    }

    async fn who(&mut self, bot: &DiscordBot) -> Result<Me, Stop> {
        loop {
            let asking = bot.call("users/@me", None, BEYOND);
            match self.while_alive(asking).await? {
                Ok(me) => match me["id"].as_str() {
                    Some(id) => {
                        let bot = format!("discord {id}");
                        return self.enter(bot, me["username"].as_str()).await;
                    }
                    None => self.failed("/users/@me names no bot".to_owned()).await?,
                },
                Err(error) => self.refused(error).await?,
            }
        }
    }

    /// One connection to its end. Returns why it ended.
    async fn connection(&mut self, listening: &mut Listening) -> Result<String, Stop> {
        let source_id = self.source.source_id;
        let kept = answered(source_poll::resumption(&self.client, source_id)).await?;
        let Some(address) = self.address(&listening.bot, kept.as_ref()).await? else {
            return Ok("the gateway's address cannot be had".to_owned());
        };
        let connecting = listening.bot.connect(&address, BEYOND);
        let mut gateway = match self.while_alive(connecting).await? {
            Ok(gateway) => gateway,
            Err(error) => return Ok(error.to_string()),
        };
        let hello = timeout(HELLO_WITHIN, gateway.next());
        let interval = match self.while_alive(hello).await? {
            Ok(Ok(frame)) if frame.op == 10 => frame.data["heartbeat_interval"].as_u64(),
            Ok(Ok(_)) | Err(_) => return Ok("the gateway says no HELLO".to_owned()),
            Ok(Err(closed)) => return self.closed(closed, listening).await,
        };
        let (least, most) = INTERVALS;
        let interval = Duration::from_millis(interval.unwrap_or(40_000).clamp(least, most));
        let first = match &kept {
            Some(kept) => listening.bot.resume(&kept.session_id, kept.seq),
            None => listening.bot.identify(),
        };
        if let Err(closed) = gateway.send(&first).await {
            return self.closed(closed, listening).await;
        }
        let mut connection = Connection {
            gateway,
            // The first one earlier, so that not all clients of Discord beat together.
            beat_at: Instant::now() + interval.mul_f64(share()),
            interval,
            is_acknowledged: true,
            seq: kept.map(|kept| kept.seq),
        };
        let mut again_at = Instant::now();
        loop {
            let next = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Stop::Asked),
                () = sleep_until(self.alive_at + ALIVE_EVERY) => Next::Alive,
                () = sleep_until(connection.beat_at) => Next::Beat,
                () = sleep_until(again_at), if !listening.waiting.is_empty() => Next::Take,
                frame = connection.gateway.next() => match frame {
                    Ok(frame) => Next::Frame(frame),
                    Err(closed) => return self.closed(closed, listening).await,
                },
            };
            match next {
                Next::Alive => {
                    self.alive().await?;
                }
                Next::Beat => {
                    if !connection.is_acknowledged {
                        return Ok("the gateway acknowledges no heartbeat".to_owned());
                    }
                    connection.is_acknowledged = false;
                    if let Err(closed) = connection.beat().await {
                        return self.closed(closed, listening).await;
                    }
                }
                Next::Take => again_at = self.take(listening).await?,
                Next::Frame(frame) => match self.frame(frame, &mut connection, listening).await? {
                    Then::Go => {}
                    Then::Take => again_at = self.take(listening).await?,
                    Then::End(why) => return Ok(why),
                },
            }
            if listening.waiting.len() > MOST_WAITING {
                // They come again.
                listening.waiting.clear();
                return Ok("its messages wait: too many of them are of locked sessions".to_owned());
            }
        }
    }

    async fn frame(
        &mut self,
        frame: Frame,
        connection: &mut Connection,
        listening: &mut Listening,
    ) -> Result<Then, Stop> {
        match frame.op {
            0 => {
                let Some(seq) = frame.seq else {
                    return Ok(Then::End("a dispatch has no seq".to_owned()));
                };
                connection.seq = Some(seq);
                match frame.event.as_deref() {
                    Some("READY") => {
                        // Seqs begin anew.
                        listening.memory = Memory::default();
                        return self.ready(seq, &frame.data).await;
                    }
                    Some("RESUMED") => self.succeeded(),
                    Some("MESSAGE_CREATE") => {
                        let is_known = listening.waiting.iter().any(|update| update.id == seq);
                        if !is_known {
                            let content =
                                discord::created(&self.source.definition.chat, &frame.data);
                            listening.waiting.push(Update { id: seq, content });
                        }
                        return Ok(Then::Take);
                    }
                    _ => {}
                }
            }
            1 => {
                if let Err(closed) = connection.beat().await {
                    return self.closed(closed, listening).await.map(Then::End);
                }
            }
            7 => return Ok(Then::End("Discord wants another connection".to_owned())),
            9 if frame.data == Value::Bool(true) => {
                return Ok(Then::End("Discord wants the session resumed".to_owned()));
            }
            9 => {
                self.forget(listening).await?;
                return Ok(Then::End(
                    "Discord does not know the session any more".to_owned(),
                ));
            }
            11 => connection.is_acknowledged = true,
            _ => {}
        }
        Ok(Then::Go)
    }

    /// A session has begun: keeps how to resume it.
    async fn ready(&mut self, seq: i64, data: &Value) -> Result<Then, Stop> {
        let texts = [&data["session_id"], &data["resume_gateway_url"]].map(Value::as_str);
        let [Some(session_id), Some(address)] = texts else {
            return Ok(Then::End("READY names no session".to_owned()));
        };
        if session_id.len() + address.len() > LONGEST_SESSION {
            return Ok(Then::End(
                "READY names a session of which nobody can keep the name".to_owned(),
            ));
        }
        let resumption = Resumption {
            session_id: session_id.to_owned(),
            address: address.to_owned(),
            seq,
        };
        let keeping = source_poll::keep(&self.client, self.source.source_id, Some(&resumption));
        if !answered(keeping).await? {
            return Err(Stop::NotOurs);
        }
        self.succeeded();
        Ok(Then::Go)
    }

    /// The session cannot be resumed. What came of it is taken before another one begins to count.
    async fn forget(&mut self, listening: &mut Listening) -> Result<(), Stop> {
        while !listening.waiting.is_empty() {
            let again_at = self.take(listening).await?;
            if !listening.waiting.is_empty() {
                self.while_alive(sleep_until(again_at)).await?;
            }
        }
        let keeping = source_poll::keep(&self.client, self.source.source_id, None);
        match answered(keeping).await? {
            true => self.while_alive(tokio::time::sleep(BEFORE_IDENTIFY)).await,
            false => Err(Stop::NotOurs),
        }
    }

    /// Takes what waits. Returns when what is left is tried again.
    async fn take(&mut self, listening: &mut Listening) -> Result<Instant, Stop> {
        let offset = self.alive().await?;
        let mut batch = Batch {
            client: &mut self.client,
            source: &self.source,
            template: &listening.template,
            me: &listening.me,
            replies: &listening.replies,
            updates: &self.shared.polling.updates,
            memory: &mut listening.memory,
            downloads: &mut listening.downloads,
            until: self.alive_at + TAKEN_WITHIN,
        };
        let pause = match batch.take(offset, listening.waiting.clone()).await {
            Ok(Progress::Moved | Progress::Nothing) => Duration::ZERO,
            Ok(Progress::KeptBack) => SHORTEST,
            Err(Failed::Later(reason)) => {
                self.set_problem(Some(format!("its messages wait: {reason}")));
                LONGEST / 10
            }
            Err(Failed::Lost(reason)) => return Err(Stop::Lost(reason)),
        };
        if pause < LONGEST / 10 {
            self.set_problem(None);
        }
        let next = self.alive().await?.next_update.unwrap_or(0);
        listening.waiting.retain(|update| update.id >= next);
        Ok(Instant::now() + pause)
    }

    /// Where to connect. `None`: it is not known, and the wait is over.
    async fn address(
        &mut self,
        bot: &DiscordBot,
        kept: Option<&Resumption>,
    ) -> Result<Option<String>, Stop> {
        if let Some(kept) = kept.filter(|_| self.failures < MOST_AT_ADDRESS) {
            return Ok(Some(kept.address.clone()));
        }
        let asking = bot.call("gateway/bot", None, BEYOND);
        let said = match self.while_alive(asking).await? {
            Ok(said) => said,
            Err(error) => {
                self.refused(error).await?;
                return Ok(None);
            }
        };
        let limit = &said["session_start_limit"];
        if kept.is_none() && limit["remaining"].as_u64() == Some(0) {
            let after = Duration::from_millis(limit["reset_after"].as_u64().unwrap_or(60_000));
            self.set_problem(Some(format!(
                "Discord lets this bot begin no session for {} s more: it began too many",
                after.as_secs()
            )));
            self.pause(after.min(Duration::from_secs(3_600))).await?;
            return Ok(None);
        }
        Ok(said["url"].as_str().map(str::to_owned))
    }

    /// A connection has ended. Returns why, where another one may be better.
    async fn closed(&mut self, closed: Closed, listening: &mut Listening) -> Result<String, Stop> {
        let Closed { code, reason } = closed;
        let Some(code) = code else {
            return Ok(format!("the connection to the gateway ended: {reason}"));
        };
        if let Some((_, why)) = FINAL.iter().find(|(known, _)| *known == code) {
            return Err(Stop::Refused(format!(
                "Discord's gateway closed the connection with {code}: {why}. Nothing is received until this is mended"
            )));
        }
        if FORGOTTEN.contains(&code) {
            self.forget(listening).await?;
        }
        Ok(format!(
            "Discord's gateway closed the connection with {code}: {reason}"
        ))
    }
}

/// What a connection does next.
enum Next {
    Alive,
    Beat,
    Take,
    Frame(Frame),
}

/// What follows a frame.
enum Then {
    Go,
    /// A message came.
    Take,
    End(String),
}

/// Between 0 and 1, another one at each call.
fn share() -> f64 {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    f64::from(nanos % 1_000) / 1_000.0
}
