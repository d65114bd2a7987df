//! Limits failed sign-ins for each address, so that a stranger's flood does not reach Postgres. Tokens have 244 random bits:
//! nobody guesses one. Visitors who have signed in are not concerned.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failed attempts of one address in [`WINDOW`].
const FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered. When there are more, all are forgotten.
const ADDRESSES: usize = 4_096;

/// Failed attempts of late, by address.
#[derive(Default)]
pub(crate) struct Attempts(Mutex<HashMap<IpAddr, (Instant, u32)>>);

impl Attempts {
    /// Whether an address may try.
    pub(crate) fn may_try(&self, from: IpAddr, now: Instant) -> bool {
        let attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.get(&from).is_none_or(|(since, failures)| {
            *failures < FAILURES || now.duration_since(*since) >= WINDOW
        })
    }

    pub(crate) fn failed(&self, from: IpAddr, now: Instant) {
        let mut attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if attempts.len() >= ADDRESSES {
            attempts.clear();
        }
        let (since, failures) = attempts.entry(from).or_insert((now, 0));
        if now.duration_since(*since) >= WINDOW {
            (*since, *failures) = (now, 0);
        }
        *failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_try_again_after_a_minute_and_others_at_once() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        for _ in 0..FAILURES {
            assert!(attempts.may_try(one, now));
            attempts.failed(one, now);
        }
        assert!(!attempts.may_try(one, now) && attempts.may_try(other, now));
        let later = now + WINDOW;
        assert!(attempts.may_try(one, later));
        attempts.failed(one, later);
        assert!(attempts.may_try(one, later), "it counts anew");
    }
}
