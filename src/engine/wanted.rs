//! Lanes that an operator wants. Parking, skipping and their like take a lane's lock, which whoever delivers
//! it has until the lane is let go; one that waits for its turn could keep it for half a minute. So they
//! tell first, over NOTIFY, which lane it is, and a lane that waits lets go.
//!
//! A hint, like every notification: where it is lost the operator waits, and is told what to do. It is
//! remembered for as long as operators wait, because it may come while the lane is not waiting yet.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The `lock_timeout` of `lanekeeper.change_lane`.
const WANTED_FOR: Duration = Duration::from_secs(5);

/// When lanes were asked for, whether this worker has them or not.
#[derive(Debug, Default)]
pub struct Wanted(watch::Sender<BTreeMap<i64, Instant>>);

impl Wanted {
    /// Somebody wants this lane.
    pub fn ask(&self, lane_id: i64) {
        self.0.send_modify(|asked| {
            asked.retain(|_, at| is_recent(*at));
            asked.insert(lane_id, Instant::now());
        });
    }

    /// Returns when somebody wants this lane, which is to be let go then: it counts once.
    pub async fn of(&self, lane_id: i64) {
        let mut asked = self.0.subscribe();
        let wanted =
            |asked: &BTreeMap<i64, Instant>| asked.get(&lane_id).copied().is_some_and(is_recent);
        // It fails only with its sender, which is here.
        let _ = asked.wait_for(wanted).await;
        self.0.send_if_modified(|asked| {
            asked.remove(&lane_id);
            false
        });
    }
}

fn is_recent(at: Instant) -> bool {
    at.elapsed() < WANTED_FOR
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lane_is_asked_for_once_and_for_a_while() {
        let wanted = Wanted::default();
        let asked = async |lane_id| {
            timeout(Duration::from_millis(1), wanted.of(lane_id))
                .await
                .is_ok()
        };
        assert!(!asked(1).await);
        wanted.ask(1);
        assert!(!asked(2).await);
        assert!(asked(1).await, "also who waits later");
        assert!(!asked(1).await);
        wanted.ask(2);
        advance(WANTED_FOR).await;
        assert!(!asked(2).await);
        let (_, waited) = tokio::join!(async { wanted.ask(3) }, asked(3));
        assert!(waited);
    }
}
