//! Workers and connections that come, die, freeze and are taken over.

use std::sync::Arc;

use lanekeeper_postgres::{subscription, worker};

use crate::ensure;
use crate::ground::LIMIT;
use crate::model::takeover::{Registered, Taken};
use crate::model::{FROZEN_AFTER_MS, Worker};
use crate::operation::{CONNECTIONS, SUBSCRIPTIONS, WORKERS};
use crate::worker::{Connection, Process};
use crate::world::{Check, World, told};

impl World {
    pub async fn open(&mut self, connection: usize) -> Check {
        let at = connection / 2;
        self.idle = self.workers[at].is_some() && self.connections[connection].is_some();
        if self.workers[at].is_none() {
            let control = self.ground.open().await;
            let worker_id = worker::new_worker_id(&control.client).await.map_err(told)?;
            let held = worker::hold_liveness(&control.client, worker_id, LIMIT)
                .await
                .map_err(told)?;
            ensure!(held, "a new worker's liveness lock was taken");
            let identity = worker::Identity {
                worker_id,
                host: "sim".to_owned(),
                pid: control.pid,
            };
            let routes = Default::default();
            self.workers[at] = Some(Process {
                control,
                identity,
                routes,
            });
            self.model.workers[at] = Some(Worker {
                worker_id,
                alive: true,
                beat_at: self.model.now,
            });
            self.heartbeat(at).await?;
            self.refresh(at).await?;
        }
        if self.connections[connection].is_none() {
            let physical = self.ground.open().await;
            let worker_id = self.worker_id(at).expect("it was started above");
            let id = worker::open_lane_connection(&physical.client, worker_id)
                .await
                .map_err(told)?;
            self.connections[connection] = Some(Connection::new(physical, id));
            let row = Registered {
                connection_id: id,
                worker_id,
                alive: true,
            };
            self.model.registered.push(row);
        }
        Ok(())
    }

    pub fn worker_id(&self, at: usize) -> Option<i64> {
        self.workers[at]
            .as_ref()
            .map(|process| process.identity.worker_id)
    }

    pub async fn refresh(&mut self, at: usize) -> Check {
        let Some(process) = &mut self.workers[at] else {
            return Ok(());
        };
        let loaded = subscription::load(&process.control.client)
            .await
            .map_err(told)?;
        for (place, name) in SUBSCRIPTIONS.iter().enumerate() {
            let Some(found) = loaded
                .iter()
                .find(|found| *found.name == **name && !found.paused)
            else {
                process.routes.remove(&place);
                continue;
            };
            if process
                .routes
                .get(&place)
                .is_none_or(|known| known.version != found.version)
            {
                process.routes.insert(place, Arc::new(found.clone()));
            }
        }
        Ok(())
    }

    pub async fn heartbeat(&mut self, at: usize) -> Check {
        if let (Some(process), Some(known)) = (&self.workers[at], &mut self.model.workers[at]) {
            worker::heartbeat(&process.control.client, &process.identity, false)
                .await
                .map_err(told)?;
            known.beat_at = self.model.now;
        }
        Ok(())
    }

    pub async fn cut(&mut self, at: usize) -> Check {
        let Some(connection) = self.connections[at].take() else {
            return self.nothing();
        };
        *self.met.entry("connections lost").or_default() += 1;
        self.ground.end(connection.physical.pid).await;
        self.lost(at, connection);
        Ok(())
    }

    fn lost(&mut self, at: usize, connection: Connection) {
        for holding in connection.holdings.values() {
            self.model.forget(&holding.shadow);
        }
        self.model.connection_gone(at, connection.id);
    }

    pub async fn kill(&mut self, at: usize) -> Check {
        for connection in [at * 2, at * 2 + 1] {
            self.cut(connection).await?;
        }
        self.idle = self.workers[at].is_none();
        if let Some(process) = self.workers[at].take() {
            self.ground.end(process.control.pid).await;
            let mut known = self.model.workers[at].take().expect("it was alive");
            known.alive = false;
            self.model.dead_workers.push(known);
        }
        Ok(())
    }

    pub async fn crash(&mut self, at: usize) -> Check {
        self.open(at * 2).await?;
        self.claim(at * 2, 8, true).await?;
        self.fetch(at * 2, 3).await?;
        self.kill(at).await?;
        self.take_over((at + 1) % WORKERS).await?;
        self.open(at * 2).await
    }

    pub async fn take_over(&mut self, at: usize) -> Check {
        let Some(process) = &self.workers[at] else {
            return Ok(());
        };
        let own = process.identity.worker_id;
        let taken = worker::take_over(&process.control.client, own, FROZEN_AFTER_MS, &[])
            .await
            .map_err(told)?;
        let mut taken: Vec<_> = taken
            .iter()
            .map(|taken| Taken {
                worker_id: taken.worker_id,
                connections: taken.connections,
                lanes: taken.lanes,
                charged: taken.charged,
            })
            .collect();
        taken.sort_unstable();
        let charged: i64 = taken.iter().map(|taken| taken.charged).sum();
        *self.met.entry("crashes charged").or_default() += charged as usize;
        let expected = self.model.take_over(own);
        ensure!(taken == expected, "taken over: {taken:?}, not {expected:?}");
        Ok(())
    }

    /// A worker that beats ends the connections of those that do not.
    pub async fn end_frozen(&mut self, at: usize) -> Check {
        self.heartbeat(at).await?;
        let Some(process) = &self.workers[at] else {
            return Ok(());
        };
        let ended = worker::terminate_frozen(&process.control.client, FROZEN_AFTER_MS)
            .await
            .map_err(told)?;
        let mut ended: Vec<i32> = ended.iter().map(|ended| ended.backend_pid).collect();
        ended.sort_unstable();
        let frozen = |connection: &usize| {
            let worker = self.model.workers[connection / 2].as_ref();
            worker.is_some_and(|worker| worker.beat_at < self.model.now - FROZEN_AFTER_MS)
        };
        let frozen: Vec<usize> = (0..CONNECTIONS).filter(frozen).collect();
        let mut expected = Vec::new();
        for at in frozen {
            if let Some(connection) = self.connections[at].take() {
                expected.push(connection.physical.pid);
                *self.met.entry("connections lost").or_default() += 1;
                self.ground.gone(connection.physical.pid).await;
                self.lost(at, connection);
            }
        }
        expected.sort_unstable();
        ensure!(
            ended == expected,
            "ended as frozen: {ended:?}, not {expected:?}"
        );
        Ok(())
    }
}
