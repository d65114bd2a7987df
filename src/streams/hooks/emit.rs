//! Gets one record into Postgres within a budget, or else onto the disk.
//!
//! ```text
//! session has a spool file? ── yes ─► append to it ─► drain that file while time remains
//!           │ no
//!           ▼
//!   connect, enqueue ── stored ─► drain what other sessions left here, while time remains
//!           │
//!           ├─ refused for good ─► rejected/ (and a stand-in event where the payload is the reason)
//!           └─ away, slow, unmigrated, outcome unknown ─► append to the session's spool file
//! ```
//!
//! A record whose COMMIT was not answered goes to the spool as well: its message id makes the second
//! time harmless. The order inside the session is the spool's business: see its invariants.

use std::path::PathBuf;
use std::time::Duration;

use lanekeeper_core::error::chain;
use lanekeeper_postgres::append::Fate;
use lanekeeper_producer::spool::drain::drain_session;
use lanekeeper_producer::spool::{DrainLimits, Record, Spool, SpoolError, drain};
use lanekeeper_producer::{Producer, ProducerError, Way};
use tokio::time::Instant;

use super::STREAM;

/// What became of a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Emitted {
    /// Postgres confirmed it.
    Stored,
    /// On disk, synced; a drain will bring it in.
    Spooled { because: String },
    /// Postgres will never take it: kept in the spool's `rejected/`.
    Rejected { because: String, kept_in: PathBuf },
    /// Nowhere. The one case that a person has to hear of.
    Lost { because: String },
}

/// The way of one record. `way` is `None` where none is configured.
pub struct Emitter<'a> {
    pub way: Option<&'a Way>,
    pub spool: &'a Spool,
    /// For everything that involves Postgres, from the call of [`Emitter::emit`] on.
    pub budget: Duration,
}

impl Emitter<'_> {
    pub async fn emit(&self, record: &Record) -> Emitted {
        let deadline = Instant::now() + self.budget;
        let Some(way) = self.way else {
            return self.keep(
                record,
                "neither a database URL (LANEKEEPER_DATABASE__URL) nor LANEKEEPER_URL is configured"
                    .into(),
            );
        };
        if self.spool.holds(&record.session) {
            return self.follow(record, way, deadline).await;
        }
        let sent = match Producer::connect(way, deadline).await {
            Ok(producer) => self.send(&producer, record, deadline).await,
            Err(error) => Err(error),
        };
        sent.unwrap_or_else(|error| self.keep(record, told(&error)))
    }

    /// Stores a record directly. An error means that it belongs into the spool.
    async fn send(
        &self,
        producer: &Producer,
        record: &Record,
        deadline: Instant,
    ) -> Result<Emitted, ProducerError> {
        let event = record.as_event();
        let error = match producer.enqueue(STREAM, &event, deadline).await {
            Ok(_) => {
                self.help(producer, deadline).await;
                return Ok(Emitted::Stored);
            }
            Err(error) => error,
        };
        let fate = error.fate();
        if matches!(fate, Fate::Later | Fate::SessionFull) {
            return Err(error);
        }
        let because = chain(&error);
        let kept_in = match self.spool.reject(record, &because) {
            Ok(path) => path,
            Err(error) => {
                let because = format!("{because}; {error}");
                return Ok(Emitted::Lost { because });
            }
        };
        if fate == Fate::Payload {
            let stand_in = record.stand_in(&because, &kept_in);
            let event = stand_in.as_event();
            if let Err(error) = producer.enqueue(STREAM, &event, deadline).await
                && error.fate() == Fate::Later
            {
                // The record itself is safe in any case.
                self.keep(&stand_in, told(&error));
            }
        }
        Ok(Emitted::Rejected { because, kept_in })
    }

    /// Goes behind what waits of this session, and tries to bring all of it in.
    async fn follow(&self, record: &Record, way: &Way, deadline: Instant) -> Emitted {
        let emitted = self.keep(record, "earlier events of the session still wait".into());
        let producer = match Producer::connect(way, deadline).await {
            Ok(producer) => producer,
            Err(error) => return reworded(emitted, &error.into()),
        };
        let limits = limits(deadline);
        match drain_session(&producer, self.spool, &record.session, &limits).await {
            Err(error) => reworded(emitted, &error),
            Ok(_) if self.spool.holds(&record.session) => emitted,
            Ok(report) => match emitted {
                // The disk did not take it, but now nothing is left for it to overtake.
                Emitted::Lost { .. } => self
                    .send(&producer, record, deadline)
                    .await
                    .unwrap_or_else(|error| Emitted::Lost {
                        because: told(&error),
                    }),
                _ => rejected(record, report.rejected).unwrap_or(Emitted::Stored),
            },
        }
    }

    /// With Postgres there and time left, brings in what other sessions had to leave behind: on a
    /// machine without a worker nobody else does.
    async fn help(&self, producer: &Producer, deadline: Instant) {
        if self.spool.files().is_ok_and(|files| !files.is_empty())
            && let Err(error) = drain(producer, self.spool, &limits(deadline)).await
        {
            tracing::debug!(%error, "the spool was not drained");
        }
    }

    fn keep(&self, record: &Record, because: String) -> Emitted {
        match self.spool.append(record) {
            Ok(()) => Emitted::Spooled { because },
            // Nobody waits for a stopped process: out of order, but kept.
            Err(error @ SpoolError::Locked { .. }) => {
                match self.spool.reject(record, &error.to_string()) {
                    Ok(kept_in) => Emitted::Rejected {
                        because: error.to_string(),
                        kept_in,
                    },
                    Err(worse) => Emitted::Lost {
                        because: format!("{because}; {error}; {worse}"),
                    },
                }
            }
            Err(error) => Emitted::Lost {
                because: format!("{because}; {error}"),
            },
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

fn reworded(emitted: Emitted, error: &SpoolError) -> Emitted {
    let told = match error {
        SpoolError::Append { source } => told(source),
        error => error.to_string(),
    };
    match emitted {
        Emitted::Spooled { .. } => Emitted::Spooled { because: told },
        Emitted::Lost { because } => Emitted::Lost {
            because: format!("{because}; {told}"),
        },
        other => other,
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
