//! A request to follow: what it asks for, whether it may, and where it begins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, Uri};
use lanekeeper_postgres::follow::{self, Named};
use lanekeeper_postgres::token::Scope;
use tokio::time::Instant;

use super::Live;
use super::cursor::Cursor;
use super::follower::{Follower, Follows, Position};
use super::link::{Link, Refused};
use super::query::{Asked, From, invalid};
use super::reader::{self, ReadError};
use crate::access::{Peer, Reach};
use crate::problem::Problem;
use crate::problem_type;

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Session(String),
    Sessions(Vec<String>),
    Stream,
}

/// A request that may follow, and begins at its place.
pub enum Joined {
    Follower(Box<Follower>),
    /// All that was asked for was sent, and nothing more can come.
    AtEnd,
}

/// Judges a request, and joins its client to the feeds of what it follows.
pub async fn join(
    live: &Arc<Live>,
    stream: String,
    path_session: Option<String>,
    headers: &HeaderMap,
    peer: Peer,
    uri: &Uri,
) -> Result<Joined, Problem> {
    let query = uri.query().unwrap_or("");
    let path_and_query = uri.path_and_query().map_or("", |path| path.as_str());
    let link = live.links.judge(path_and_query, SystemTime::now());
    let (asked, until, token_id) = match link {
        Some(link) => {
            let Link {
                signed,
                rest,
                expires_in,
            } = link.map_err(refused)?;
            (Asked::read(signed, rest, true)?, Some(expires_in), None)
        }
        None => {
            let asked = Asked::read(query, "", false)?;
            let sessions: Vec<&str> = match &path_session {
                Some(session) => vec![session],
                None => asked.sessions.iter().map(String::as_str).collect(),
            };
            let reach = match sessions.is_empty() {
                true => Reach::WholeStream,
                false => Reach::Sessions(&sessions),
            };
            let judged = live
                .access
                .judge_reach(headers, peer, Scope::Read, &stream, reach);
            let grant = judged.await?;
            let until = grant
                .as_ref()
                .and_then(|grant| grant.expires_in_ms)
                .map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()));
            (asked, until, grant.map(|grant| grant.token_id))
        }
    };
    if path_session.is_some() && !asked.sessions.is_empty() {
        return Err(invalid(
            "session is a parameter of a whole stream: nothing was done",
        ));
    }
    let from = asked.from()?;
    // A browser that comes back sends the header with the URL as it was at first.
    let cursor = match headers.get("last-event-id") {
        Some(given) if !given.is_empty() => Some(given.to_str().unwrap_or("?").to_owned()),
        _ => asked.cursor.clone(),
    };
    let cursor = cursor
        .map(|text| Cursor::parse(&text).ok_or_else(|| bad_cursor(&text)))
        .transpose()?;
    let target = match path_session {
        Some(session) => Target::Session(session),
        None if asked.sessions.is_empty() => Target::Stream,
        None => Target::Sessions(asked.sessions),
    };
    let until = until.map(|until| Instant::now() + until);
    let mut follower = Follower::new(live, &stream, token_id, until);
    follower.types = asked.types;
    match target {
        Target::Session(session) => {
            join_sessions(&mut follower, vec![session], cursor, from, true).await
        }
        Target::Sessions(sessions) => {
            join_sessions(&mut follower, sessions, cursor, from, false).await
        }
        Target::Stream => join_stream(&mut follower, cursor, from).await,
    }
    .map(|is_at_end| match is_at_end {
        true => Joined::AtEnd,
        false => Joined::Follower(Box::new(follower)),
    })
}

fn refused(refused: Refused) -> Problem {
    match refused {
        Refused::NoSecrets => {
            Problem::unauthorized("this worker knows no secret of signed links: nothing was done")
                .hint("set live.link_secrets on every worker")
        }
        Refused::Invalid => {
            Problem::unauthorized("the link's signature is not valid: nothing was done")
        }
        Refused::Expired => Problem::unauthorized("the link has expired: nothing was done")
            .hint("ask whoever gave it for a new one; the cursor is still good"),
    }
}

fn bad_cursor(text: &str) -> Problem {
    let text = Problem::excerpt(text);
    invalid(format!("{text:?} is no cursor: nothing was done"))
        .hint("give back the id of the last message as it came, as Last-Event-ID or as cursor")
}

fn foreign(detail: impl Into<String>) -> Problem {
    Problem::new(problem_type::FOREIGN_CURSOR, detail)
        .hint("leave the cursor away, and begin with what the session has")
}

fn ahead(detail: String) -> Problem {
    Problem::new(problem_type::CURSOR_AHEAD, detail).hint(
        "it is of another database, or this one was restored: drop what you have, and follow without a cursor",
    )
}

pub fn away(error: &ReadError) -> Problem {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "a client cannot follow now"
    );
    Problem::away()
}

async fn find(follower: &Follower, sessions: &[String]) -> Result<Vec<Named>, Problem> {
    let found = reader::with(&follower.live.pool, async |client| {
        follow::named(client, &follower.stream, sessions).await
    })
    .await
    .map_err(|error| away(&error))?;
    if found.is_empty() {
        let stream = &follower.stream;
        let detail = format!("there is no stream {stream:?}: nothing was done");
        return Err(Problem::new(problem_type::NOT_FOUND, detail));
    }
    Ok(found)
}

/// Joins the named sessions. Whether all of it was sent already.
pub(super) async fn join_sessions(
    follower: &mut Follower,
    sessions: Vec<String>,
    cursor: Option<Cursor>,
    from: From,
    is_one: bool,
) -> Result<bool, Problem> {
    let stream_id = match follower.live.hub.stream_id(&follower.stream) {
        Some(stream_id) => stream_id,
        None => find(follower, &sessions).await?[0].stream_id,
    };
    follower.enter(stream_id, false);
    // Read, or read again, now that followers of the stream are known: what is appended from here on is notified, or found by the
    // reads that go with a registration.
    let found = find(follower, &sessions).await?;
    let listed = match cursor {
        Some(Cursor::Stream { .. }) => {
            return Err(foreign(
                "the cursor is one of a whole stream: nothing was done",
            ));
        }
        Some(Cursor::Seq(_)) if !is_one => {
            return Err(foreign(
                "the cursor is one of a single session: nothing was done",
            ));
        }
        Some(Cursor::Seq(seq)) => found[0].session_id.map(|id| BTreeMap::from([(id, seq)])),
        Some(Cursor::Sessions(listed)) => Some(listed),
        None => None,
    };
    let has_cursor = listed.is_some();
    let mut listed = listed.unwrap_or_default();
    let mut missing = Vec::new();
    let mut at_end = true;
    for session in found {
        let Some(session_id) = session.session_id else {
            if is_one {
                let (stream, name) = (&follower.stream, &session.name);
                let detail = format!("stream {stream:?} has no session {name:?}: nothing was done");
                let hint = format!(
                    "it is there with its first event; follow /v1/streams/{stream}/live?session=… to wait for it"
                );
                return Err(Problem::new(problem_type::NOT_FOUND, detail).hint(hint));
            }
            missing.push(session.name);
            at_end = false;
            continue;
        };
        let given = listed.remove(&session_id);
        let (next, is_implicit) = match (given, from) {
            (Some(given), _) => (given.saturating_add(1), false),
            // The session was not there when the cursor was given.
            (None, _) if has_cursor => (1, true),
            (None, From::Seq(seq)) => (seq, false),
            (None, From::End) => (session.newest + 1, true),
            (None, From::Default) => (1, true),
        };
        if next > session.newest + 1 {
            let (name, newest) = (&session.name, session.newest);
            return Err(ahead(format!(
                "session {name:?} has no seq {} yet, its newest is {newest}: nothing was done",
                next - 1
            )));
        }
        at_end &= session.closed.is_some()
            && next > session.newest
            && (has_cursor || from != From::Default);
        let name: Arc<str> = session.name.into();
        let hub = &follower.live.hub;
        let feed = hub.join(follower.stream_id, session_id, &name, &follower.inbox);
        feed.begin(session.newest + 1, session.closed);
        hub.stir(session_id);
        follower
            .positions
            .insert(session_id, Position::new(feed, next, is_implicit));
        follower.current.push_back(session_id);
    }
    if let Some((id, _)) = listed.first_key_value() {
        return Err(foreign(format!(
            "the cursor is one of another session (number {id}): nothing was done"
        )));
    }
    if !missing.is_empty() {
        follower
            .live
            .hub
            .wait_for_names(follower.stream_id, &follower.inbox);
        // One of them may have appeared meanwhile.
        follower.inbox.put(super::inbox::Ready::Appeared);
    }
    follower.follows = Follows::Sessions { missing };
    Ok(at_end)
}

/// Joins a whole stream.
async fn join_stream(
    follower: &mut Follower,
    cursor: Option<Cursor>,
    from: From,
) -> Result<bool, Problem> {
    if let From::Seq(_) = from {
        return Err(invalid("from is a seq of one session: nothing was done")
            .hint("follow a whole stream from now on, or from the cursor that it gave you"));
    }
    let found = find(follower, &["".to_owned()]).await?;
    follower.enter(found[0].stream_id, true);
    let (now, oldest) = reader::with(&follower.live.pool, async |client| {
        Ok((
            follow::horizon(client).await?,
            follow::oldest_day(client).await?,
        ))
    })
    .await
    .map_err(|error| away(&error))?;
    let (since, listed, from_now) = match cursor {
        None => (now, BTreeMap::new(), true),
        Some(Cursor::Stream { since, sessions }) => (since, sessions, false),
        Some(_) => {
            return Err(foreign("the cursor is one of a session: nothing was done"));
        }
    };
    if since.xact > now.xact {
        return Err(ahead(
            "the cursor is ahead of this database: nothing was done".to_owned(),
        ));
    }
    if let Some(oldest) = oldest
        && since.day > super::BEGINNING
        && since.day.tomorrow().is_ok_and(|day| day < oldest)
    {
        follower
            .notices
            .push(super::message::Notice::StreamResyncRequired {
                cursor_day: since.day.to_string(),
                first_day: oldest.to_string(),
            });
    }
    follower.follows = Follows::Stream {
        since,
        listed,
        from_now,
    };
    follower.scanning = Some(0);
    Ok(false)
}
