//! Circuit breakers: a destination that fails everybody is left alone, but for a probe now and then.
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
//! Failures of one lane count once: its head may be at fault, and a head in backoff holds its own lane
//! and no other (I3). What is under way when a breaker opens goes on; nothing is begun, so no attempt is
//! burnt. A probe is an attempt of its lane's head like any other.
//!
//! Each process decides on what it saw; at Redis all of them decide together (`breaker.lua`), and learn
//! within a beat what the others found. What is kept here is then a copy of that.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Failures that are older do not count towards opening.
pub(super) const COUNTED: Duration = Duration::from_secs(60);
/// A probe of which nothing is heard for so long is given up: its worker died, or its lane was lost.
pub(super) const PROBE: Duration = Duration::from_secs(30);
/// While somebody else probes: until one looks again.
const PROBED: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Lanes that must fail in a row; 0 switches breakers off.
    pub lanes: usize,
    /// Between two probes.
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
    /// One may: whoever asks for it first.
    Probe,
    /// Nothing before then.
    Shut {
        until: Instant,
    },
}

#[derive(Debug, Default)]
struct Circuit {
    /// Lanes that failed since something was accepted, and the last of these failures.
    failed: HashSet<i64>,
    failed_at: Option<Instant>,
    open_until: Option<Instant>,
    probe_until: Option<Instant>,
    /// Known at Redis: a success must be told there.
    shared: bool,
}

/// The circuits that are not plainly closed, by destination.
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

    /// Somebody probes until then.
    pub(super) fn probed(&mut self, destination: &str, until: Instant) {
        if let Some(circuit) = self.circuits.get_mut(destination) {
            circuit.probe_until = Some(until);
        }
    }

    /// A delivery of this lane failed. Returns whether the circuit opened by that.
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
            // A straggler was sent before it opened and tells nothing new.
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

    /// It is open until then, as all processes at Redis have it.
    pub(super) fn opened(&mut self, destination: &Arc<str>, until: Instant) {
        let circuit = self.circuits.entry(Arc::clone(destination)).or_default();
        circuit.shared = true;
        circuit.open_until = Some(until);
        circuit.probe_until = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.circuits.is_empty()
    }

    /// Whether a success of this destination is news.
    pub(super) fn is_known(&self, destination: &str) -> bool {
        self.circuits.contains_key(destination)
    }

    /// Something was accepted, or refused for good: it is alive. Returns whether it was open.
    pub(super) fn succeeded(&mut self, destination: &str) -> bool {
        let circuit = self.circuits.remove(destination);
        circuit.is_some_and(|circuit| circuit.open_until.is_some())
    }

    /// What Redis knows: for each destination with failures, for how long it is open yet.
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
