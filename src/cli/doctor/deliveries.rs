//! Whether the running workers deliver the subscriptions, judged by their own reports, not by what this process could
//! do.

use lanekeeper_postgres::inspect::{Deliveries, Delivery, DeliveryState, SubscriptionSummary};

use super::check::{Check, Status};
use crate::delivery;

const NAME: &str = "delivery";

/// One check for all subscriptions that are delivered, and one for each that is not. No check if no worker runs:
/// another check reports that.
pub(super) fn judge_all(
    subscriptions: &[SubscriptionSummary],
    deliveries: &Deliveries,
) -> Vec<Check> {
    if deliveries.live() == 0 || subscriptions.is_empty() {
        return Vec::new();
    }
    let mut checks: Vec<Check> = subscriptions
        .iter()
        .map(|it| {
            let delivery = deliveries.of(it.subscription_id, it.paused_at.is_some());
            judge(&it.subscription, &delivery)
        })
        .collect();
    let all = checks.len();
    checks.retain(|check| check.status != Status::Ok);
    if checks.len() < all {
        let well = all - checks.len();
        let found = format!("{well} of {all} as they should be, by the workers' own reports");
        checks.insert(0, Check::ok(NAME, found));
    }
    checks
}

fn judge(name: &str, delivery: &Delivery) -> Check {
    const REFUSED: &str = "mend what is named where the workers run, or apply another destination; the events wait meanwhile";
    let reasons = delivery.reasons().join("; ");
    let found = format!("{name}: {reasons}");
    match delivery.state {
        DeliveryState::Refused => Check::fail(NAME, found, REFUSED),
        DeliveryState::CircuitOpen => Check::warn(
            NAME,
            format!("{name}: {}; {reasons}", delivery::cell(delivery, None)),
            "see whether the destination is up: it is probed by itself, its events wait, and no attempt is burnt",
        ),
        DeliveryState::Unreported if delivery.workers.refused == 0 => Check::warn(
            NAME,
            format!("{name}: no worker has said yet whether it delivers it"),
            "workers say so within a second: run this again, then see what they log",
        ),
        _ if delivery.is_held_up() => Check::warn(NAME, found, REFUSED),
        // Another check reports paused subscriptions.
        _ => Check::ok(NAME, name),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use lanekeeper_postgres::inspect::WorkerReport;
    use lanekeeper_postgres::report::ReportedState;

    use super::*;

    fn judged(states: &[ReportedState], live: usize) -> Status {
        let report = |state: &ReportedState| WorkerReport {
            subscription_id: 1,
            worker_id: 1,
            host: "host".to_owned(),
            version: 1,
            current: true,
            state: *state,
            reason: (*state != ReportedState::Delivering).then(|| "why".to_owned()),
            since: Timestamp::now(),
        };
        let reports = states.iter().map(report).collect();
        judge("audit", &Delivery::of(false, live, reports)).status
    }

    #[test]
    fn what_no_worker_delivers_fails_and_what_some_do_not_is_a_warning() {
        use ReportedState::{CircuitOpen, Delivering, Refused};

        assert_eq!(judged(&[Delivering], 1), Status::Ok);
        assert_eq!(judged(&[Refused], 1), Status::Fail);
        assert_eq!(judged(&[Refused, Delivering], 2), Status::Warn);
        assert_eq!(judged(&[CircuitOpen], 1), Status::Warn);
        assert_eq!(judged(&[CircuitOpen, Delivering], 2), Status::Warn);
        assert_eq!(judged(&[], 1), Status::Warn);
    }
}
