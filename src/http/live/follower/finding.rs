//! Which sessions a follower finds: those of its stream, and those that it waits for by name.
//!
//! A follower of a stream has a position in each session that may have events above its commit horizon. When a fence
//! shows that the horizon moved on, the positions below it are forgotten: the horizon tells as much.

use std::sync::Arc;

use lanekeeper_postgres::follow::{self, Horizon};

use super::super::feed::Feed;
use super::super::inbox::{Ended, Ready};
use super::super::reader::{self, ReadError};
use super::{Follower, Follows, Position};

/// Sessions whose position a follower of a stream remembers.
const MOST_POSITIONS: usize = 20_000;

impl Follower {
    /// A session was stirred.
    pub(super) async fn look_at(&mut self, feed: &Arc<Feed>) -> Result<(), ReadError> {
        let session_id = feed.session_id;
        if !self.positions.contains_key(&session_id) {
            let Follows::Stream { since, listed, .. } = &mut self.follows else {
                return Ok(());
            };
            let since = since.xact;
            let next = match (listed.get(&session_id), feed.first_since(since)) {
                (Some(given), _) => given + 1,
                (None, Some(first)) => first,
                (None, None) => {
                    let read = reader::with(&self.live.pool, async |client| {
                        follow::first_since(client, session_id, since).await
                    })
                    .await;
                    match read {
                        Ok(first) => first,
                        Err(error) => {
                            // Before anything that came after it.
                            self.retried = Some(Ready::Feed(Arc::clone(feed)));
                            return Err(error);
                        }
                    }
                }
            };
            listed.remove(&session_id);
            self.place(Position::new(Arc::clone(feed), next, true));
        }
        if !self.current.contains(&session_id) {
            self.current.push_back(session_id);
        }
        Ok(())
    }

    fn place(&mut self, position: Position) {
        if self.positions.len() >= MOST_POSITIONS {
            self.inbox.end(Ended::TooSlow);
        }
        self.positions.insert(position.feed.session_id, position);
    }

    /// Everything of transactions below the horizon was handed over: those sessions need no position of their own.
    pub(super) fn reach(&mut self, horizon: Horizon) {
        if let Follows::Stream { since, listed, .. } = &mut self.follows
            && horizon.xact >= since.xact
        {
            *since = horizon;
            listed.clear();
            self.positions
                .retain(|_, position| position.xact >= horizon.xact);
        }
    }

    /// Looks for sessions with events above the horizon.
    pub(super) async fn scan(&mut self, after: i64) -> Result<(), ReadError> {
        let Follows::Stream {
            since, from_now, ..
        } = &self.follows
        else {
            self.scanning = None;
            return Ok(());
        };
        let (since, from_now, stream_id) = (*since, *from_now, self.stream_id);
        let (page, states) = reader::with(&self.live.pool, async |client| {
            let page = follow::scan(client, stream_id, after, since).await?;
            let ids: Vec<i64> = page
                .sessions
                .iter()
                .map(|session| session.session_id)
                .collect();
            let states = match ids.is_empty() {
                true => Vec::new(),
                false => follow::states(client, &ids).await?,
            };
            Ok((page, states))
        })
        .await?;
        for behind in page.sessions {
            let Some(state) = states.iter().find(|s| s.session_id == behind.session_id) else {
                continue;
            };
            let feed = self
                .live
                .hub
                .feed(stream_id, behind.session_id, &state.name);
            feed.begin(behind.newest + 1, state.closed.clone());
            self.live.hub.stir(behind.session_id);
            if self.positions.contains_key(&behind.session_id) {
                self.current.push_back(behind.session_id);
                continue;
            }
            let Follows::Stream { listed, .. } = &mut self.follows else {
                break;
            };
            let (next, is_implicit) = match listed.remove(&behind.session_id) {
                Some(given) => (given + 1, false),
                None if from_now => (behind.newest + 1, true),
                None => (behind.first, true),
            };
            let mut position = Position::new(feed, next, is_implicit);
            // What it was given before is of transactions below; what comes is looked at by its own number.
            position.xact = behind.next_xact - 1;
            self.place(position);
            self.current.push_back(behind.session_id);
        }
        self.scanning = page.next;
        if page.next.is_none()
            && let Follows::Stream { from_now, .. } = &mut self.follows
        {
            *from_now = false;
        }
        Ok(())
    }

    /// Looks for the sessions that were not there.
    pub(super) async fn find_missing(&mut self) -> Result<(), ReadError> {
        let Follows::Sessions { missing } = &mut self.follows else {
            return Ok(());
        };
        if missing.is_empty() {
            return Ok(());
        }
        let (stream, names) = (Arc::clone(&self.stream), missing.clone());
        let named = reader::with(&self.live.pool, async |client| {
            follow::named(client, &stream, &names).await
        });
        let named = match named.await {
            Ok(named) => named,
            Err(error) => {
                self.retried = Some(Ready::Appeared);
                return Err(error);
            }
        };
        for found in named {
            let Some(session_id) = found.session_id else {
                continue;
            };
            missing.retain(|name| *name != found.name);
            let name: Arc<str> = found.name.into();
            let feed = self
                .live
                .hub
                .join(self.stream_id, session_id, &name, &self.inbox);
            feed.begin(found.newest + 1, found.closed);
            self.live.hub.stir(session_id);
            self.positions
                .insert(session_id, Position::new(feed, 1, true));
            self.current.push_back(session_id);
        }
        Ok(())
    }
}
