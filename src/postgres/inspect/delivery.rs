//! Whether subscriptions are delivered, by the reports of the live workers.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::{StoreError, read};
use crate::report::ReportedState;

/// Reports that a command reads: a thousand subscriptions of a hundred workers.
const LIMIT: i64 = 100_000;

/// What one worker says of a subscription.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
pub struct WorkerReport {
    #[serde(skip)]
    pub subscription_id: i32,
    pub worker_id: i64,
    pub host: String,
    /// The subscription's, as the worker has it.
    pub version: i64,
    /// Whether that is the newest one.
    pub current: bool,
    pub state: ReportedState,
    pub reason: Option<String>,
    pub since: Timestamp,
}

impl WorkerReport {
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            subscription_id: row.try_get("subscription_id")?,
            worker_id: row.try_get("worker_id")?,
            host: row.try_get("host")?,
            version: row.try_get("version")?,
            current: row.try_get("current")?,
            state: crate::subscription::reported_state(row)?,
            reason: row.try_get("reason")?,
            since: row.try_get("since")?,
        })
    }
}

/// The state of a subscription over all workers that live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// By an operator, or because the destination answered that it is gone.
    Paused,
    /// At least one worker delivers it.
    Delivering,
    /// No worker sends anything but probes.
    CircuitOpen,
    /// Every worker refuses it.
    Refused,
    /// There are workers, and none of them has said whether it delivers it.
    Unreported,
    /// No worker runs.
    NoWorker,
}

/// Workers by what they say of the newest version.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema,
)]
pub struct WorkerCounts {
    pub delivering: usize,
    pub circuit_open: usize,
    pub refused: usize,
    /// They have not come to it yet, or have an older version.
    pub unreported: usize,
}

/// Whether a subscription is delivered.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
pub struct Delivery {
    pub state: DeliveryState,
    /// Absent where no worker said it.
    pub since: Option<Timestamp>,
    /// Why a worker does not deliver it, also where another one does.
    pub reason: Option<String>,
    pub workers: WorkerCounts,
    pub reports: Vec<WorkerReport>,
}

impl Delivery {
    /// `live`: workers with a heartbeat.
    pub fn of(paused: bool, live: usize, reports: Vec<WorkerReport>) -> Self {
        let mut workers = WorkerCounts::default();
        for report in reports.iter().filter(|it| it.current) {
            *match report.state {
                ReportedState::Delivering => &mut workers.delivering,
                ReportedState::CircuitOpen => &mut workers.circuit_open,
                ReportedState::Refused => &mut workers.refused,
            } += 1;
        }
        let reported = workers.delivering + workers.circuit_open + workers.refused;
        workers.unreported = live.saturating_sub(reported);
        let (state, told) = if paused {
            (DeliveryState::Paused, None)
        } else if workers.delivering > 0 {
            (DeliveryState::Delivering, Some(ReportedState::Delivering))
        } else if workers.circuit_open > 0 {
            (DeliveryState::CircuitOpen, Some(ReportedState::CircuitOpen))
        } else if live == 0 {
            (DeliveryState::NoWorker, None)
        } else if workers.refused > 0 && workers.unreported == 0 {
            (DeliveryState::Refused, Some(ReportedState::Refused))
        } else {
            (DeliveryState::Unreported, None)
        };
        let current = || reports.iter().filter(|it| it.current);
        let since = current()
            .filter(|it| Some(it.state) == told)
            .map(|it| it.since)
            .min();
        // The state's own reason first; then that of workers which do not deliver what others do.
        let reason = current()
            .filter(|it| Some(it.state) == told)
            .chain(current())
            .find_map(|it| it.reason.clone());
        Self {
            state,
            since,
            reason,
            workers,
            reports,
        }
    }

    /// Why workers do not deliver it, a line for each reason; nothing where all of them do.
    pub fn reasons(&self) -> Vec<String> {
        if !self.is_held_up() {
            return Vec::new();
        }
        let mut told: Vec<(ReportedState, &str, usize)> = Vec::new();
        for report in self.reports.iter().filter(|it| it.current) {
            let Some(reason) = report.reason.as_deref() else {
                continue;
            };
            let known = told
                .iter_mut()
                .find(|(state, said, _)| *state == report.state && *said == reason);
            match known {
                Some((_, _, workers)) => *workers += 1,
                None => told.push((report.state, reason, 1)),
            }
        }
        let all = self.reports.iter().filter(|it| it.current).count();
        told.into_iter()
            .map(|(state, reason, workers)| {
                let whose = match all {
                    1 => "the worker".to_owned(),
                    _ => format!("{workers} of {all} workers"),
                };
                match state {
                    ReportedState::Refused => format!("refused by {whose}: {reason}"),
                    _ => format!("circuit open at {whose}: {reason}"),
                }
            })
            .collect()
    }

    /// Whether some worker does not deliver it, and says why.
    pub fn is_held_up(&self) -> bool {
        self.state != DeliveryState::Paused && self.workers.circuit_open + self.workers.refused > 0
    }
}

/// What the workers that live say of all subscriptions.
#[derive(Debug)]
pub struct Deliveries {
    live: usize,
    reports: HashMap<i32, Vec<WorkerReport>>,
}

impl Deliveries {
    /// Workers with a heartbeat.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Of one subscription.
    pub fn of(&self, subscription_id: i32, paused: bool) -> Delivery {
        let reports = self.reports.get(&subscription_id);
        Delivery::of(paused, self.live, reports.cloned().unwrap_or_default())
    }
}

/// Reads the reports. A worker without a heartbeat for `frozen_after` does not count.
///
/// # Errors
/// Where they cannot be read.
pub async fn deliveries(
    client: &impl GenericClient,
    frozen_after: Duration,
) -> Result<Deliveries, StoreError> {
    let frozen_after_ms = i64::try_from(frozen_after.as_millis()).unwrap_or(i64::MAX);
    let live = read(
        client,
        "counting the workers",
        include_str!("../sql/fleet.sql"),
        &[(&0_i64, Type::INT8), (&frozen_after_ms, Type::INT8)],
        |row| row.try_get::<_, i64>("replicas"),
    )
    .await?;
    let found = read(
        client,
        "reading what workers deliver",
        include_str!("../sql/report_list.sql"),
        &[(&frozen_after_ms, Type::INT8), (&LIMIT, Type::INT8)],
        WorkerReport::from_row,
    )
    .await?;
    let mut reports: HashMap<i32, Vec<WorkerReport>> = HashMap::new();
    for report in found {
        reports
            .entry(report.subscription_id)
            .or_default()
            .push(report);
    }
    Ok(Deliveries {
        live: usize::try_from(live.iter().sum::<i64>()).unwrap_or(0),
        reports,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(worker_id: i64, state: ReportedState, reason: Option<&str>) -> WorkerReport {
        WorkerReport {
            subscription_id: 1,
            worker_id,
            host: "host".to_owned(),
            version: 1,
            current: true,
            state,
            reason: reason.map(str::to_owned),
            since: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_subscription_is_delivered_where_one_worker_delivers_it_and_the_others_reason_is_told() {
        let delivering = report(1, ReportedState::Delivering, None);
        let refused = report(2, ReportedState::Refused, Some("no secret"));
        let open = report(3, ReportedState::CircuitOpen, Some("status 503"));
        let of = |reports: &[&WorkerReport], live| {
            let reports = reports.iter().map(|it| (*it).clone()).collect();
            let delivery = Delivery::of(false, live, reports);
            (delivery.state, delivery.reason, delivery.workers.unreported)
        };
        let because = |reason: &str| Some(reason.to_owned());
        assert_eq!(
            of(&[&refused, &delivering], 2),
            (DeliveryState::Delivering, because("no secret"), 0)
        );
        assert_eq!(
            of(&[&refused, &open], 2),
            (DeliveryState::CircuitOpen, because("status 503"), 0)
        );
        assert_eq!(
            of(&[&refused], 1),
            (DeliveryState::Refused, because("no secret"), 0)
        );
        // The other one may deliver it yet.
        assert_eq!(
            of(&[&refused], 2),
            (DeliveryState::Unreported, because("no secret"), 1)
        );
        assert_eq!(of(&[], 1), (DeliveryState::Unreported, None, 1));
        assert_eq!(of(&[], 0), (DeliveryState::NoWorker, None, 0));
    }

    #[test]
    fn a_report_of_an_older_version_says_nothing_of_the_newest() {
        let mut older = report(1, ReportedState::Delivering, None);
        older.current = false;
        let delivery = Delivery::of(false, 1, vec![older]);
        assert_eq!(delivery.state, DeliveryState::Unreported);
        assert_eq!(delivery.workers.unreported, 1);
    }

    #[test]
    fn a_paused_subscription_is_paused_whatever_workers_said_before() {
        let refused = report(1, ReportedState::Refused, Some("no secret"));
        let delivery = Delivery::of(true, 1, vec![refused]);
        assert_eq!(delivery.state, DeliveryState::Paused);
        assert!(!delivery.is_held_up());
    }
}
