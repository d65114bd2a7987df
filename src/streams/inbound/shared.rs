//! What all holders of one worker share: its connections, its secrets, and what it has said of each source already.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use deadpool_postgres::Pool;
use lanekeeper_adapters::Environment;
use lanekeeper_postgres::Database;
use lanekeeper_postgres::source_poll::Watched;
use lanekeeper_telemetry::sources::SourceUpdates;

/// What a worker asks platforms with.
pub struct Polling {
    /// A source's holder has a direct connection of its own.
    pub database: Database,
    pub pool: Pool,
    /// Secrets are looked up here.
    pub environment: Environment,
    pub worker_id: i64,
    pub updates: SourceUpdates,
}

pub(super) struct Shared {
    pub(super) polling: Polling,
    /// The problem of each source that the log has, by its id. It is not repeated with every attempt.
    told: Mutex<HashMap<i32, String>>,
}

impl Shared {
    pub(super) fn new(polling: Polling) -> Self {
        let told = Mutex::default();
        Self { polling, told }
    }

    fn told(&self) -> MutexGuard<'_, HashMap<i32, String>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs what is wrong with a source, unless the log has it.
    pub(super) fn tell(&self, source: &Watched, problem: &str) {
        let before = self.told().insert(source.source_id, problem.to_owned());
        if before.as_deref() != Some(problem) {
            tracing::warn!(
                source = source.name,
                problem,
                "no messages are fetched for a source until this is mended"
            );
        }
    }

    /// Logs that nothing is wrong any more, if something was.
    pub(super) fn mended(&self, source: &Watched) {
        if self.told().remove(&source.source_id).is_some() {
            tracing::info!(
                source = source.name,
                "messages are fetched for a source again"
            );
        }
    }
}
