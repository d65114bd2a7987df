//! What the pages share.

use std::sync::Arc;

use deadpool_postgres::Pool;
use lanekeeper_http::events::Desk;
use lanekeeper_http::operate::Fleet;
use uuid::Uuid;

use crate::attempts::Attempts;
use crate::config::{DashboardConfig, DashboardMode};
use crate::figures::Figures;

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
    /// `pool`: that of operators (`lanekeeper_http::operate`).
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
