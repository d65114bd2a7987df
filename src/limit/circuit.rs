//! The commands to Redis that concern circuits.

use std::sync::Arc;
use std::time::Duration;

use super::breaker::{BreakerSettings, COUNTED, PROBE};
use super::link::{Link, duration, micros};
use super::settings::{LinkError, RedisSettings};

/// A destination with failures, as stored in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitView {
    pub destination: Arc<str>,
    /// The time until the next probe. `None`: there are failures, but the circuit is closed.
    pub open: Option<Duration>,
    /// For how long it has been open.
    pub since: Duration,
}

/// What happened at a destination.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happened {
    Failed {
        lane_id: i64,
        probe: bool,
    },
    Succeeded,
    /// A lane asks for the probe.
    Probe,
}

/// The script's answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct CircuitAnswer {
    /// The failure opened the circuit, the success closed it, or the probe is granted.
    pub yes: bool,
    /// How much longer no delivery may begin. `None`: the circuit is closed.
    pub shut: Option<Duration>,
}

impl Link {
    pub(super) async fn circuit(
        &self,
        destination: &str,
        happened: Happened,
        settings: &BreakerSettings,
    ) -> Result<CircuitAnswer, LinkError> {
        let (what, lane_id, probe) = match happened {
            Happened::Failed { lane_id, probe } => ("failed", lane_id, probe),
            Happened::Succeeded => ("succeeded", 0, false),
            Happened::Probe => ("probe", 0, false),
        };
        let mut call = self.scripts.breaker.prepare_invoke();
        call.key(self.key("circuits"));
        call.key(self.key(CIRCUIT) + destination)
            .key(self.key(FAILED) + destination);
        call.arg(what)
            .arg(destination)
            .arg(lane_id)
            .arg(i32::from(probe));
        call.arg(settings.lanes).arg(micros(settings.open));
        call.arg(micros(COUNTED)).arg(micros(PROBE));
        let (yes, shut): (i64, i64) = self.run("deciding on a circuit", &call).await?;
        Ok(CircuitAnswer {
            yes: yes == 1,
            shut: (shut >= 0).then(|| duration(shut)),
        })
    }

    pub(super) async fn circuits(&self) -> Result<Vec<CircuitView>, LinkError> {
        let mut call = self.scripts.circuits.prepare_invoke();
        call.key(self.key("circuits"));
        call.arg(self.key(CIRCUIT)).arg(self.key(FAILED));
        let found: Vec<(String, i64, i64)> = self.run("listing circuits", &call).await?;
        let view = |(destination, open, since): (String, i64, i64)| CircuitView {
            destination: destination.into(),
            open: (open >= 0).then(|| duration(open)),
            since: duration(since),
        };
        Ok(found.into_iter().map(view).collect())
    }
}

const CIRCUIT: &str = "circuit:";
const FAILED: &str = "failed:";

/// Lists the destinations with failures.
///
/// # Errors
/// Redis does not answer.
pub async fn circuits(settings: &RedisSettings) -> Result<Vec<CircuitView>, LinkError> {
    let mut circuits = Link::open(settings).await?.circuits().await?;
    circuits.sort_by(|one, other| one.destination.cmp(&other.destination));
    Ok(circuits)
}

/// Closes a circuit. Workers learn it with their next heartbeat to Redis. Returns whether it was open.
///
/// # Errors
/// Redis does not answer; nothing was changed.
pub async fn close(settings: &RedisSettings, destination: &str) -> Result<bool, LinkError> {
    let link = Link::open(settings).await?;
    let settings = BreakerSettings::default();
    let closed = link.circuit(destination, Happened::Succeeded, &settings);
    Ok(closed.await?.yes)
}
