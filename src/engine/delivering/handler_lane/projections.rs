//! What a connection keeps of the projections that it feeds, by subscription.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::projection::Connection;
use tokio::time::Instant;

use crate::claiming::route::Route;

/// How long a projection is left alone whose read model is being switched to a rebuilt one.
pub(super) const SWITCHING_DELAY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Projections {
    /// The subscription's version, and a connection of its role.
    connections: HashMap<i32, (i64, Connection)>,
    /// Until when those are left alone that are being switched. Each of their lanes would wait for the switch, and the other
    /// projections with it.
    switching: HashMap<i32, Instant>,
}

impl Projections {
    /// Closes the connections of projections that this worker does not feed any more.
    pub(super) fn forget(&mut self, fed: &[Arc<Route>]) {
        self.connections.retain(|id, (version, _)| {
            let mut fed = fed.iter();
            fed.any(|route| route.id() == *id && route.subscription.version == *version)
        });
        let now = Instant::now();
        self.switching.retain(|_, until| now < *until);
    }

    /// Takes its connection out until it is kept again.
    pub(super) fn take(&mut self, route: &Route) -> Option<Connection> {
        let (_, connection) = self.connections.remove(&route.id())?;
        (!connection.is_closed()).then_some(connection)
    }

    pub(super) fn keep(&mut self, route: &Route, connection: Connection) {
        let version = route.subscription.version;
        self.connections.insert(route.id(), (version, connection));
    }

    pub(super) fn leave_alone(&mut self, route: &Route) {
        let until = Instant::now() + SWITCHING_DELAY;
        self.switching.insert(route.id(), until);
    }

    pub(super) fn is_left_alone(&self, route: &Route) -> bool {
        let until = self.switching.get(&route.id());
        until.is_some_and(|until| Instant::now() < *until)
    }
}
