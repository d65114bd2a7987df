//! D5, D6: archived days are restored from their files, replayed, and dropped again. What was restored is never taken for
//! undelivered (I4, I13).

mod kept;
mod refused;
mod replayed;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lanekeeper_engine::{RestoreError, Restored, restore};
use lanekeeper_postgres::replay::{self, By, Pace, Range, Replay};
use tempfile::TempDir;

use super::archive::{archive_by_worker, goes, names};
use super::days::age;
use crate::engine::bed::{Bed, LIMIT};
use crate::support::wait_until;

const DAY: Duration = Duration::from_secs(86_400);
/// Events of each session: so many are archived, and so many come later.
const OLD: i64 = 40;
const NEW: i64 = 5;

const RESTORED: &str = "SELECT count(*) FROM lanekeeper.restored_event";
const PARTITIONS: &str = "SELECT count(*) FROM pg_inherits
                          WHERE inhparent = 'lanekeeper.restored_event'::regclass";
const READY: &str = "SELECT count(*) FROM lanekeeper.ready";

/// A bed whose first day was delivered, written to a file and dropped.
struct Archived {
    bed: Bed,
    folder: TempDir,
}

impl Archived {
    /// Three sessions of `runs`, `s1` to `s3`, with events that a file has. `more` of them is appended by the caller.
    async fn with(more: &str) -> Self {
        let bed = Bed::new().await;
        bed.enqueue_bulk(3, OLD).await;
        bed.client.batch_execute(more).await.unwrap();
        Self::of(bed).await
    }

    async fn of(bed: Bed) -> Self {
        deliver(&bed).await;
        age(&bed).await;
        let folder = tempfile::tempdir().unwrap();
        archive_by_worker(&bed, &folder).await;
        goes(&bed).await;
        Self { bed, folder }
    }

    /// The same, and events that the log has.
    async fn and_more() -> Self {
        let archived = Self::with("").await;
        archived.bed.enqueue_bulk(3, NEW).await;
        deliver(&archived.bed).await;
        archived
    }

    fn file(&self) -> PathBuf {
        let [name] = &names(&self.folder)[..] else {
            panic!("one file: {:?}", names(&self.folder));
        };
        self.folder.path().join(name)
    }

    async fn restore(&self) -> Restored {
        try_to(&self.bed, &self.file()).await.unwrap()
    }
}

async fn try_to(bed: &Bed, file: &Path) -> Result<Restored, RestoreError> {
    restore(&mut bed.db.connect().await, file, DAY).await
}

/// Has a worker deliver everything, and stops it.
async fn deliver(bed: &Bed) {
    let worker = bed.worker().await;
    bed.drained().await;
    worker.stop().await;
    let others = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid()
                  AND backend_type = 'client backend'";
    wait_until(LIMIT, "the worker's connections are gone", async || {
        bed.count(others).await == 0
    })
    .await;
}

fn all() -> Range {
    Range {
        subscription: "out".to_owned(),
        ..Range::default()
    }
}

const FAST: Pace = Pace {
    rate: None,
    concurrency: Pace::CONCURRENCY,
};

async fn start(bed: &Bed, range: &Range, pace: &Pace) -> i64 {
    replay::start(&bed.client, range, pace, By::default())
        .await
        .unwrap()
}

async fn ended(bed: &Bed, id: i64) -> Replay {
    let find = async || replay::find(&bed.client, id).await.unwrap().unwrap();
    wait_until(LIMIT, "the replay has ended", async || {
        find().await.ended_at.is_some()
    })
    .await;
    find().await
}

/// The seqs of a session that were replayed, as they arrived.
fn replayed(bed: &Bed, session: &str) -> Vec<i64> {
    let seen = bed.fake.seen();
    let again = seen.deliveries.iter();
    again
        .filter(|one| one.replayed && &*one.event.session == session)
        .map(|one| one.event.seq)
        .collect()
}

/// How much was delivered for the first time.
fn delivered(bed: &Bed) -> usize {
    let seen = bed.fake.seen();
    seen.deliveries.iter().filter(|one| !one.replayed).count()
}
