//! What a handler connection feeds: handlers of the program, or projections.

use crate::claiming::route::Route;
use crate::waking::Waking;

/// Projections have connections of their own: their functions are somebody else's and may take their time, and what the
/// program's own handlers do must not wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feeds {
    Handlers,
    Projections,
}

impl Feeds {
    /// Whether such a connection delivers the route's events.
    pub(super) fn serves(self, route: &Route) -> bool {
        route.is_transactional() && route.is_projection() == (self == Self::Projections)
    }

    /// Returns when something may be due.
    pub(super) async fn woken(self, waking: &Waking) {
        match self {
            Self::Handlers => waking.handler_connections.notified().await,
            Self::Projections => waking.projection_connections.notified().await,
        }
    }

    /// As `pg_stat_activity` has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Handlers => "handlers",
            Self::Projections => "projections",
        }
    }
}
