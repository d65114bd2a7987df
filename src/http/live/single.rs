//! A follower of one session for another protocol: it gets the session's events as they are, and what is known of its end.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;

use super::Live;
use super::feed::Taken;
use super::follower::Follower;
use super::message::{Message, Notice};
use super::query::From;
use super::request;
use crate::problem::Problem;

/// What came.
#[derive(Debug)]
pub enum Step {
    /// Events as JSON, in order.
    Events(Vec<Bytes>),
    /// Nothing happened for a while.
    Idle,
    /// The session is closed, and all of its events came.
    Ended,
    /// The follower has to come again: it was too slow, its access ended, or the worker stops.
    Disconnected,
}

/// What is followed, and for whom.
pub struct At<'a> {
    pub stream: &'a str,
    pub session: &'a str,
    /// The seq that comes next: the log has it, or it is the one behind the newest.
    pub next: i64,
    pub token_id: Option<i64>,
    /// Until the access ends.
    pub expires_in: Option<Duration>,
}

pub struct Single {
    follower: Box<Follower>,
}

impl Single {
    /// Joins the followers of a session.
    ///
    /// # Errors
    /// There is no such session, its log has not come so far, or Postgres is away.
    pub async fn join(live: &Arc<Live>, at: At<'_>) -> Result<Self, Problem> {
        let until = at.expires_in.map(|after| Instant::now() + after);
        let mut follower = Box::new(Follower::new(live, at.stream, at.token_id, until));
        // Nobody is greeted with a cursor of ours.
        follower.greeted = true;
        let sessions = vec![at.session.to_owned()];
        request::join_sessions(&mut follower, sessions, None, From::Seq(at.next), true).await?;
        for position in follower.positions.values_mut() {
            // What is gone before its first event was not asked for by number.
            position.is_implicit = true;
        }
        Ok(Self { follower })
    }

    /// What comes next; `None`: nothing any more.
    pub async fn next(&mut self) -> Option<Step> {
        let messages = self.follower.next().await?;
        let mut events = Vec::new();
        let mut step = Step::Idle;
        for message in messages {
            match message {
                Message::Event { json, .. } => events.push(json),
                Message::Heartbeat { .. } => {}
                Message::Notice { notice, .. } => {
                    step = match notice {
                        Notice::End { .. } => Step::Ended,
                        // What it was to get next has left the log meanwhile: who comes again is told.
                        _ => Step::Disconnected,
                    }
                }
            }
        }
        Some(if events.is_empty() {
            step
        } else {
            Step::Events(events)
        })
    }

    /// The seq that comes next.
    pub fn next_seq(&self) -> i64 {
        let position = self.follower.positions.values().next();
        position.map_or(1, |position| position.next)
    }

    /// All that was read of the session has come.
    pub fn is_at_end(&self) -> bool {
        let mut positions = self.follower.positions.values();
        positions.all(|position| position.feed.distance(position.next) <= 0)
    }

    /// The session is closed, and all of its events have come.
    pub fn has_ended(&self) -> bool {
        let mut positions = self.follower.positions.values();
        positions.all(|position| matches!(position.feed.take(position.next, 1, 1), Taken::Ended(_)))
    }
}
