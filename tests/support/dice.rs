//! By what a seeded test chooses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// SplitMix64: what it returns depends on the seed alone.
#[derive(Clone)]
pub struct Dice(Arc<AtomicU64>);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    pub fn roll(&self, sides: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    /// Dice of somebody who acts at the same time: their choices do not depend on who is faster.
    pub fn split(&self) -> Self {
        Self::new(self.roll(u64::MAX))
    }

    pub async fn pause(&self, up_to_ms: u64) {
        sleep(Duration::from_millis(self.roll(up_to_ms))).await;
    }
}
