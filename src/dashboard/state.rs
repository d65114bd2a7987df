//! What the pages share.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use lanekeeper_http::events::Desk;
use uuid::Uuid;

use crate::attempts::Attempts;
use crate::config::{DashboardConfig, DashboardMode};
use crate::figures::Figures;

/// Connections to Postgres for pages; opened when there are any visitors.
pub const CONNECTIONS: usize = 2;

/// What the pages know of the workers' settings.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// A worker without a heartbeat for so long does not count.
    pub frozen_after: Duration,
    /// A running turn without activity for so many seconds is stale.
    pub stale_after_s: u32,
}

/// The state of the dashboard.
pub struct Dashboard {
    pub(crate) desk: Arc<Desk>,
    /// Of its own: a page must not make an append wait for a connection.
    pub(crate) pool: Pool,
    pub(crate) config: DashboardConfig,
    pub(crate) fleet: Fleet,
    pub(crate) figures: Figures,
    pub(crate) attempts: Attempts,
    /// What forms of visitors without a sign-in are signed with: on a developer's machine only.
    pub(crate) key: String,
}

impl Dashboard {
    /// `pool`: of [`CONNECTIONS`].
    pub fn new(
        desk: Arc<Desk>,
        pool: Pool,
        config: DashboardConfig,
        fleet: Fleet,
        figures: Figures,
    ) -> Self {
        Self {
            desk,
            pool,
            config,
            fleet,
            figures,
            attempts: Attempts::default(),
            key: format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()),
        }
    }

    /// Whether anything can be done here at all.
    pub(crate) fn takes_actions(&self) -> bool {
        self.config.mode == DashboardMode::On
    }
}
