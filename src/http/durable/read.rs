//! GET and HEAD: what a stream is, what it has from an offset on, and waiting for more.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use deadpool_postgres::Object;
use jiff::civil::{Date, date};
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::durable;
use lanekeeper_postgres::follow::{self, Next, PageBound};
use lanekeeper_postgres::log::{LoggedEvent, Reader};
use lanekeeper_postgres::token::{Grant, Scope};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Client;

use super::answer::{Answer, etag, has};
use super::content::{self, Content, Event};
use super::offset::{Offset, Start};
use super::request::{Asked, Mode, refused};
use super::{Durable, Name, Named, missing, named, sse};
use crate::access::Peer;
use crate::connections::{ConnectionPermit, Following};
use crate::live::single::{At, Single, Step};
use crate::problem::Problem;
use crate::problem_type;

/// For Postgres to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Before every day of the log.
const BEGINNING: Date = date(2000, 1, 1);
/// Which event is the first, and nothing of it.
const FIRST: PageBound = PageBound {
    events: 1,
    bytes: 1,
    payload_bytes: 0,
};

/// HEAD.
pub async fn head(
    State(durable): State<Arc<Durable>>,
    path: Named,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let name = named(path)?;
    durable.judge(&headers, peer, Scope::Read, &name).await?;
    let _place = durable.desk.request()?;
    let state = durable.state(&name, false).await?;
    let answer = Answer::new(StatusCode::OK)
        .with("content-type", &state.content_type)
        .next_offset(state.newest)
        .closed(state.closed)
        .not_stored();
    let answer = match state.ttl_seconds {
        Some(ttl) => answer.with("stream-ttl", ttl.to_string()),
        None => answer,
    };
    Ok(match state.expires_at {
        Some(at) => answer.with("stream-expires-at", at.to_string()),
        None => answer,
    }
    .done())
}

/// GET.
pub async fn read(
    State(durable): State<Arc<Durable>>,
    path: Named,
    Extension(peer): Extension<Peer>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let name = named(path)?;
    let grant = durable.judge(&headers, peer, Scope::Read, &name).await?;
    let asked = Asked::read(uri.query().unwrap_or(""))?;
    let request = durable.desk.request()?;
    let reading = Reading {
        state: durable.state(&name, true).await?,
        durable,
        name,
        grant,
        asked,
    };
    match reading.asked.mode {
        Mode::CatchUp => reading.catch_up(&headers).await,
        Mode::LongPoll => {
            let from = reading.from()?;
            if from < reading.state.newest {
                return reading.page(&headers).await;
            }
            if reading.state.closed {
                return Ok(reading.nothing(from, true));
            }
            // Nothing is held while it waits.
            drop(request);
            reading.long_poll(from, &permit).await
        }
        Mode::Sse => {
            let from = reading.from()?;
            if from < reading.state.newest && reading.asked.from != Start::Beginning {
                reading.refuse_gone(from).await?;
            }
            drop(request);
            let following = follow(&permit)?;
            sse::answer(reading, from, following).await
        }
    }
}

fn follow(permit: &Arc<ConnectionPermit>) -> Result<Following, Problem> {
    permit.follow().ok_or_else(Problem::too_many_followers)
}

/// One client's read.
pub struct Reading {
    pub durable: Arc<Durable>,
    pub name: Name,
    grant: Option<Arc<Grant>>,
    pub asked: Asked,
    pub state: durable::State,
}

impl Reading {
    pub fn content(&self) -> Content {
        Content::of(&self.state.content_type)
    }

    /// The seq behind which it begins.
    fn from(&self) -> Result<i64, Problem> {
        let state = &self.state;
        match self.asked.from {
            Start::Beginning => Ok(state.first_seq - 1),
            Start::Now => Ok(state.newest),
            Start::Behind(Offset(seq)) if seq > state.newest => Err(refused(format!(
                "the offset is beyond the end of the stream, {}",
                Offset(state.newest)
            ))),
            Start::Behind(Offset(seq)) if seq < state.first_seq - 1 => Err(gone()),
            Start::Behind(Offset(seq)) => Ok(seq),
        }
    }

    async fn catch_up(&self, headers: &HeaderMap) -> Result<Response, Problem> {
        if self.asked.from == Start::Now {
            return Ok(Answer::new(StatusCode::OK)
                .with("content-type", &self.state.content_type)
                .next_offset(self.state.newest)
                .up_to_date(true)
                .closed(self.state.closed)
                .not_stored()
                .body(content::body(self.content(), &[]))
                .done());
        }
        self.page(headers).await
    }

    /// What there is from the offset on, as much as one answer takes.
    async fn page(&self, headers: &HeaderMap) -> Result<Response, Problem> {
        let from = self.from()?;
        let state = &self.state;
        let page = self.durable.page(state.session_id, from + 1).await?;
        let next = page.last().map_or(from, |last| last.seq);
        if self.asked.from != Start::Beginning {
            let first = page.first().map_or(state.newest + 1, |first| first.seq);
            if first > from + 1 && from < state.newest {
                return Err(gone());
            }
        }
        // Where all of it is gone, the next read begins behind it.
        let next = match page.is_empty() {
            true => state.newest,
            false => next,
        };
        let is_up_to_date = next >= state.newest;
        let is_closed = state.closed && is_up_to_date;
        let etag = etag(state, from, next, is_closed);
        let answer = |status| {
            let answer = Answer::new(status)
                .with("etag", &etag)
                .next_offset(next)
                .up_to_date(is_up_to_date)
                .closed(is_closed);
            match self.asked.mode {
                Mode::CatchUp => answer,
                Mode::LongPoll | Mode::Sse => answer.cursor(self.asked.cursor.as_deref()),
            }
        };
        if has(headers, &etag) {
            return Ok(answer(StatusCode::NOT_MODIFIED).done());
        }
        let events: Vec<Event<'_>> = page.iter().map(Event::from).collect();
        Ok(answer(StatusCode::OK)
            .with("content-type", &state.content_type)
            .body(content::body(self.content(), &events))
            .done())
    }

    /// A long poll's answer where nothing came.
    fn nothing(&self, from: i64, is_closed: bool) -> Response {
        let answer = Answer::new(StatusCode::NO_CONTENT)
            .next_offset(from)
            .up_to_date(true)
            .closed(is_closed)
            .not_stored();
        match is_closed {
            true => answer,
            false => answer.cursor(self.asked.cursor.as_deref()),
        }
        .done()
    }

    async fn long_poll(
        &self,
        from: i64,
        permit: &Arc<ConnectionPermit>,
    ) -> Result<Response, Problem> {
        let until = Instant::now() + self.durable.config.long_poll();
        let _following = follow(permit)?;
        let mut single = self.join(from + 1).await?;
        loop {
            // Whoever is sent away comes again and is told then.
            let step = timeout_at(until, single.next()).await.ok().flatten();
            let events = match step {
                Some(Step::Events(events)) => events,
                Some(Step::Idle) => continue,
                Some(Step::Ended) => {
                    let is_closed = self.is_closed().await?;
                    return Ok(self.nothing(from, is_closed));
                }
                Some(Step::Disconnected) | None => return Ok(self.nothing(from, false)),
            };
            let events: Vec<Event<'_>> = events.iter().map(|json| event(json)).collect();
            let next = single.next_seq() - 1;
            let is_closed = single.has_ended() && self.is_closed().await?;
            return Ok(Answer::new(StatusCode::OK)
                .with("content-type", &self.state.content_type)
                .with("etag", etag(&self.state, from, next, is_closed))
                .next_offset(next)
                .up_to_date(single.is_at_end())
                .closed(is_closed)
                .cursor(self.asked.cursor.as_deref())
                .body(content::body(self.content(), &events))
                .done());
        }
    }

    /// Follows the stream from a seq on.
    pub async fn join(&self, next: i64) -> Result<Single, Problem> {
        let expires_in_ms = self.grant.as_ref().and_then(|grant| grant.expires_in_ms);
        let at = At {
            stream: &self.name.stream,
            session: &self.name.session,
            next,
            token_id: self.grant.as_ref().map(|grant| grant.token_id),
            expires_in: expires_in_ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
        };
        Single::join(&self.durable.live, at).await
    }

    /// Whether the end of the session is the end of the stream: a deletion closes the session too.
    pub async fn is_closed(&self) -> Result<bool, Problem> {
        match self.durable.state(&self.name, false).await {
            Ok(state) => Ok(state.closed && state.first_seq == self.state.first_seq),
            Err(missing) if missing.problem_type() == problem_type::NOT_FOUND => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// An event stream cannot say later that what it was to begin with is gone.
    async fn refuse_gone(&self, from: i64) -> Result<(), Problem> {
        let next = Next {
            session_id: self.state.session_id,
            seq: from + 1,
            day: BEGINNING,
        };
        let first = self
            .durable
            .look(async |client| follow::page(client, &[next], FIRST).await)
            .await?;
        match first.first() {
            Some(first) if first.seq == from + 1 => Ok(()),
            _ => Err(gone()),
        }
    }
}

/// An event as a follower gets it.
pub fn event(json: &[u8]) -> Event<'_> {
    serde_json::from_slice(json).expect("a follower's events are JSON with a payload and headers")
}

fn gone() -> Problem {
    let detail = "what the stream had at this offset is gone: nothing was done";
    Problem::new(problem_type::GONE, detail).hint("begin anew with offset=-1")
}

impl Durable {
    /// The stream, which is there.
    async fn state(&self, name: &Name, is_use: bool) -> Result<durable::State, Problem> {
        let state = self
            .look(async |client| durable::state(client, &name.stream, &name.session, is_use).await)
            .await?;
        state.ok_or_else(|| missing(name))
    }

    async fn page(&self, session_id: i64, seq: i64) -> Result<Vec<LoggedEvent>, Problem> {
        self.look(async |client| Reader::new(session_id, seq).page(client).await)
            .await
    }

    /// Asks Postgres. A connection that does not answer in time does not go back to the pool.
    async fn look<T>(
        &self,
        read: impl AsyncFnOnce(&Client) -> Result<T, StoreError>,
    ) -> Result<T, Problem> {
        let client = self.desk.pool.get().await.map_err(|_| Problem::busy())?;
        match timeout(ANSWER_WITHIN, read(&client)).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(Problem::of_statement(&error)),
            Err(_) => {
                drop(Object::take(client));
                Err(Problem::away())
            }
        }
    }
}
