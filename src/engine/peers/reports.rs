//! What this worker tells of each subscription: whether it delivers it, and if not, why.
//!
//! Only a worker knows whether it has a subscription's secret, may reach its address, or finds its destination dead. So
//! the control connection writes a row per subscription, and commands read the rows of the workers that live. The rows
//! are compared in memory with every tick and written where they differ: no delivery writes one. With every heartbeat
//! they are compared in Postgres too, because a peer that took this worker for dead removed them.
//!
//! A circuit's reason stays as it was first written while the circuit is open: each probe may fail in another way, and
//! would cause a write.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use lanekeeper_core::error::chain;
use lanekeeper_limit::{Limiter, Passage};
use lanekeeper_postgres::StoreError;
use lanekeeper_postgres::report::{self, REASON_BYTES, Report, ReportedState};
use lanekeeper_postgres::subscription::Subscription;
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::claiming::route::RouteTable;

/// Between two log lines about a subscription that this worker cannot deliver.
const LOG_AGAIN: Duration = Duration::from_secs(60);
/// Why a circuit is open that no delivery of this worker and subscription has opened.
const FOUND_ELSEWHERE: &str =
    "the destination failed several sessions in a row, of another worker or subscription";

struct Refusal {
    version: i64,
    reason: String,
    logged_at: Instant,
}

/// The subscriptions whose destination cannot be made here. Each is tried again at every tick, since what it lacks may
/// appear.
#[derive(Default)]
pub struct Refusals {
    now: HashMap<i32, Refusal>,
    /// Of the tick before.
    before: HashMap<i32, Refusal>,
}

impl Refusals {
    /// Begins a tick: what is not refused again is not refused.
    pub fn begin(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    /// Notes a refusal, and logs it unless that was done a moment ago.
    pub fn add(&mut self, subscription: &Subscription, error: &(dyn Error + 'static)) {
        let before = self.before.remove(&subscription.id).filter(|before| {
            before.version == subscription.version && before.logged_at.elapsed() <= LOG_AGAIN
        });
        if before.is_none() {
            tracing::error!(
                subscription = %subscription.name, error,
                "this worker cannot deliver the subscription; its events wait"
            );
        }
        let refusal = Refusal {
            version: subscription.version,
            reason: bounded(chain(error)),
            logged_at: before.map_or_else(Instant::now, |before| before.logged_at),
        };
        self.now.insert(subscription.id, refusal);
    }
}

/// What was written last.
#[derive(Default)]
pub struct Reports {
    written: Vec<Report>,
}

impl Reports {
    /// Writes what differs from what was written last; `again`: what differs from the rows.
    ///
    /// # Errors
    /// The next tick writes it.
    pub async fn write(
        &mut self,
        client: &Client,
        worker_id: i64,
        next: Vec<Report>,
        again: bool,
    ) -> Result<(), StoreError> {
        if again || next != self.written {
            report::write(client, worker_id, &next).await?;
            self.written = next;
        }
        Ok(())
    }

    /// The reports of this moment, by subscription.
    pub fn now(&self, routes: &RouteTable, refusals: &Refusals, limiter: &Limiter) -> Vec<Report> {
        let delivered = routes.iter().map(|route| {
            let open = limiter.passage(&route.destination_name) != Passage::Free;
            Report {
                subscription_id: route.id(),
                version: route.subscription.version,
                state: match open {
                    true => ReportedState::CircuitOpen,
                    false => ReportedState::Delivering,
                },
                reason: open.then(|| {
                    self.circuit_reason(route.id(), route.subscription.version)
                        .or_else(|| route.last_failure())
                        .map_or_else(|| FOUND_ELSEWHERE.to_owned(), bounded)
                }),
            }
        });
        let refused = refusals.now.iter().map(|(id, refusal)| Report {
            subscription_id: *id,
            version: refusal.version,
            state: ReportedState::Refused,
            reason: Some(refusal.reason.clone()),
        });
        let mut reports: Vec<Report> = delivered.chain(refused).collect();
        reports.sort_unstable_by_key(|it| it.subscription_id);
        reports
    }

    /// Why the circuit is open, as it was written when it opened.
    fn circuit_reason(&self, id: i32, version: i64) -> Option<String> {
        let written = self.written.iter().find(|it| {
            it.subscription_id == id
                && it.version == version
                && it.state == ReportedState::CircuitOpen
        })?;
        written
            .reason
            .clone()
            .filter(|reason| reason != FOUND_ELSEWHERE)
    }
}

fn bounded(mut reason: String) -> String {
    let mut end = reason.len().min(REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.truncate(end);
    // Postgres takes no NUL in a text.
    match reason.contains('\0') {
        true => reason.replace('\0', "\u{fffd}"),
        false => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_its_column_whatever_it_holds() {
        let reason = bounded(format!("a\0b{}", "é".repeat(REASON_BYTES)));
        assert!(reason.starts_with("a\u{fffd}bé") && reason.len() <= REASON_BYTES + 2);
        assert_eq!(bounded("status 503".to_owned()), "status 503");
    }
}
