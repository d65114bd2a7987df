//! The state that the tasks of one worker share: one owner per wing, and what all of them use.

use std::sync::Arc;

use deadpool_postgres::Pool;
use lanekeeper_postgres::Database;
use lanekeeper_postgres::worker::Identity;
use lanekeeper_telemetry::instruments::Instruments;
use lanekeeper_telemetry::names;

use crate::claiming::Claiming;
use crate::delivering::Delivering;
use crate::maintenance::Maintenance;
use crate::peers::Peers;
use crate::peers::clock::ServerClock;
use crate::settings::WorkerSettings;
use crate::waking::Waking;
use crate::waking::signal::Signal;

/// One worker's state, as all its tasks see it.
pub struct Shared {
    pub database: Database,
    pub pool: Pool,
    pub settings: WorkerSettings,
    pub instruments: Instruments,
    /// Set when the worker stops: no more claims; each held lane finishes the event that it is delivering.
    pub stopping: Signal,
    /// Set when the grace period is over: running deliveries are dropped and their lanes released.
    pub aborting: Signal,
    pub claiming: Claiming,
    pub delivering: Delivering,
    pub waking: Arc<Waking>,
    pub peers: Peers,
    pub maintenance: Maintenance,
}

impl Shared {
    pub fn new(
        database: Database,
        pool: Pool,
        settings: WorkerSettings,
        identity: Identity,
        clock: ServerClock,
        max_lanes: usize,
    ) -> Self {
        let waking = Arc::new(Waking::default());
        Self {
            database,
            pool,
            instruments: Instruments::new(&opentelemetry::global::meter(names::SCOPE)),
            stopping: Signal::default(),
            aborting: Signal::default(),
            claiming: Claiming::new(
                max_lanes,
                settings.descriptors,
                settings.poll_floor,
                Arc::clone(&waking),
            ),
            delivering: Delivering::new(&settings, identity.worker_id),
            waking,
            peers: Peers::new(identity, clock),
            maintenance: Maintenance::default(),
            settings,
        }
    }
}

/// A random number from 0 to 1, for jitter only.
pub fn random() -> f64 {
    // The random bits of a UUID; a generator of our own is not worth a dependency.
    f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}
