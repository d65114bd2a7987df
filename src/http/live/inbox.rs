//! What wakes one follower: the sessions with something new, in the order in which it came.
//!
//! An inbox holds no events, only which sessions to look at, each once. So it is as small for a client that never reads as
//! for one that does.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lanekeeper_postgres::follow::Horizon;
use tokio::sync::Notify;

use super::feed::Feed;

/// Sessions that may wait in one inbox. A follower with more of them is too slow.
const MOST: usize = 10_000;

/// Something for the follower to do.
#[derive(Clone)]
pub enum Ready {
    /// A session has new events, or was closed.
    Feed(Arc<Feed>),
    /// Every event of transactions below the horizon is in the sessions that came before this.
    Horizon(Horizon),
    /// Notifications may have been missed: look for sessions with events above the horizon.
    Rescan,
    /// A session of the stream appeared. It may be one that the follower waits for by name.
    Appeared,
}

/// Why a follower is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    TooSlow,
    Revoked,
    Expired,
    Stopping,
}

#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    pub woken: Notify,
    /// The access token that the follower came with.
    pub token_id: Option<i64>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Ready>,
    /// The sessions in `ready`.
    queued: HashSet<i64>,
    appeared: bool,
    behind_since: Option<Instant>,
    ended: Option<Ended>,
}

impl Inbox {
    pub fn new(token_id: Option<i64>) -> Arc<Self> {
        Arc::new(Self {
            token_id,
            ..Self::default()
        })
    }

    pub fn put(&self, ready: Ready) {
        let mut state = self.state();
        match &ready {
            Ready::Feed(feed) => {
                if !state.queued.insert(feed.session_id) {
                    return;
                }
                if state.queued.len() > MOST {
                    state.ended.get_or_insert(Ended::TooSlow);
                }
            }
            Ready::Appeared if std::mem::replace(&mut state.appeared, true) => return,
            // The newest horizon stands for the one right before it.
            Ready::Horizon(_) if matches!(state.ready.back(), Some(Ready::Horizon(_))) => {
                state.ready.pop_back();
            }
            Ready::Rescan if matches!(state.ready.back(), Some(Ready::Rescan)) => return,
            _ => {}
        }
        if state.ended == Some(Ended::TooSlow) {
            state.ready.clear();
            state.queued.clear();
        } else {
            state.ready.push_back(ready);
        }
        state.behind_since.get_or_insert_with(Instant::now);
        drop(state);
        self.woken.notify_one();
    }

    /// The next thing to do.
    pub fn take(&self) -> Option<Ready> {
        let mut state = self.state();
        let ready = state.ready.pop_front();
        match &ready {
            Some(Ready::Feed(feed)) => {
                state.queued.remove(&feed.session_id);
            }
            Some(Ready::Appeared) => state.appeared = false,
            Some(_) => {}
            None => state.behind_since = None,
        }
        ready
    }

    pub fn end(&self, why: Ended) {
        self.state().ended.get_or_insert(why);
        self.woken.notify_one();
    }

    pub fn ended(&self) -> Option<Ended> {
        self.state().ended
    }

    /// Since when there is something that the follower has not looked at.
    pub fn behind_since(&self) -> Option<Instant> {
        self.state().behind_since
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
