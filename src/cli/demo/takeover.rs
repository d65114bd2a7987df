//! Kills a worker in the middle of a delivery, and measures the takeover.
//!
//! The receiver withholds the answer to one delivery, and the worker that waits for it is killed by SIGKILL. The
//! measured time ends when another worker's delivery of the same event is accepted: the server has to notice that the
//! connection is gone, and another worker has to claim the lane.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::Signal;
use tokio::time::sleep;
use uuid::Uuid;

use super::super::Failure;
use super::feed::Halfway;
use super::programs::{Launcher, Program};
use super::verify::{self, Arrival, accepted};

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A worker that was killed while it delivered an event.
pub(super) struct Killed {
    pub(super) at: Timestamp,
    /// The place of its secret.
    pub(super) worker: usize,
    id: Uuid,
    pub(super) session: String,
    pub(super) seq: i64,
}

/// The worker that delivered the event instead.
pub(super) struct Takeover {
    pub(super) worker: usize,
    pub(super) after: Duration,
}

/// The workers, by the place of their secrets.
#[derive(Default)]
pub(super) struct Workers {
    pub(super) secrets: Vec<String>,
    pub(super) running: Vec<Option<Program>>,
    /// Their HTTP addresses.
    pub(super) addresses: Vec<String>,
}

impl Workers {
    pub(super) fn name(worker: usize) -> String {
        format!("worker {}", worker + 1)
    }

    /// Starts the next one.
    pub(super) async fn add(&mut self, launcher: &Launcher) -> Result<(), Failure> {
        let number = self.running.len();
        let name = format!("worker_{}", number + 1);
        let (program, address) = launcher.worker(&name, &self.secrets[number]).await?;
        self.running.push(Some(program));
        self.addresses.push(address);
        Ok(())
    }
}

/// Kills the worker that delivers when half of the calls were made, and starts another one, as a supervisor would.
/// Returns never where nothing is delivered from then on.
pub(super) async fn kill_halfway(
    halfway: &Halfway,
    launcher: &Launcher,
    workers: &mut Workers,
    receiver: &Program,
    record: &Path,
) -> Result<Killed, Failure> {
    halfway.reached().await;
    receiver.signal(Signal::USR1)?;
    let withheld = loop {
        let arrivals = verify::read(record)?;
        if let Some(arrival) = arrivals.into_iter().find(|arrival| arrival.withheld) {
            break arrival;
        }
        sleep(LOOK_AGAIN).await;
    };
    let worker = withheld.secret.unwrap_or_default();
    let at = Timestamp::now();
    if let Some(mut program) = workers.running.get_mut(worker).and_then(Option::take) {
        program.kill().await?;
    }
    workers.add(launcher).await?;
    Ok(Killed {
        at,
        worker,
        id: withheld.id,
        session: withheld.session,
        seq: withheld.seq,
    })
}

impl Killed {
    /// `None`: the event was not accepted since.
    pub(super) fn takeover(&self, arrivals: &[Arrival]) -> Option<Takeover> {
        let next = accepted(arrivals).find(|arrival| arrival.id == self.id)?;
        let after = next.received_at.duration_since(self.at);
        Some(Takeover {
            worker: next.secret?,
            after: Duration::try_from(after).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_takeover_is_the_first_time_that_the_withheld_event_is_accepted() {
        let at = Timestamp::UNIX_EPOCH;
        let arrival = |id, secret, ms, withheld| Arrival {
            received_at: at + Duration::from_millis(ms),
            created_at: at,
            secret: Some(secret),
            id: Uuid::from_u128(id),
            session: "s".to_owned(),
            seq: 1,
            attempt: 1,
            withheld,
        };
        let killed = Killed {
            at: at + Duration::from_millis(10),
            worker: 0,
            id: Uuid::from_u128(1),
            session: "s".to_owned(),
            seq: 1,
        };
        let before = [arrival(1, 0, 9, true), arrival(2, 1, 50, false)];
        assert!(killed.takeover(&before).is_none());
        let after = [&before[..], &[arrival(1, 1, 80, false)]].concat();
        let takeover = killed.takeover(&after).unwrap();
        assert_eq!(
            (takeover.worker, takeover.after),
            (1, Duration::from_millis(70))
        );
    }
}
