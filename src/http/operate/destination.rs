//! Destinations that fail: what workers report about each, and what Redis stores.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanekeeper_limit::CircuitView;
use lanekeeper_postgres::inspect::Delivery;
use lanekeeper_postgres::report::ReportedState;
use serde::Serialize;

/// A destination with failures of late.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub destination: String,
    /// open | failing
    pub state: &'static str,
    pub open_s: Option<f64>,
    /// Known where workers share their circuits over Redis.
    pub next_probe_s: Option<f64>,
    /// Those that wait for it, by the workers' reports.
    pub subscriptions: Vec<String>,
    pub reason: Option<String>,
}

/// The open circuits among what workers say of the subscriptions: destination, name, delivery.
pub fn of_reports<'a>(deliveries: impl Iterator<Item = (String, &'a str, Delivery)>) -> Vec<Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for (destination, subscription, delivery) in deliveries {
        let open = || {
            let reports = delivery.reports.iter();
            reports.filter(|it| it.current && it.state == ReportedState::CircuitOpen)
        };
        let Some(since) = open().map(|it| it.since).min() else {
            continue;
        };
        let row = rows.entry(destination.clone()).or_insert_with(|| Row {
            destination,
            state: "open",
            open_s: None,
            next_probe_s: None,
            subscriptions: Vec::new(),
            reason: None,
        });
        let open_s = Timestamp::now()
            .duration_since(since)
            .as_secs_f64()
            .max(0.0);
        row.open_s = Some(row.open_s.map_or(open_s, |longest| longest.max(open_s)));
        row.subscriptions.push(subscription.to_owned());
        let reason = open().find_map(|it| it.reason.clone());
        row.reason = row.reason.take().or(reason);
    }
    rows.into_values().collect()
}

/// What Redis knows, with what workers say of the same destinations, and then of others.
pub fn merge(shared: &[CircuitView], reported: Vec<Row>) -> Vec<Row> {
    let mut rows: BTreeMap<String, Row> = reported
        .into_iter()
        .map(|row| (row.destination.clone(), row))
        .collect();
    for view in shared {
        let destination = view.destination.to_string();
        let known = rows.remove(&destination);
        let (subscriptions, reason) =
            known.map_or_else(Default::default, |row| (row.subscriptions, row.reason));
        let row = Row {
            destination: destination.clone(),
            state: match view.open {
                Some(_) => "open",
                None => "failing",
            },
            open_s: view.open.map(|_| view.since.as_secs_f64()),
            next_probe_s: view.open.map(|open| open.as_secs_f64()),
            subscriptions,
            reason,
        };
        rows.insert(destination, row);
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lanekeeper_postgres::inspect::WorkerReport;

    use super::*;

    fn open(reason: &str) -> Delivery {
        let report = WorkerReport {
            subscription_id: 1,
            worker_id: 1,
            host: "host".to_owned(),
            version: 1,
            current: true,
            state: ReportedState::CircuitOpen,
            reason: Some(reason.to_owned()),
            since: Timestamp::now(),
        };
        Delivery::of(false, 1, vec![report])
    }

    #[test]
    fn redis_and_the_reports_make_one_row_for_a_destination() {
        let deliveries = [
            ("there".to_owned(), "audit", open("status 503")),
            ("there".to_owned(), "mirror", open("time-out")),
            ("elsewhere".to_owned(), "other", open("status 500")),
            (
                "well".to_owned(),
                "fine",
                Delivery::of(false, 0, Vec::new()),
            ),
        ];
        let reported = of_reports(deliveries.into_iter());
        assert_eq!(reported.len(), 2);
        let shared = [CircuitView {
            destination: "there".into(),
            open: Some(Duration::from_secs(3)),
            since: Duration::from_secs(60),
        }];
        let rows = merge(&shared, reported);
        let described: Vec<_> = rows
            .iter()
            .map(|row| {
                let subscriptions = row.subscriptions.join(",");
                (
                    &*row.destination,
                    row.next_probe_s,
                    subscriptions,
                    row.reason.as_deref(),
                )
            })
            .collect();
        assert_eq!(
            described,
            [
                ("elsewhere", None, "other".to_owned(), Some("status 500")),
                (
                    "there",
                    Some(3.0),
                    "audit,mirror".to_owned(),
                    Some("status 503")
                ),
            ]
        );
    }
}
