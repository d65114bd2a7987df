//! Which sessions this worker follows for its clients, and what is to be read of them.
//!
//! ```text
//!  producer ──NOTIFY──► listen ──► queue ──► reader ──► feed ──► inboxes ──► followers
//!                        (one connection)     (one query for many sessions)
//! ```
//!
//! The queue holds each session once, in the order of notifications. A fence in it means: everything that was committed
//! before the fence's horizon is in the queue before it, or was read.

mod registration;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lanekeeper_postgres::follow::Horizon;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::feed::{Event, Feed};
use super::inbox::{Ended, Inbox};
pub use registration::Registration;

/// How long an event stays in memory for followers at most, once newer ones come.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Something to read.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    Session(i64),
    /// A session that nobody follows by name, of a stream that has followers who may want it.
    Unknown {
        stream_id: i32,
        session_id: i64,
    },
    Fence(Horizon),
}

#[derive(Default)]
pub struct Stream {
    pub name: Arc<str>,
    followers: usize,
    unused_since: Option<Instant>,
    pub registration: Registration,
    /// Followers of the whole stream.
    wide: Vec<Weak<Inbox>>,
    /// Those that wait for sessions which are not there yet.
    waiting: Vec<Weak<Inbox>>,
    /// The last fence's.
    horizon: Option<Horizon>,
}

#[derive(Default)]
struct State {
    streams: HashMap<i32, Stream>,
    feeds: HashMap<i64, Arc<Feed>>,
    queue: VecDeque<Work>,
    queued: HashSet<i64>,
    /// Events in memory, by age.
    kept: VecDeque<(Weak<Feed>, i64, usize, Instant)>,
    kept_bytes: usize,
    inboxes: Vec<Weak<Inbox>>,
    /// Something was read for a stream's followers since the last fence.
    wants_fence: bool,
    /// The number and the horizon of the fence that is under way.
    fence: Option<(u64, Horizon)>,
}

pub struct Hub {
    state: Mutex<State>,
    most_bytes: usize,
    /// There is work.
    pub work: Notify,
    /// Streams came or went, or a fence is wanted.
    pub changed: Notify,
}

impl Hub {
    pub fn new(most_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            most_bytes,
            work: Notify::new(),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A follower of the stream is there, until [`Self::leave`].
    pub fn enter(&self, stream_id: i32, name: &Arc<str>, inbox: &Arc<Inbox>, is_wide: bool) {
        let mut state = self.state();
        let stream = state.streams.entry(stream_id).or_default();
        stream.name = Arc::clone(name);
        stream.followers += 1;
        stream.unused_since = None;
        if is_wide {
            stream.wide.push(Arc::downgrade(inbox));
        }
        state.inboxes.push(Arc::downgrade(inbox));
        drop(state);
        self.changed.notify_one();
    }

    /// A follower left. Its inbox is gone, or about to go.
    pub fn leave(&self, stream_id: i32, sessions: impl Iterator<Item = i64>) {
        let mut state = self.state();
        let state = &mut *state;
        if let Some(stream) = state.streams.get_mut(&stream_id) {
            stream.followers -= 1;
            stream.wide.retain(|inbox| inbox.strong_count() > 0);
            stream.waiting.retain(|inbox| inbox.strong_count() > 0);
            if stream.followers == 0 {
                stream.unused_since = Some(Instant::now());
            }
        }
        let is_wide = |stream: &i32| {
            state
                .streams
                .get(stream)
                .is_some_and(|s| !s.wide.is_empty())
        };
        for session_id in sessions {
            if let Some(feed) = state.feeds.get(&session_id)
                && !is_wide(&feed.stream_id)
                && !feed.is_followed()
            {
                state.feeds.remove(&session_id);
            }
        }
        // Most of the list are those that are there.
        if state.inboxes.len() > 64
            && state.inboxes.len() > 2 * state.streams.values().map(|s| s.followers).sum::<usize>()
        {
            state.inboxes.retain(|inbox| inbox.strong_count() > 0);
        }
    }

    /// The session's feed, which tells this follower from now on.
    pub fn join(
        &self,
        stream_id: i32,
        session_id: i64,
        name: &Arc<str>,
        inbox: &Arc<Inbox>,
    ) -> Arc<Feed> {
        let mut state = self.state();
        let feed = state
            .feeds
            .entry(session_id)
            .or_insert_with(|| Feed::new(stream_id, session_id, Arc::clone(name)));
        feed.add(inbox);
        Arc::clone(feed)
    }

    /// The feed of a session, for a follower of the whole stream.
    pub fn feed(&self, stream_id: i32, session_id: i64, name: &str) -> Arc<Feed> {
        let mut state = self.state();
        let feed = state
            .feeds
            .entry(session_id)
            .or_insert_with(|| Feed::new(stream_id, session_id, name.into()));
        Arc::clone(feed)
    }

    /// The id of a stream that is followed.
    pub fn stream_id(&self, name: &str) -> Option<i32> {
        let state = self.state();
        let mut streams = state.streams.iter();
        streams
            .find(|(_, stream)| &*stream.name == name)
            .map(|(id, _)| *id)
    }

    pub fn stream_name(&self, stream_id: i32) -> Arc<str> {
        let state = self.state();
        state
            .streams
            .get(&stream_id)
            .map(|stream| Arc::clone(&stream.name))
            .unwrap_or_default()
    }

    pub fn known(&self, session_id: i64) -> Option<Arc<Feed>> {
        self.state().feeds.get(&session_id).cloned()
    }

    /// Tells this follower when a session of the stream appears.
    pub fn wait_for_names(&self, stream_id: i32, inbox: &Arc<Inbox>) {
        if let Some(stream) = self.state().streams.get_mut(&stream_id) {
            stream.waiting.push(Arc::downgrade(inbox));
        }
    }

    /// The session may have something new.
    pub fn stir(&self, session_id: i64) {
        self.state().add(session_id);
        self.work.notify_one();
    }

    /// Sessions of a stream may have something new.
    pub fn notified(&self, stream_id: i32, sessions: impl Iterator<Item = i64>) {
        let mut state = self.state();
        let state = &mut *state;
        let wants_unknown = state
            .streams
            .get(&stream_id)
            .is_some_and(|stream| !stream.wide.is_empty() || !stream.waiting.is_empty());
        for session_id in sessions {
            if state.feeds.contains_key(&session_id) {
                state.add(session_id);
            } else if wants_unknown && state.queued.insert(session_id) {
                state.queue.push_back(Work::Unknown {
                    stream_id,
                    session_id,
                });
            }
        }
        self.work.notify_one();
    }

    /// All sessions of these streams may have something new; of all streams where there are none.
    pub fn stir_streams(&self, of: impl Fn(i32) -> bool) {
        let mut state = self.state();
        let of: Vec<i64> = state
            .feeds
            .values()
            .filter(|feed| of(feed.stream_id))
            .map(|feed| feed.session_id)
            .collect();
        for session_id in of {
            state.add(session_id);
        }
        drop(state);
        self.work.notify_one();
    }

    /// The next work: one fence, one unknown session, or up to `most` sessions.
    pub fn take(&self, most: usize) -> Vec<Work> {
        let mut state = self.state();
        let mut taken = Vec::new();
        while taken.len() < most {
            match state.queue.front() {
                Some(Work::Session(_)) => {}
                Some(_) if taken.is_empty() => {}
                _ => break,
            }
            let Some(work) = state.queue.pop_front() else {
                break;
            };
            taken.push(work);
            match work {
                Work::Session(session_id) => {
                    state.queued.remove(&session_id);
                }
                Work::Unknown { session_id, .. } => {
                    state.queued.remove(&session_id);
                    break;
                }
                Work::Fence(_) => break,
            }
        }
        taken
    }

    /// What could not be done, or not to its end, comes first again.
    pub fn put_back(&self, work: impl DoubleEndedIterator<Item = Work>) {
        let mut state = self.state();
        for work in work.rev() {
            match work {
                Work::Session(session_id) | Work::Unknown { session_id, .. } => {
                    // It may have been notified meanwhile: the one in front is read before any fence.
                    if !state.queued.insert(session_id) {
                        state.queue.retain(|other| {
                            !matches!(other, Work::Session(id) | Work::Unknown { session_id: id, .. } if *id == session_id)
                        });
                    }
                }
                Work::Fence(_) => {}
            }
            state.queue.push_front(work);
        }
    }

    /// New events of a feed are in memory. Drops the oldest of all feeds where they are too many or too old.
    pub fn keep<'a>(&self, feed: &Arc<Feed>, events: impl Iterator<Item = &'a Arc<Event>>) {
        let mut state = self.state();
        let now = Instant::now();
        for event in events {
            let bytes = event.bytes();
            state.kept_bytes += bytes;
            state
                .kept
                .push_back((Arc::downgrade(feed), event.seq, bytes, now));
        }
        while let Some((_, _, _, at)) = state.kept.front()
            && (state.kept_bytes > self.most_bytes || now.duration_since(*at) > KEPT_FOR)
            && let Some((feed, seq, bytes, _)) = state.kept.pop_front()
        {
            state.kept_bytes -= bytes;
            if let Some(feed) = feed.upgrade() {
                feed.drop_up_to(seq);
            }
        }
    }

    /// The followers of the whole stream.
    pub fn wide(&self, stream_id: i32) -> Vec<Weak<Inbox>> {
        let mut state = self.state();
        let Some(stream) = state.streams.get(&stream_id) else {
            return Vec::new();
        };
        let wide = stream.wide.clone();
        if !wide.is_empty() && !std::mem::replace(&mut state.wants_fence, true) {
            self.changed.notify_one();
        }
        wide
    }

    /// Those that wait for a session by its name.
    pub fn waiting(&self, stream_id: i32) -> Vec<Arc<Inbox>> {
        let state = self.state();
        let waiting = state.streams.get(&stream_id).map(|s| s.waiting.as_slice());
        let waiting = waiting.unwrap_or_default().iter();
        waiting.filter_map(Weak::upgrade).collect()
    }

    /// Ends the followers that came with an access token: this one, or any.
    pub fn end_tokens(&self, token_id: Option<i64>) {
        for inbox in self.inboxes() {
            if inbox.token_id.is_some() && (token_id.is_none() || inbox.token_id == token_id) {
                inbox.end(Ended::Revoked);
            }
        }
    }

    pub fn end_all(&self) {
        for inbox in self.inboxes() {
            inbox.end(Ended::Stopping);
        }
    }

    pub fn inboxes(&self) -> Vec<Arc<Inbox>> {
        let state = self.state();
        state.inboxes.iter().filter_map(Weak::upgrade).collect()
    }
}

impl State {
    fn add(&mut self, session_id: i64) {
        if self.queued.insert(session_id) {
            self.queue.push_back(Work::Session(session_id));
        }
    }
}
