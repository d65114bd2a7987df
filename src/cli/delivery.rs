//! The words for whether a subscription is delivered, from the workers' reports.

use std::time::Duration;

use jiff::Timestamp;
use lanekeeper_config::Config;
use lanekeeper_postgres::inspect::{Delivery, DeliveryState};

use super::output;

/// A worker without a heartbeat for this long does not count.
pub(super) fn frozen_after(config: &Config) -> Duration {
    Duration::from_millis(config.worker.frozen_after_ms)
}

/// In a cell: `delivering`, `circuit open for 5m`, `refused`, `delivering (1 of 2)`.
pub(super) fn cell(delivery: &Delivery, pause_reason: Option<&str>) -> String {
    let workers = &delivery.workers;
    let reported = workers.delivering + workers.circuit_open + workers.refused;
    match delivery.state {
        DeliveryState::Paused => match pause_reason {
            Some(reason) => format!("paused ({})", output::short(reason, 30)),
            None => "paused".to_owned(),
        },
        DeliveryState::Delivering if workers.delivering < reported => {
            format!("delivering ({} of {reported})", workers.delivering)
        }
        DeliveryState::Delivering => "delivering".to_owned(),
        DeliveryState::CircuitOpen => match delivery.since {
            Some(since) => format!("circuit open for {}", output::age(seconds_since(since))),
            None => "circuit open".to_owned(),
        },
        DeliveryState::Refused => "refused".to_owned(),
        DeliveryState::Unreported => "not reported".to_owned(),
        DeliveryState::NoWorker => "no worker".to_owned(),
    }
}

pub(super) fn seconds_since(at: Timestamp) -> f64 {
    Timestamp::now().duration_since(at).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use lanekeeper_postgres::inspect::WorkerReport;
    use lanekeeper_postgres::report::ReportedState;

    use super::*;

    /// What a worker says, each of its own.
    fn report(state: ReportedState, reason: Option<&str>) -> WorkerReport {
        WorkerReport {
            subscription_id: 1,
            worker_id: 1,
            host: "host".to_owned(),
            version: 1,
            current: true,
            state,
            reason: reason.map(str::to_owned),
            since: Timestamp::now(),
        }
    }

    #[test]
    fn a_reason_is_said_once_with_the_number_of_its_workers() {
        let reports = vec![
            report(ReportedState::Delivering, None),
            report(ReportedState::Refused, Some("no secret")),
            report(ReportedState::Refused, Some("no secret")),
            report(ReportedState::CircuitOpen, Some("status 503")),
        ];
        let delivery = Delivery::of(false, 4, reports);
        assert_eq!(cell(&delivery, None), "delivering (1 of 4)");
        assert_eq!(
            delivery.reasons(),
            [
                "refused by 2 of 4 workers: no secret",
                "circuit open at 1 of 4 workers: status 503"
            ]
        );
    }

    #[test]
    fn where_every_worker_delivers_there_is_nothing_to_say() {
        let delivery = Delivery::of(false, 1, vec![report(ReportedState::Delivering, None)]);
        assert_eq!(cell(&delivery, None), "delivering");
        assert!(delivery.reasons().is_empty());
    }
}
