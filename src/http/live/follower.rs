//! One client: where it stands in each session, and what it gets next.
//!
//! It is asked for its next messages only when the client has taken the ones before. Until then it holds nothing but
//! its positions and an inbox of session ids, so a client that never reads costs no more than one that does.
//!
//! - **Backfill.** A position behind the feed's ring is read from Postgres, page by page. Pages in memory are bounded over
//!   all followers of the worker.
//! - **Live.** A position in the ring takes events from there.
//! - **Too slow.** A follower that was at the end of a session and is `live.max_lag_events` behind again is disconnected, with
//!   the cursor to resume from. It may come back at once and goes through the log then.

mod finding;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::follow::{self, Horizon, Next, PageBound};
use lanekeeper_telemetry::live::Instruments;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout_at};

use super::Live;
use super::cursor::Shown;
use super::feed::{Event, Feed, Taken};
use super::inbox::{Ended, Inbox, Ready};
use super::message::{Message, Notice};
use super::reader::{self, ReadError};

/// Events and bytes that a client is handed at once.
const CHUNK: (usize, usize) = (64, 32 * 1024);
/// Units in which memory is counted.
pub const UNIT: usize = 1024;
/// What one page of the log may take.
const PAGE: PageBound = PageBound {
    events: 100,
    bytes: 64 * 1024,
    payload_bytes: 64 * 1024,
};
const AGAIN: Duration = Duration::from_millis(500);

/// Where it stands in one session.
pub struct Position {
    pub feed: Arc<Feed>,
    /// The seq that it gets next.
    pub next: i64,
    /// Nobody asked for `next` by number: that it is gone is no news.
    pub is_implicit: bool,
    /// It has been at the end.
    pub caught_up: bool,
    /// The client was told that the session is closed.
    pub ended: bool,
    /// The highest number of a transaction whose events it got.
    pub xact: i64,
}

impl Position {
    pub fn new(feed: Arc<Feed>, next: i64, is_implicit: bool) -> Self {
        Self {
            feed,
            next,
            is_implicit,
            caught_up: false,
            ended: false,
            xact: i64::MAX,
        }
    }
}

/// What is followed.
pub enum Follows {
    /// Named sessions. These are not there yet.
    Sessions { missing: Vec<String> },
    Stream {
        since: Horizon,
        /// What a cursor listed of sessions that were not looked at yet.
        listed: BTreeMap<i64, i64>,
        /// What is there already is passed over.
        from_now: bool,
    },
}

pub struct Follower {
    pub live: Arc<Live>,
    pub stream: Arc<str>,
    pub stream_id: i32,
    pub follows: Follows,
    pub positions: BTreeMap<i64, Position>,
    /// Event types that it wants. `None`: all.
    pub types: Option<HashSet<String>>,
    pub inbox: Arc<Inbox>,
    /// Sessions that are being handed over, the first one now.
    pub current: VecDeque<i64>,
    /// A scan that goes on after this session.
    pub scanning: Option<i64>,
    /// What failed for a moment, and comes before the inbox.
    pub retried: Option<Ready>,
    pub heartbeat_at: Instant,
    /// Its access ends then.
    pub until: Option<Instant>,
    /// For what the client was handed last.
    pub held: Option<OwnedSemaphorePermit>,
    pub is_over: bool,
    /// The hub counts it.
    pub has_joined: bool,
    /// What is to be said first.
    pub notices: Vec<Notice>,
    /// The first message, which has the cursor, was sent.
    pub greeted: bool,
}

impl Follower {
    /// It follows nothing yet.
    pub fn new(
        live: &Arc<Live>,
        stream: &str,
        token_id: Option<i64>,
        until: Option<Instant>,
    ) -> Self {
        Self {
            live: Arc::clone(live),
            stream: stream.into(),
            stream_id: 0,
            follows: Follows::Sessions {
                missing: Vec::new(),
            },
            positions: BTreeMap::new(),
            types: None,
            inbox: Inbox::new(token_id),
            current: VecDeque::new(),
            scanning: None,
            retried: None,
            heartbeat_at: Instant::now() + live.heartbeat,
            until,
            held: None,
            is_over: false,
            has_joined: false,
            notices: Vec::new(),
            greeted: false,
        }
    }

    /// Its stream is known: the hub tells it what comes.
    pub fn enter(&mut self, stream_id: i32, is_wide: bool) {
        self.stream_id = stream_id;
        self.has_joined = true;
        self.live
            .hub
            .enter(stream_id, &self.stream, &self.inbox, is_wide);
    }

    /// The cursor of where it stands.
    pub fn cursor(&self) -> String {
        let given = self.positions.iter();
        let given = given.map(|(id, position)| (*id, position.next - 1));
        match &self.follows {
            Follows::Sessions { .. } => Shown {
                since: None,
                sessions: &mut { given },
            }
            .text(),
            Follows::Stream { since, listed, .. } => {
                let listed = listed.iter().map(|(id, seq)| (*id, *seq));
                Shown {
                    since: Some(*since),
                    sessions: &mut given.chain(listed),
                }
                .text()
            }
        }
    }

    /// What the client gets next, at least one message; `None`: nothing any more.
    pub async fn next(&mut self) -> Option<Vec<Message>> {
        self.held = None;
        if self.is_over {
            return None;
        }
        if !self.greeted {
            self.pass_over().await;
            self.greeted = true;
            let id = self.cursor();
            let mut messages = vec![Message::Heartbeat { id: id.clone() }];
            for notice in self.notices.drain(..) {
                let id = id.clone();
                messages.push(Message::Notice { id, notice });
            }
            return Some(messages);
        }
        loop {
            if self.until.is_some_and(|until| until <= Instant::now()) {
                self.inbox.end(Ended::Expired);
            }
            if let Some(why) = self.inbox.ended() {
                return Some(vec![self.disconnect(why)]);
            }
            match self.advance().await {
                Ok(Some(messages)) => {
                    self.heartbeat_at = Instant::now() + self.live.heartbeat;
                    let bytes: usize = messages.iter().map(Message::bytes).sum();
                    self.hold(bytes).await;
                    return Some(messages);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "a live follower waits: its events cannot be read for a moment"
                    );
                    sleep(AGAIN).await;
                    if self.heartbeat_at > Instant::now() {
                        continue;
                    }
                }
            }
            let wake_at = self
                .until
                .map_or(self.heartbeat_at, |until| until.min(self.heartbeat_at));
            let woken = Arc::clone(&self.inbox);
            if timeout_at(wake_at, woken.woken.notified()).await.is_err()
                && self.heartbeat_at <= Instant::now()
            {
                self.heartbeat_at = Instant::now() + self.live.heartbeat;
                return Some(vec![Message::Heartbeat { id: self.cursor() }]);
            }
        }
    }

    /// Passes over what is there, before the client is told that it follows from now on: what is appended after the greeting
    /// is new to it.
    async fn pass_over(&mut self) {
        while let Some(after) = self.scanning
            && matches!(self.follows, Follows::Stream { from_now: true, .. })
            && self.inbox.ended().is_none()
        {
            if let Err(error) = self.scan(after).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a live follower waits: what is there cannot be read for a moment"
                );
                sleep(AGAIN).await;
            }
        }
    }

    /// Memory for what was made is taken, also by what was read for nobody's sake.
    async fn hold(&mut self, bytes: usize) {
        if self.held.is_none() {
            self.held = self.live.room(bytes).await;
        }
    }

    pub fn disconnect(&mut self, why: Ended) -> Message {
        self.is_over = true;
        self.live.instruments.disconnected(why.as_str());
        let id = self.cursor();
        let resume_from = id.clone();
        let reason = why.as_str();
        Message::Notice {
            id,
            notice: Notice::Disconnect {
                reason,
                resume_from,
            },
        }
    }

    /// Goes on with what there is. `None`: there is nothing more to do until it is woken.
    async fn advance(&mut self) -> Result<Option<Vec<Message>>, ReadError> {
        loop {
            if let Some(&session_id) = self.current.front() {
                if let Some(messages) = self.hand_over(session_id).await? {
                    return Ok(Some(messages));
                }
                self.current.pop_front();
                continue;
            }
            if let Some(after) = self.scanning {
                self.scan(after).await?;
                continue;
            }
            let ready = self.retried.take().or_else(|| self.inbox.take());
            match ready {
                Some(Ready::Feed(feed)) => self.look_at(&feed).await?,
                Some(Ready::Horizon(horizon)) => self.reach(horizon),
                Some(Ready::Rescan) => {
                    if matches!(self.follows, Follows::Stream { .. }) {
                        self.scanning = Some(0);
                    }
                }
                Some(Ready::Appeared) => self.find_missing().await?,
                None => return Ok(None),
            }
        }
    }

    /// The next messages of a session; `None`: it has none for now.
    async fn hand_over(&mut self, session_id: i64) -> Result<Option<Vec<Message>>, ReadError> {
        loop {
            let Some(position) = self.positions.get(&session_id) else {
                return Ok(None);
            };
            let lag = position.feed.distance(position.next);
            if position.caught_up && lag > self.live.max_lag_events {
                return Ok(Some(vec![self.disconnect(Ended::TooSlow)]));
            }
            let (events, is_live) = match position.feed.take(position.next, CHUNK.0, CHUNK.1) {
                Taken::Nothing => {
                    self.at_end(session_id);
                    return Ok(None);
                }
                Taken::Ended(closed) => {
                    let notice = Notice::end(&position.feed.name, closed);
                    return Ok(self.end_session(session_id, notice));
                }
                Taken::Events(events) => (events, true),
                Taken::Behind => match self.read_log(session_id).await? {
                    Ok(events) => (events, false),
                    Err(notice) => {
                        let id = self.cursor();
                        return Ok(Some(vec![Message::Notice { id, notice }]));
                    }
                },
            };
            let messages = self.messages(session_id, &events, is_live);
            if !messages.is_empty() {
                return Ok(Some(messages));
            }
        }
    }

    fn at_end(&mut self, session_id: i64) {
        if let Some(position) = self.positions.get_mut(&session_id) {
            position.caught_up = true;
        }
    }

    /// Passes over these events, and returns those of them that are wanted.
    fn messages(&mut self, session_id: i64, events: &[Arc<Event>], is_live: bool) -> Vec<Message> {
        let mut messages = Vec::with_capacity(events.len());
        for event in events {
            let Some(position) = self.positions.get_mut(&session_id) else {
                break;
            };
            position.next = event.seq + 1;
            position.is_implicit = false;
            position.ended = false;
            position.xact = match position.xact {
                i64::MAX => event.xact,
                xact => xact.max(event.xact),
            };
            let is_wanted = self
                .types
                .as_ref()
                .is_none_or(|types| types.contains(&*event.event_type));
            if is_wanted {
                if is_live {
                    self.live.published(event);
                }
                messages.push(Message::Event {
                    id: self.cursor(),
                    json: event.json.clone(),
                });
            }
        }
        messages
    }

    /// Reads the next events from the log; or says that they are gone.
    async fn read_log(
        &mut self,
        session_id: i64,
    ) -> Result<Result<Vec<Arc<Event>>, Notice>, ReadError> {
        let Some(position) = self.positions.get(&session_id) else {
            return Ok(Ok(Vec::new()));
        };
        let feed = Arc::clone(&position.feed);
        let next = Next {
            session_id,
            seq: position.next,
            day: super::BEGINNING,
        };
        self.held = None;
        let mut room = self.live.room(2 * PAGE.bytes as usize).await;
        let read = |bound| {
            reader::with(&self.live.pool, async move |client| {
                follow::page(client, &[next], bound).await
            })
        };
        let mut page = read(PAGE).await?;
        if page.first().is_some_and(|first| first.event.is_none()) {
            // A large one comes alone.
            drop(room.take());
            room = self.live.room(usize::MAX).await;
            page = read(PageBound {
                events: 1,
                bytes: 1,
                payload_bytes: i64::MAX / 2,
            })
            .await?;
        }
        self.held = room;
        // It ends before the first large one.
        let events: Vec<Arc<Event>> = page
            .into_iter()
            .map_while(|one| Event::new(&self.stream, &feed.name, one))
            .map(Arc::new)
            .collect();
        let first = match events.first() {
            Some(first) => first.seq,
            // All that was there is gone.
            None => next.seq + feed.distance(next.seq).max(0),
        };
        if first == next.seq {
            return Ok(Ok(events));
        }
        let Some(position) = self.positions.get_mut(&session_id) else {
            return Ok(Ok(Vec::new()));
        };
        position.next = first;
        if std::mem::replace(&mut position.is_implicit, false) {
            return Ok(Ok(events));
        }
        Ok(Err(Notice::ResyncRequired {
            session: feed.name.to_string(),
            requested_seq: next.seq,
            first_seq: first,
        }))
    }

    /// A session is closed, and its last event was handed over. With the last of the followed sessions, all ends.
    fn end_session(&mut self, session_id: i64, notice: Notice) -> Option<Vec<Message>> {
        let position = self.positions.get_mut(&session_id)?;
        position.caught_up = true;
        if std::mem::replace(&mut position.ended, true) {
            return None;
        }
        if let Follows::Sessions { missing } = &self.follows
            && missing.is_empty()
            && self.positions.values().all(|position| position.ended)
        {
            self.is_over = true;
            self.live.instruments.disconnected(Instruments::END);
        }
        let id = self.cursor();
        Some(vec![Message::Notice { id, notice }])
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.greeted && !self.is_over {
            self.live.instruments.disconnected(Instruments::CLIENT_LEFT);
        }
        let positions = std::mem::take(&mut self.positions);
        let ids: Vec<i64> = positions.keys().copied().collect();
        drop(positions);
        // The hub counts the inboxes that are still there.
        self.inbox = Inbox::new(None);
        if self.has_joined {
            self.live.hub.leave(self.stream_id, ids.into_iter());
        }
    }
}
