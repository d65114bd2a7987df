//! This process' presence at Redis: it connects, sends heartbeats, leaves when Redis misbehaves, and joins again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{HORIZON, Limiter, Mode, locked};
use crate::link::{Link, PRESENT};
use crate::settings::{LinkError, RedisSettings};

/// The time between two heartbeats to Redis.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// How long Redis must answer steadily before this process joins again.
const STEADY: Duration = Duration::from_secs(1);
/// The time between two checks while Redis must prove steady.
const CHECK_EVERY: Duration = Duration::from_millis(100);
const RECONNECT: Duration = Duration::from_millis(250);

impl Limiter {
    /// Leaves Redis after an error. The process sends alone only when no other process counts it as present any more.
    pub(super) fn lose(&self, link: &Arc<Link>, error: &LinkError) {
        let mut mode = locked(&self.mode);
        match &*mode {
            Mode::Shared(current) if Arc::ptr_eq(current, link) => {}
            _ => return,
        }
        let timeout = self.redis.as_ref().map_or(PRESENT, |redis| redis.timeout);
        *mode = Mode::Alone {
            from: Instant::now() + timeout + PRESENT,
        };
        drop(mode);
        link.lost.cancel();
        self.times_alone.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            error = error as &dyn std::error::Error,
            replicas = self.replicas(),
            "Redis is away: limits go on in this process, with its share of each rate; nothing is lost, and it \
             returns by itself"
        );
    }

    /// Keeps the connection to Redis until `ended`.
    pub async fn run(&self, ended: CancellationToken) {
        let Some(redis) = &self.redis else {
            tracing::info!(
                "no Redis is configured (redis.url): a limit is divided by the number of workers, each keeps to its share"
            );
            return;
        };
        let mut told = false;
        loop {
            let error = tokio::select! {
                () = ended.cancelled() => return,
                error = self.stay(redis) => error,
            };
            if let Err(error) = error {
                if !told {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "Redis cannot be used yet: each worker keeps to its share of the limits until it can"
                    );
                }
                told = true;
            } else {
                told = false;
            }
            tokio::select! {
                () = ended.cancelled() => return,
                () = sleep(RECONNECT) => {}
            }
        }
    }

    /// Ok: this process was at Redis for a while, and has left.
    async fn stay(&self, redis: &RedisSettings) -> Result<(), LinkError> {
        let link = Arc::new(Link::open(redis).await?);
        if self.times_alone.load(Ordering::Relaxed) > 0 {
            let since = Instant::now();
            while since.elapsed() < STEADY {
                sleep(CHECK_EVERY).await;
                link.look_at_clock().await?;
            }
        }
        self.join(&link).await?;
        tracing::info!("limits are shared over Redis");
        loop {
            tokio::select! {
                () = link.lost.cancelled() => return Ok(()),
                () = sleep(HEARTBEAT) => {}
            }
            let shown = link
                .take(self.worker_id, self.replicas(), &[], None, HORIZON)
                .await;
            match shown {
                Ok(_) => self.look_at_circuits(&link).await,
                Err(error) => self.lose(&link, &error),
            }
        }
    }

    pub(super) async fn join(&self, link: &Arc<Link>) -> Result<(), LinkError> {
        let from = match std::mem::replace(&mut *locked(&self.mode), Mode::Joining) {
            Mode::Alone { from } => from,
            Mode::Shared(_) | Mode::Joining => Instant::now() + PRESENT,
        };
        let reports = self.reports();
        let told = match reports.is_empty() {
            true => Ok(()),
            false => link.report(&reports).await,
        };
        *locked(&self.mode) = match &told {
            Ok(()) => Mode::Shared(Arc::clone(link)),
            Err(_) => Mode::Alone { from },
        };
        told
    }
}
