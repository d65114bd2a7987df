//! Lanes that an operator wants. Parking, skipping and their like take a lane's lock, which whoever delivers
//! it has until the lane is let go; one that waits for its turn could keep it for half a minute. So they
//! tell first, over NOTIFY, which lane it is, and a lane that waits lets go.
//!
//! A hint, like every notification: where it is lost the operator waits, and is told what to do. It is
//! remembered for as long as operators wait, because it may come while the lane is not waiting yet. Once heard
//! it counts for a moment more: the lane may have a spare token and be claimed anew before the operator, whose next
//! question takes its lock, has asked for it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The `lock_timeout` of `lanekeeper.change_lane`.
const WANTED_FOR: Duration = Duration::from_secs(5);
/// From the hint to the operator's question, on a machine that has much to do.
pub const MOMENT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    heard: bool,
}

impl Asked {
    fn counts(&self) -> bool {
        self.at.elapsed() < if self.heard { MOMENT } else { WANTED_FOR }
    }
}

/// Which lanes were asked for, whether this worker has them or not.
#[derive(Debug, Default)]
pub struct Wanted(watch::Sender<BTreeMap<i64, Asked>>);

impl Wanted {
    /// Somebody wants this lane.
    pub fn ask(&self, lane_id: i64) {
        let (at, heard) = (Instant::now(), false);
        self.0.send_modify(|asked| {
            asked.retain(|_, one| one.counts());
            asked.insert(lane_id, Asked { at, heard });
        });
    }

    /// Returns when somebody wants this lane, which is to be let go then for a [`MOMENT`].
    pub async fn of(&self, lane_id: i64) {
        let mut asked = self.0.subscribe();
        // It fails only with its sender, which is here.
        let _ = asked
            .wait_for(|asked| asked.get(&lane_id).is_some_and(Asked::counts))
            .await;
        self.0.send_if_modified(|asked| {
            if let Some(one) = asked.get_mut(&lane_id) {
                one.heard = true;
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
    async fn a_lane_is_asked_for_until_it_heard_and_a_moment_more() {
        let wanted = Wanted::default();
        let hears = async |lane_id| {
            timeout(Duration::from_millis(1), wanted.of(lane_id))
                .await
                .is_ok()
        };
        assert!(!hears(1).await);
        wanted.ask(1);
        assert!(!hears(2).await);
        advance(MOMENT / 2).await;
        assert!(hears(1).await, "also who waits later");
        assert!(hears(1).await, "and is claimed anew");
        advance(MOMENT).await;
        assert!(!hears(1).await);
        wanted.ask(2);
        advance(MOMENT * 2).await;
        assert!(hears(2).await, "it was not heard before");
        wanted.ask(2);
        advance(WANTED_FOR).await;
        assert!(!hears(2).await);
        let (_, heard) = tokio::join!(async { wanted.ask(3) }, hears(3));
        assert!(heard);
    }
}
