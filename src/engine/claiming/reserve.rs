//! Taking counted slots, as many as are free.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Adds to `taken` as many of `wanted` as fit below `limit`: several connections claim at once.
pub fn reserve(taken: &AtomicUsize, limit: usize, wanted: usize) -> usize {
    let mut got = 0;
    taken
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            got = limit.saturating_sub(taken).min(wanted);
            Some(taken + got)
        })
        .map_or(0, |_| got)
}
