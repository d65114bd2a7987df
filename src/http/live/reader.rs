//! Reads what is new of followed sessions, once for all followers of this worker: one query for many sessions.
//!
//! The busier the log, the more sessions share a query. While nothing happens there is none.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::follow::{self, Next, PageBound, Read};
use thiserror::Error;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::feed::{Event, Feed};
use super::hub::{Hub, Work};
use super::inbox::Ready;

/// Sessions that one query reads.
const SESSIONS: usize = 32;
/// What it reads of each.
pub const BOUND: PageBound = PageBound {
    events: 100,
    bytes: 256 * 1024,
    payload_bytes: 64 * 1024,
};
/// For Postgres to answer.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(15);
const AGAIN: Duration = Duration::from_millis(500);

/// Why nothing was read. The same is read again.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("there is no connection to Postgres for live followers")]
    Pool(#[from] deadpool_postgres::PoolError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("Postgres does not answer")]
    Silent,
}

/// Runs one statement or a few on a connection of the pool; one that does not answer in time does not go back to it.
pub async fn with<T>(
    pool: &Pool,
    run: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, StoreError>,
) -> Result<T, ReadError> {
    let client = pool.get().await?;
    match timeout(ANSWER_WITHIN, run(&client)).await {
        Ok(result) => Ok(result?),
        Err(_) => {
            drop(deadpool_postgres::Object::take(client));
            Err(ReadError::Silent)
        }
    }
}

/// Reads what the hub's queue has, until `stopping`.
pub async fn run(hub: Arc<Hub>, pool: Pool, stopping: CancellationToken) {
    loop {
        let work = hub.take(SESSIONS);
        if work.is_empty() {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = hub.work.notified() => {}
            }
            continue;
        }
        if let Err(error) = read(&hub, &pool, &work).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "live followers wait: their events cannot be read for a moment"
            );
            hub.put_back(work.into_iter());
            tokio::select! {
                () = stopping.cancelled() => return,
                () = sleep(AGAIN) => {}
            }
        }
    }
}

async fn read(hub: &Hub, pool: &Pool, work: &[Work]) -> Result<(), ReadError> {
    let mut feeds = Vec::new();
    for work in work {
        match *work {
            Work::Session(session_id) => feeds.extend(hub.known(session_id)),
            Work::Unknown {
                stream_id,
                session_id,
            } => return appear(hub, pool, stream_id, session_id).await,
            Work::Fence(horizon) => {
                hub.reach(horizon);
                return Ok(());
            }
        }
    }
    let next: Vec<Next> = feeds.iter().filter_map(|feed| feed.next()).collect();
    if next.is_empty() {
        return Ok(());
    }
    let read = with(pool, async |client| {
        follow::page(client, &next, BOUND).await
    });
    let mut read = read.await?.into_iter().peekable();
    let (mut more, mut silent) = (Vec::new(), Vec::new());
    // Both are in the order of ids.
    feeds.sort_by_key(|feed| feed.session_id);
    for feed in &feeds {
        let mut of_feed: Vec<Read> = Vec::new();
        while let Some(one) = read.next_if(|one| one.session_id == feed.session_id) {
            of_feed.push(one);
        }
        if of_feed.is_empty() {
            silent.push(Arc::clone(feed));
        } else {
            if push(hub, feed, of_feed) {
                more.push(Work::Session(feed.session_id));
            }
            feed.tell(&hub.wide(feed.stream_id));
        }
    }
    hub.put_back(more.into_iter());
    tell_closed(pool, hub, &silent).await
}

/// Adds what was read to its feed. Whether there may be more.
fn push(hub: &Hub, feed: &Arc<Feed>, read: Vec<Read>) -> bool {
    let stream = hub.stream_name(feed.stream_id);
    let (mut events, mut bytes) = (Vec::new(), 0);
    let is_full = read.len() as i64 >= BOUND.events;
    for mut one in read {
        let (seq, day) = (one.seq, one.day);
        feed.set_closed(one.closed.take());
        let event = Event::new(&stream, &feed.name, one).map(Arc::new);
        bytes += event
            .as_ref()
            .map_or(BOUND.payload_bytes, |event| event.bytes() as i64);
        feed.push(seq, day, event.clone());
        events.extend(event);
    }
    hub.keep(feed, events.iter());
    is_full || bytes >= BOUND.bytes / 2
}

/// Sessions that were stirred and have no new event: they may be closed.
async fn tell_closed(pool: &Pool, hub: &Hub, silent: &[Arc<Feed>]) -> Result<(), ReadError> {
    let ids: Vec<i64> = silent
        .iter()
        .filter(|feed| feed.next().is_some())
        .map(|feed| feed.session_id)
        .collect();
    if ids.is_empty() {
        return Ok(());
    }
    let states = with(pool, async |client| follow::states(client, &ids).await).await?;
    for state in states {
        if let Some(feed) = silent.iter().find(|f| f.session_id == state.session_id) {
            let is_closed = state.closed.is_some();
            feed.set_closed(state.closed);
            if is_closed {
                feed.tell(&hub.wide(feed.stream_id));
            }
        }
    }
    Ok(())
}

/// A session that nobody follows by name has something new.
async fn appear(hub: &Hub, pool: &Pool, stream_id: i32, session_id: i64) -> Result<(), ReadError> {
    for inbox in hub.waiting(stream_id) {
        inbox.put(Ready::Appeared);
    }
    let wide = hub.wide(stream_id);
    if wide.is_empty() {
        return Ok(());
    }
    let horizon = hub.horizon(stream_id);
    let (state, horizon, first) = with(pool, async |client| {
        let states = follow::states(client, &[session_id]).await?;
        let horizon = match horizon {
            Some(horizon) => horizon,
            None => follow::horizon(client).await?,
        };
        let first = follow::first_since(client, session_id, horizon.xact).await?;
        Ok((states.into_iter().next(), horizon, first))
    })
    .await?;
    // A notification may name any number.
    if let Some(state) = state.filter(|state| state.stream_id == stream_id) {
        let feed = hub.feed(stream_id, session_id, &state.name);
        feed.open(horizon.xact, first);
        feed.set_closed(state.closed);
        feed.tell(&wide);
        hub.stir(session_id);
    }
    Ok(())
}
