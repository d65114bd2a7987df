//! Operator requests: lanes that an operator is about to park, skip or change.
//!
//! Such a command takes the lane's lock, which the holder keeps until it releases the lane; a lane that waits for a
//! limit could keep it for half a minute. So the command first names the lane in a notification, and a lane that
//! waits is released.
//!
//! Like every notification it is a hint: if it is lost, the operator's command waits and says what to do. A request
//! is remembered for as long as the command waits, because the lane may begin to wait later. Once a holder has seen
//! it, it stays for another second: the lane may have a spare entry and be claimed again before the operator's next
//! statement takes the lock.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long a request lasts: the `lock_timeout` of `lanekeeper.change_lane`.
const REQUEST_LASTS: Duration = Duration::from_secs(5);
/// How long it lasts after a holder has seen it: the time from the notification to the operator's next statement, on a
/// busy machine.
pub const SEEN_FOR: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Request {
    at: Instant,
    seen: bool,
}

impl Request {
    fn is_current(&self) -> bool {
        self.at.elapsed() < if self.seen { SEEN_FOR } else { REQUEST_LASTS }
    }
}

/// The lanes that operators requested, whether this worker holds them or not.
#[derive(Debug, Default)]
pub struct OperatorRequests(watch::Sender<BTreeMap<i64, Request>>);

impl OperatorRequests {
    /// An operator requests this lane.
    pub fn add(&self, lane_id: i64) {
        let (at, seen) = (Instant::now(), false);
        self.0.send_modify(|requests| {
            requests.retain(|_, request| request.is_current());
            requests.insert(lane_id, Request { at, seen });
        });
    }

    /// Returns when an operator requests this lane, which must then be released for [`SEEN_FOR`].
    pub async fn wait(&self, lane_id: i64) {
        let mut requests = self.0.subscribe();
        // It fails only if the sender, which `self` owns, is gone.
        let _ = requests
            .wait_for(|requests| requests.get(&lane_id).is_some_and(Request::is_current))
            .await;
        self.0.send_if_modified(|requests| {
            if let Some(request) = requests.get_mut(&lane_id) {
                request.seen = true;
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_lasts_until_it_is_seen_and_a_second_more() {
        let wanted = OperatorRequests::default();
        let is_requested = async |lane_id| {
            timeout(Duration::from_millis(1), wanted.wait(lane_id))
                .await
                .is_ok()
        };
        assert!(!is_requested(1).await);
        wanted.add(1);
        assert!(!is_requested(2).await);
        advance(SEEN_FOR / 2).await;
        assert!(is_requested(1).await, "also for a later waiter");
        assert!(is_requested(1).await, "and after it is claimed again");
        advance(SEEN_FOR).await;
        assert!(!is_requested(1).await);
        wanted.add(2);
        advance(SEEN_FOR * 2).await;
        assert!(is_requested(2).await, "it was not seen before");
        wanted.add(2);
        advance(REQUEST_LASTS).await;
        assert!(!is_requested(2).await);
        let (_, seen) = tokio::join!(async { wanted.add(3) }, is_requested(3));
        assert!(seen);
    }
}
