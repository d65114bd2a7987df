//! D5: past events of one subscription are delivered again.

mod ends;
mod order;
mod paused;
mod refused;

use std::time::Duration;

use lanekeeper_core::bucket::Rate;
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::replay::{self, By, Pace, Range, Replay};

use super::bed::{Bed, LIMIT};
use crate::support::wait_until;

fn all() -> Range {
    Range {
        subscription: "out".to_owned(),
        ..Range::default()
    }
}

fn of(sessions: &str) -> Range {
    Range {
        sessions: Some(sessions.to_owned()),
        ..all()
    }
}

const FAST: Pace = Pace {
    rate: None,
    concurrency: Pace::CONCURRENCY,
};

fn at(sends: u32) -> Pace {
    Pace {
        rate: Some(Rate::new(sends, Duration::from_secs(1)).unwrap()),
        ..FAST
    }
}

async fn start(bed: &Bed, range: &Range, pace: &Pace) -> i64 {
    replay::start(&bed.client, range, pace, By::default())
        .await
        .unwrap()
}

/// Why it is refused, and what to do.
async fn refusal(bed: &Bed, range: &Range) -> (String, String) {
    let refused = replay::start(&bed.client, range, &FAST, By::default()).await;
    said(refused.unwrap_err())
}

fn said(error: StoreError) -> (String, String) {
    let code = error.sqlstate().unwrap().to_owned();
    let said = error.refusal().unwrap();
    (
        code,
        format!("{}. {}", said.message, said.hint.unwrap_or_default()),
    )
}

async fn find(bed: &Bed, id: i64) -> Replay {
    replay::find(&bed.client, id).await.unwrap().unwrap()
}

/// Waits until a replay has ended; returns it.
async fn ended(bed: &Bed, id: i64) -> Replay {
    wait_until(LIMIT, "the replay has ended", async || {
        find(bed, id).await.ended_at.is_some()
    })
    .await;
    find(bed, id).await
}

/// The seqs of a session as they arrived, and which of them were replayed.
fn arrived(bed: &Bed, session: &str) -> Vec<(i64, bool)> {
    let seen = bed.fake.seen();
    let of_session = seen
        .deliveries
        .iter()
        .filter(|one| &*one.event.session == session);
    of_session
        .map(|one| (one.event.seq, one.replayed))
        .collect()
}

fn replayed(bed: &Bed, session: &str) -> Vec<i64> {
    let arrived = arrived(bed, session).into_iter();
    arrived
        .filter_map(|(seq, again)| again.then_some(seq))
        .collect()
}

/// A bed with so many sessions that have so many events each, all delivered.
async fn delivered(sessions: i64, events: i64) -> Bed {
    let bed = Bed::new().await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(sessions, events).await;
    bed.drained().await;
    worker.stop().await;
    bed
}
