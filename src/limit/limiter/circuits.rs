//! The circuits as lanes use them: decided at Redis together with the other processes, or by this process alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::{Limiter, Mode, locked};
use crate::breaker::{Breakers, PROBE, Passage};
use crate::circuit::{CircuitAnswer, CircuitView, Happened};
use crate::link::Link;

/// Whether a delivery may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Free,
    /// It may begin as the probe, whose result decides for all processes.
    Probe,
    Shut,
}

impl Limiter {
    /// Whether no destination has failed since it last accepted an event. Then a success changes nothing.
    pub fn all_is_well(&self) -> bool {
        !self.any_circuit.load(Ordering::Acquire)
    }

    /// Whether a claim may take lanes of this destination.
    pub fn passage(&self, destination: &str) -> Passage {
        if self.all_is_well() {
            return Passage::Free;
        }
        locked(&self.breakers).passage(destination, Instant::now())
    }

    /// Changes the local circuits, and keeps `any_circuit` in step.
    fn change<T>(&self, change: impl FnOnce(&mut Breakers) -> T) -> T {
        let mut breakers = locked(&self.breakers);
        let changed = change(&mut breakers);
        self.any_circuit
            .store(!breakers.is_empty(), Ordering::Release);
        changed
    }

    /// Asks whether a delivery to a destination may begin.
    pub async fn admit(&self, destination: &Arc<str>) -> Admission {
        match self.passage(destination) {
            Passage::Free => return Admission::Free,
            Passage::Shut { .. } => return Admission::Shut,
            Passage::Probe => {}
        }
        let told = self.happened(destination, Happened::Probe).await;
        let now = Instant::now();
        self.change(|breakers| match told {
            // At Redis, the circuit is closed.
            Some(CircuitAnswer { shut: None, .. }) => {
                breakers.succeeded(destination);
                Admission::Free
            }
            Some(CircuitAnswer {
                yes: false,
                shut: Some(shut),
            }) => {
                breakers.probed(destination, now + shut);
                Admission::Shut
            }
            Some(CircuitAnswer { yes: true, .. }) => {
                breakers.probed(destination, now + PROBE);
                Admission::Probe
            }
            None => match breakers.passage(destination, now) {
                // Another lane of this process got the probe.
                Passage::Shut { .. } => Admission::Shut,
                Passage::Free => Admission::Free,
                Passage::Probe => {
                    breakers.probed(destination, now + PROBE);
                    Admission::Probe
                }
            },
        })
    }

    /// Records that a delivery failed in a way that may pass. Returns true if that opened the circuit: the caller,
    /// which knows the subscription, logs it.
    pub async fn failed(&self, destination: &Arc<str>, lane_id: i64, probe: bool) -> bool {
        if self.breaker.lanes == 0 {
            return false;
        }
        let now = Instant::now();
        let settings = self.breaker;
        let alone =
            self.change(|breakers| breakers.failed(destination, lane_id, probe, &settings, now));
        let told = self
            .happened(destination, Happened::Failed { lane_id, probe })
            .await;
        if let Some(CircuitAnswer {
            shut: Some(shut), ..
        }) = told
        {
            self.change(|breakers| breakers.opened(destination, now + shut));
        }
        told.map_or(alone, |told| told.yes)
    }

    /// Records that a destination accepted an event, or refused it for good. Returns true if that closed its circuit.
    pub async fn succeeded(&self, destination: &Arc<str>) -> bool {
        if self.all_is_well() || !locked(&self.breakers).is_known(destination) {
            return false;
        }
        let alone = self.change(|breakers| breakers.succeeded(destination));
        let told = self.happened(destination, Happened::Succeeded).await;
        told.map_or(alone, |told| told.yes)
    }

    /// Asks Redis. `None`: this process is alone.
    async fn happened(&self, destination: &str, happened: Happened) -> Option<CircuitAnswer> {
        let link = match &*locked(&self.mode) {
            Mode::Shared(link) => Arc::clone(link),
            Mode::Alone { .. } | Mode::Joining => return None,
        };
        match link.circuit(destination, happened, &self.breaker).await {
            Ok(told) => Some(told),
            Err(error) => {
                self.lose(&link, &error);
                None
            }
        }
    }

    /// Takes over the circuits that the processes at Redis have.
    pub(super) async fn look_at_circuits(&self, link: &Arc<Link>) {
        match link.circuits().await {
            Ok(found) => {
                let listed: Vec<_> = found
                    .into_iter()
                    .map(
                        |CircuitView {
                             destination, open, ..
                         }| (destination, open),
                    )
                    .collect();
                self.change(|breakers| breakers.learn(&listed, Instant::now()));
            }
            Err(error) => self.lose(link, &error),
        }
    }
}
