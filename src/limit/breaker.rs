//! Circuit breakers: a destination that fails for many lanes gets no deliveries, except a probe now and then.
//!
//! ```text
//!           failures of so many lanes, nothing accepted in between
//!   closed ───────────────────────────────────────────────────────► open ◄──────────┐
//!     ▲                                                               │ time passes │ the probe fails
//!     │                                                               ▼             │
//!     └───────────────── a probe, or a straggler, succeeds ─────── half open ───────┘
//!                                                                  one probe, over all processes
//! ```
//!
//! Failures of one lane count once: its head may be the cause, and a head in backoff blocks only its own lane (I3).
//! Deliveries that run when a circuit opens continue. No new delivery begins, so no attempt is used up. A probe is a
//! normal attempt to deliver its lane's head.
//!
//! Without Redis, each process decides by the failures that it saw. With Redis, all processes decide together
//! (`breaker.lua`): each process learns the decision with its next heartbeat to Redis, and keeps a copy of it here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// If the last failure is older than this, the failures before it no longer count.
pub(super) const COUNTED: Duration = Duration::from_secs(60);
/// A probe without a result after this time is abandoned: its worker died, or lost the lane.
pub(super) const PROBE: Duration = Duration::from_secs(30);
/// How soon to check again while another lane probes.
const PROBED: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Lanes that must fail in a row; 0 switches breakers off.
    pub lanes: usize,
    /// The time between two probes.
    pub open: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            lanes: 5,
            open: Duration::from_secs(5),
        }
    }
}

/// Whether a delivery may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    Free,
    /// One delivery may begin, as a probe: that of the lane that asks first.
    Probe,
    /// No delivery may begin before that instant.
    Shut {
        until: Instant,
    },
}

#[derive(Debug, Default)]
struct Circuit {
    /// Lanes that failed since the last accepted delivery. `failed_at` is the time of the last of these failures.
    failed: HashSet<i64>,
    failed_at: Option<Instant>,
    open_until: Option<Instant>,
    probe_until: Option<Instant>,
    /// Redis knows this circuit, so a success must be reported to it.
    shared: bool,
}

/// The circuits that are open or have failures, by destination.
#[derive(Debug, Default)]
pub(super) struct Breakers {
    circuits: HashMap<Arc<str>, Circuit>,
}

impl Breakers {
    pub(super) fn passage(&self, destination: &str, now: Instant) -> Passage {
        let Some(circuit) = self.circuits.get(destination) else {
            return Passage::Free;
        };
        match (circuit.open_until, circuit.probe_until) {
            (None, _) => Passage::Free,
            (Some(until), _) if until > now => Passage::Shut { until },
            (Some(_), Some(until)) if until > now => Passage::Shut {
                until: until.min(now + PROBED),
            },
            (Some(_), _) => Passage::Probe,
        }
    }

    /// Records that a probe runs, which is abandoned at `until`.
    pub(super) fn probed(&mut self, destination: &str, until: Instant) {
        if let Some(circuit) = self.circuits.get_mut(destination) {
            circuit.probe_until = Some(until);
        }
    }

    /// Records that a delivery of this lane failed. Returns whether that opened the circuit.
    pub(super) fn failed(
        &mut self,
        destination: &Arc<str>,
        lane_id: i64,
        probe: bool,
        settings: &BreakerSettings,
        now: Instant,
    ) -> bool {
        let circuit = self.circuits.entry(Arc::clone(destination)).or_default();
        if circuit.open_until.is_some() {
            // A delivery that began before the circuit opened shows nothing new.
            if probe {
                circuit.open_until = Some(now + settings.open);
                circuit.probe_until = None;
            }
            return false;
        }
        if circuit.failed_at.is_some_and(|at| now - at > COUNTED) {
            circuit.failed.clear();
        }
        circuit.failed_at = Some(now);
        circuit.failed.insert(lane_id);
        let opens = circuit.failed.len() >= settings.lanes;
        if opens {
            circuit.open_until = Some(now + settings.open);
        }
        opens
    }

    /// Records that the processes at Redis opened the circuit, until that instant.
    pub(super) fn opened(&mut self, destination: &Arc<str>, until: Instant) {
        let circuit = self.circuits.entry(Arc::clone(destination)).or_default();
        circuit.shared = true;
        circuit.open_until = Some(until);
        circuit.probe_until = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.circuits.is_empty()
    }

    /// Whether a success of this destination changes its circuit.
    pub(super) fn is_known(&self, destination: &str) -> bool {
        self.circuits.contains_key(destination)
    }

    /// Records that the destination accepted an event or refused it for good, so it works. Returns whether the circuit
    /// was open.
    pub(super) fn succeeded(&mut self, destination: &str) -> bool {
        let circuit = self.circuits.remove(destination);
        circuit.is_some_and(|circuit| circuit.open_until.is_some())
    }

    /// Takes over what Redis knows: for each destination with failures, how much longer its circuit is open.
    pub(super) fn learn(&mut self, listed: &[(Arc<str>, Option<Duration>)], now: Instant) {
        self.circuits
            .retain(|known, circuit| !circuit.shared || listed.iter().any(|(one, _)| one == known));
        for (destination, open) in listed {
            let circuit = self.circuits.entry(Arc::clone(destination)).or_default();
            circuit.shared = true;
            if let Some(open) = open {
                circuit.open_until = Some(now + *open);
            } else {
                circuit.open_until = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: BreakerSettings = BreakerSettings {
        lanes: 3,
        open: Duration::from_secs(5),
    };

    struct Bench {
        breakers: Breakers,
        now: Instant,
        place: Arc<str>,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                breakers: Breakers::default(),
                now: Instant::now(),
                place: "there".into(),
            }
        }

        fn fails(&mut self, lane_id: i64) -> bool {
            self.breakers
                .failed(&self.place, lane_id, false, &SETTINGS, self.now)
        }

        fn passage(&self) -> Passage {
            self.breakers.passage(&self.place, self.now)
        }
    }

    #[tokio::test]
    async fn failures_of_several_lanes_in_a_row_open_it_and_those_of_one_never_do() {
        let mut bench = Bench::new();
        assert!((0..100).all(|_| !bench.fails(1)));
        assert!(!bench.fails(2));
        bench.breakers.succeeded("there");
        assert!(!bench.fails(2) && !bench.fails(3));
        assert_eq!(bench.passage(), Passage::Free);
        assert!(bench.fails(4), "the third since something was accepted");
        assert!(!bench.fails(5), "it is open already");
        let until = bench.now + SETTINGS.open;
        assert_eq!(bench.passage(), Passage::Shut { until });
        assert_eq!(
            bench.breakers.passage("elsewhere", bench.now),
            Passage::Free
        );
    }

    #[tokio::test]
    async fn one_probe_at_a_time_decides_whether_it_closes() {
        let mut bench = Bench::new();
        for lane in 1..=3 {
            bench.fails(lane);
        }
        bench.now += SETTINGS.open;
        assert_eq!(bench.passage(), Passage::Probe);
        bench.breakers.probed("there", bench.now + PROBE);
        assert!(matches!(bench.passage(), Passage::Shut { .. }));
        bench.fails(9);
        assert!(
            matches!(bench.passage(), Passage::Shut { .. }),
            "a straggler is no probe"
        );
        bench
            .breakers
            .failed(&bench.place, 1, true, &SETTINGS, bench.now);
        let until = bench.now + SETTINGS.open;
        assert_eq!(bench.passage(), Passage::Shut { until });
        bench.now = until;
        bench.breakers.probed("there", bench.now + PROBE);
        bench.now += PROBE;
        assert_eq!(
            bench.passage(),
            Passage::Probe,
            "the one before was never heard of"
        );
        assert!(bench.breakers.succeeded("there"));
        assert_eq!(bench.passage(), Passage::Free);
    }

    #[tokio::test]
    async fn failures_long_ago_do_not_count() {
        let mut bench = Bench::new();
        assert!(!bench.fails(1) && !bench.fails(2));
        bench.now += COUNTED + Duration::from_secs(1);
        assert!(!bench.fails(3));
    }

    #[tokio::test]
    async fn what_others_found_is_known_and_forgotten_with_them() {
        let mut bench = Bench::new();
        let open = Some(Duration::from_secs(2));
        bench.breakers.learn(&[("there".into(), open)], bench.now);
        assert!(matches!(bench.passage(), Passage::Shut { .. }));
        bench.fails(1);
        bench.breakers.learn(&[("there".into(), None)], bench.now);
        assert_eq!(bench.passage(), Passage::Free);
        assert!(bench.breakers.is_known("there"));
        bench.breakers.learn(&[], bench.now);
        assert!(!bench.breakers.is_known("there"));
    }
}
