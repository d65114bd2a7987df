//! Gets one record onto the disk, and from there into Postgres within a budget.
//!
//! ```text
//! append to the session's spool file ── failed ─► connect ─► send what waits ─► enqueue
//!           │ written: no signal loses it any more
//!           ├─► sync the file, beside all that follows
//!           ▼
//!   connect; send that file up to the record ── stored ─► drain what other sessions left here, while time remains
//!           │
//!           ├─ refused for good ─► rejected/ (and a stand-in event where the payload is the reason)
//!           └─ away, slow, unmigrated, outcome unknown ─► it is in the file; wait for the sync, within the budget
//! ```
//!
//! Nobody waits for the disk where Postgres took the record. Where Postgres did not, and the disk does not confirm the
//! record within the budget either, the record is in the file as the system's memory has it: it outlives this process,
//! and the machine only if the disk still takes it. The call says so ([`Emitted::Unsynced`]).
//!
//! A record whose COMMIT was not answered stays in the spool: its message id makes the second time
//! harmless. The order inside the session is the spool's business: see its invariants.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::error::chain;
use lanekeeper_postgres::append::Fate;
use lanekeeper_producer::spool::drain::{aside, drain_session, send_until};
use lanekeeper_producer::spool::{
    Appended, DrainLimits, DrainReport, Record, Spool, SpoolError, drain,
};
use lanekeeper_producer::{Producer, ProducerError, Way};
use tokio::time::{Instant, timeout_at};

use super::STREAM;

/// The largest record of another session that a hook call sends. A larger one waits for a worker,
/// `lanekeeper spool` or its own session's next call.
const HELP_RECORD_BYTES: u64 = 1 << 20;

/// Session files that a hook call looks at to help.
const HELP_FILES: usize = 64;

const NO_WAY: &str =
    "neither a database URL (LANEKEEPER_DATABASE__URL) nor LANEKEEPER_URL is configured";

/// What became of a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Emitted {
    /// Postgres confirmed it.
    Stored,
    /// Postgres confirmed it, and the spool could not be used.
    StoredWithoutSpool { because: String },
    /// On disk, synced; a drain will bring it in.
    Spooled { because: String },
    /// In the spool's file, and the disk did not confirm it in time: a power loss may take it, nothing else does.
    Unsynced { because: String },
    /// Postgres will never take it: kept in the spool's `rejected/`.
    Rejected { because: String, kept_in: PathBuf },
    /// Nowhere. The one case that a person has to hear of.
    Lost { because: String },
}

/// The way of one record. `way` is `None` where none is configured.
pub struct Emitter<'a> {
    pub way: Option<&'a Way>,
    /// `None` where this machine has no place for one.
    pub spool: Option<&'a Spool>,
    /// For everything that involves Postgres, from the call of [`Emitter::emit`] on.
    pub budget: Duration,
}

impl Emitter<'_> {
    /// `kept` is what came of appending the record to the spool.
    pub async fn emit(&self, record: &Record, kept: Result<Appended, SpoolError>) -> Emitted {
        let deadline = Instant::now() + self.budget;
        match (self.spool, kept) {
            (Some(spool), Ok(kept)) => self.send_kept(spool, record, kept, deadline).await,
            // Nobody waits for a stopped process: out of order, but kept.
            (Some(spool), Err(error @ SpoolError::Locked { .. })) => {
                let because = error.to_string();
                match spool.reject(record, &because) {
                    Ok(kept_in) => Emitted::Rejected { because, kept_in },
                    Err(worse) => Emitted::Lost {
                        because: format!("{because}; {worse}"),
                    },
                }
            }
            (spool, Err(error)) => {
                // What waits there is not sent, and nothing may wait for it.
                let spool = spool.filter(|_| !matches!(error, SpoolError::Untrusted { .. }));
                self.send_unkept(spool, record, &error, deadline).await
            }
            (None, Ok(_)) => unreachable!("a record is kept by a spool"),
        }
    }

    /// Sends what waits of the session, up to the record.
    async fn send_kept(
        &self,
        spool: &Spool,
        record: &Record,
        kept: Appended,
        deadline: Instant,
    ) -> Emitted {
        let kept = Arc::new(kept);
        let unsynced = Arc::clone(&kept);
        let synced = aside(move || unsynced.sync());
        let sent = match self.way {
            None => Err(NO_WAY.to_owned()),
            Some(way) => match Producer::connect(way, deadline).await {
                Ok(producer) => self.send_until(&producer, spool, &kept, deadline).await,
                Err(error) => Err(told(&error)),
            },
        };
        let rejection = |(because, kept_in): (&str, &Path)| Emitted::Rejected {
            because: because.to_owned(),
            kept_in: kept_in.to_owned(),
        };
        let because = match sent {
            Ok(report) => {
                return kept
                    .set_aside()
                    .map(rejection)
                    .or_else(|| rejected(record, report.rejected))
                    .unwrap_or(Emitted::Stored);
            }
            Err(because) => because,
        };
        match timeout_at(deadline, synced).await {
            Ok(Ok(())) => kept
                .set_aside()
                .map_or(Emitted::Spooled { because }, rejection),
            Ok(Err(error)) => Emitted::Lost {
                because: format!("{because}; {error}"),
            },
            Err(_) => Emitted::Unsynced { because },
        }
    }

    async fn send_until(
        &self,
        producer: &Producer,
        spool: &Spool,
        kept: &Appended,
        deadline: Instant,
    ) -> Result<DrainReport, String> {
        let sent = send_until(producer, spool, kept, &limits(deadline)).await;
        let report = sent.map_err(|error| told_of(&error))?;
        self.help(producer, spool, deadline).await;
        Ok(report)
    }

    /// The disk did not take the record: all that is left is Postgres, once nothing of the session
    /// is in the spool that it could overtake.
    async fn send_unkept(
        &self,
        spool: Option<&Spool>,
        record: &Record,
        error: &SpoolError,
        deadline: Instant,
    ) -> Emitted {
        let lost = |why: String| Emitted::Lost {
            because: format!("{why}; {error}"),
        };
        let Some(way) = self.way else {
            return lost(NO_WAY.to_owned());
        };
        let producer = match Producer::connect(way, deadline).await {
            Ok(producer) => producer,
            Err(error) => return lost(told(&error)),
        };
        if let Some(spool) = spool.filter(|spool| spool.holds(&record.session)) {
            let drained = drain_session(&producer, spool, &record.session, &limits(deadline)).await;
            if let Err(error) = drained {
                return lost(told_of(&error));
            }
            if spool.holds(&record.session) {
                return lost("earlier events of the session still wait".to_owned());
            }
        }
        match producer.enqueue(STREAM, &record.as_event(), deadline).await {
            Ok(_) => Emitted::StoredWithoutSpool {
                because: error.to_string(),
            },
            Err(refused) => self
                .refused(spool, &producer, record, &refused, deadline)
                .await
                .unwrap_or_else(|| lost(told(&refused))),
        }
    }

    /// Keeps a record that Postgres will never take and the session's file does not have. `None`
    /// where it is not known to be refused for good, or cannot be kept.
    async fn refused(
        &self,
        spool: Option<&Spool>,
        producer: &Producer,
        record: &Record,
        error: &ProducerError,
        deadline: Instant,
    ) -> Option<Emitted> {
        let fate = error.fate();
        if matches!(fate, Fate::Later | Fate::SessionFull) {
            return None;
        }
        let because = chain(error);
        let kept_in = spool?.reject(record, &because).ok()?;
        if fate == Fate::Payload {
            let stand_in = record.stand_in(&because, &kept_in);
            // The record itself is safe in any case.
            if let Err(error) = producer
                .enqueue(STREAM, &stand_in.as_event(), deadline)
                .await
            {
                tracing::debug!(error = chain(&error), "no stand-in was stored");
            }
        }
        Some(Emitted::Rejected { because, kept_in })
    }

    /// With Postgres there and time left, brings in what other sessions had to leave behind: on a
    /// machine without a worker nobody else does.
    async fn help(&self, producer: &Producer, spool: &Spool, deadline: Instant) {
        let limits = DrainLimits {
            files: HELP_FILES,
            record_bytes: HELP_RECORD_BYTES,
            batch_bytes: HELP_RECORD_BYTES as usize,
            // Younger ones may be of calls that are under way.
            untouched_for: self.budget,
            ..limits(deadline)
        };
        if let Err(error) = drain(producer, spool, &limits).await {
            tracing::debug!(%error, "the spool was not drained");
        }
    }
}

fn limits(deadline: Instant) -> DrainLimits {
    DrainLimits {
        deadline: Some(deadline),
        ..DrainLimits::default()
    }
}

/// The record's own place in `rejected/`, if the drain sent it there.
fn rejected(record: &Record, paths: Vec<PathBuf>) -> Option<Emitted> {
    let id = record.message_id.to_string();
    let kept_in = paths
        .into_iter()
        .find(|path| path.file_stem().is_some_and(|stem| *stem == *id))?;
    Some(Emitted::Rejected {
        because: "Postgres refused it".into(),
        kept_in,
    })
}

/// Why a drain did not get as far as the record.
fn told_of(error: &SpoolError) -> String {
    match error {
        SpoolError::Append { source } => told(source),
        error => error.to_string(),
    }
}

/// Why Postgres did not take the record.
fn told(error: &ProducerError) -> String {
    if error.is_unmigrated() {
        format!(
            "the database has no current schema (run `lanekeeper migrate`): {}",
            chain(error)
        )
    } else {
        chain(error)
    }
}
