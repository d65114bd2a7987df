//! Limits of a process without Redis: its local quota of each limit, and what it reports to Redis when it is back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::bucket::Bucket;
use tokio::time::Instant;

use super::{Answer, HORIZON, Limiter, Mode, Place, Slot, UNKNOWN, locked, micros, unknown};
use crate::link::Report;
use crate::meter::{self, Meter, Micros, Outcome, Pace};
use crate::share::Share;

/// The longest wait that a process without Redis answers: when Redis is back, the send may go much earlier.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How soon a process asks again that may not send without Redis, or whose local quota of a bucket is zero.
const ELSEWHERE: Duration = Duration::from_secs(2);
/// Pauses that end within this time of each other are one: the lanes of a destination hear it one after the other.
const SAME_PAUSE: Duration = Duration::from_secs(1);
/// If there are more than `REMEMBERED` buckets, those that were not used for this long are forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(86_400);
const REMEMBERED: usize = 4_096;

/// What this process knows about a bucket.
pub(super) struct Known {
    bucket: Bucket,
    meter: Meter,
    sent_at: Option<Instant>,
    /// The last send went without Redis, and uses up this much of the bucket.
    alone: Option<Duration>,
    silent_until: Option<Instant>,
    used_at: Instant,
}

impl Limiter {
    pub(super) fn ask_alone(
        &self,
        buckets: &[Bucket],
        slot: Option<Slot>,
        horizon: Duration,
    ) -> Answer {
        let now = Instant::now();
        let mode = locked(&self.mode);
        let from = match &*mode {
            Mode::Alone { from } => *from,
            Mode::Shared(_) | Mode::Joining => return unknown(UNKNOWN),
        };
        let fleet = match self.fleet(true) {
            Ok(fleet) => fleet,
            // Release the lane: another process may send its events, and Redis may be back earlier than `after`.
            Err(after) if after > HORIZON => {
                let again = after.min(ELSEWHERE);
                return Answer::Elsewhere { again };
            }
            Err(after) => return unknown(after),
        };
        if now < from {
            // Ask again before that instant, because Redis may be back earlier.
            return unknown(UNKNOWN.min(from - now));
        }
        let slot = match slot {
            Some(Slot(Place::Alone(slot))) => Some(slot),
            _ => None,
        };
        let mut paces = Vec::with_capacity(buckets.len());
        for bucket in buckets {
            let Some(spacing) = Share::of(bucket, fleet.replicas).alone(fleet.rank) else {
                return Answer::Elsewhere { again: ELSEWHERE };
            };
            let tolerance = match fleet.replicas {
                1 => bucket.tolerance(),
                _ => Duration::ZERO,
            };
            paces.push((spacing, tolerance));
        }
        self.learn_kept(buckets, now);
        let mut known = locked(&self.known);
        let mut meters: Vec<(Meter, Pace)> = buckets
            .iter()
            .zip(&paces)
            .map(|(bucket, (spacing, tolerance))| {
                let pace = Pace {
                    interval: micros(*spacing),
                    tolerance: micros(*tolerance),
                };
                let mut meter = Self::known(&mut known, bucket, now).meter;
                // This process does not know what others sent while it used Redis, so the bucket begins empty.
                meter.due = meter
                    .due
                    .max(self.at(from) + pace.interval + pace.tolerance);
                (meter, pace)
            })
            .collect();
        let outcome = meter::ask(&mut meters, self.at(now), slot, micros(horizon));
        for (bucket, (meter, _)) in buckets.iter().zip(meters) {
            Self::known(&mut known, bucket, now).meter = meter;
        }
        drop(known);
        match outcome {
            Outcome::Go => {
                self.sent(buckets, now, |i| Some(paces[i].0));
                Answer::Go
            }
            Outcome::Wait { slot } => Answer::Wait {
                until: self.instant(slot),
                slot: Some(Slot(Place::Alone(slot))),
            },
            Outcome::Later { at, bucket } => {
                let after = self.instant(at).saturating_duration_since(now);
                let longest = match self.redis {
                    Some(_) => LOOK_AGAIN,
                    None => after,
                };
                Answer::Later {
                    after: after.min(longest),
                    bucket,
                }
            }
        }
    }

    pub(super) fn known<'k>(
        known: &'k mut HashMap<Arc<str>, Known>,
        bucket: &Bucket,
        now: Instant,
    ) -> &'k mut Known {
        if known.len() > REMEMBERED && !known.contains_key(&bucket.key) {
            known.retain(|_, known| now - known.used_at < FORGET_AFTER);
        }
        let entry = known
            .entry(Arc::clone(&bucket.key))
            .or_insert_with(|| Known {
                bucket: bucket.clone(),
                meter: Meter::default(),
                sent_at: None,
                alone: None,
                silent_until: None,
                used_at: now,
            });
        entry.used_at = now;
        if entry.bucket != *bucket {
            entry.bucket = bucket.clone();
        }
        entry
    }

    pub(super) fn sent(
        &self,
        buckets: &[Bucket],
        now: Instant,
        alone: impl Fn(usize) -> Option<Duration>,
    ) {
        let mut known = locked(&self.known);
        for (i, bucket) in buckets.iter().enumerate() {
            let entry = Self::known(&mut known, bucket, now);
            entry.sent_at = Some(now);
            entry.alone = alone(i);
        }
    }

    /// Returns true if it is news: some bucket pauses noticeably longer than was known.
    pub(super) fn learn(&self, buckets: &[Bucket], silences: &[Duration], now: Instant) -> bool {
        let mut known = locked(&self.known);
        let mut is_news = false;
        for (bucket, silence) in buckets.iter().zip(silences) {
            if silence.is_zero() {
                continue;
            }
            let until = now + *silence;
            let entry = Self::known(&mut known, bucket, now);
            is_news |= entry
                .silent_until
                .is_none_or(|known| until > known + SAME_PAUSE);
            entry.meter.silent = entry.meter.silent.max(self.at(until));
            entry.silent_until = entry.silent_until.max(Some(until));
        }
        is_news
    }

    /// Learns what other processes heard of these buckets.
    fn learn_kept(&self, buckets: &[Bucket], now: Instant) {
        let kept = locked(&self.kept_pauses);
        if kept.is_empty() {
            return;
        }
        let left = |bucket: &Bucket| {
            let until = kept.get(&*bucket.key);
            until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
        };
        let silences: Vec<Duration> = buckets.iter().map(left).collect();
        drop(kept);
        self.learn(buckets, &silences, now);
    }

    /// What Redis may not know, or may have lost.
    pub(super) fn reports(&self) -> Vec<Report> {
        let now = Instant::now();
        let known = locked(&self.known);
        let reports = known.values().filter_map(|known| {
            let bucket = known.bucket.clone();
            let age = known.sent_at.map(|at| now - at);
            let owed = match (known.alone, age) {
                (Some(spacing), Some(age)) => u32::from(age < spacing),
                _ => 0,
            };
            let reach = bucket.rate.interval() + bucket.tolerance();
            let used_up = age.map_or(Duration::ZERO, |age| reach.saturating_sub(age));
            let silent = known
                .silent_until
                .map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
            let empty = owed == 0 && used_up.is_zero() && silent.is_zero();
            (!empty).then_some(Report {
                bucket,
                owed,
                used_up,
                silent,
            })
        });
        reports.collect()
    }

    pub(super) fn at(&self, instant: Instant) -> Micros {
        micros(instant.saturating_duration_since(self.origin))
    }

    pub(super) fn instant(&self, at: Micros) -> Instant {
        self.origin + Duration::from_micros(u64::try_from(at).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BreakerSettings;
    use lanekeeper_core::fleet::Fleet;

    const PAUSE: Duration = Duration::from_secs(20);

    fn without_redis() -> Limiter {
        let breaker = BreakerSettings {
            lanes: 3,
            open: PAUSE,
        };
        let limiter = Limiter::new(None, breaker, 1, Duration::from_secs(5));
        limiter.set_fleet(Fleet {
            replicas: 1,
            rank: 0,
        });
        limiter
    }

    fn buckets() -> [Bucket; 1] {
        [Bucket {
            key: "api".into(),
            rate: "50/s".parse().unwrap(),
            burst: 1,
        }]
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_news_once_however_many_lanes_hear_it() {
        let limiter = without_redis();
        assert!(limiter.pause(&buckets(), PAUSE).await);
        tokio::time::advance(SAME_PAUSE / 2).await;
        assert!(!limiter.pause(&buckets(), PAUSE).await);
        assert!(!limiter.pause(&buckets(), PAUSE / 2).await);
        assert!(limiter.pause(&buckets(), PAUSE * 2).await, "a longer one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_another_process_kept_is_kept_to_its_end() {
        let limiter = without_redis();
        limiter.set_kept_pauses(HashMap::from([("api".to_owned(), PAUSE)]));
        // What was read once is not forgotten when it is read no more.
        let later = limiter.ask(&buckets(), None, HORIZON).await;
        assert!(
            matches!(later, Answer::Later { after, .. } if after > PAUSE - SAME_PAUSE),
            "{later:?}"
        );
        limiter.set_kept_pauses(HashMap::new());
        tokio::time::advance(PAUSE - HORIZON * 2).await;
        limiter.set_fleet(Fleet {
            replicas: 1,
            rank: 0,
        });
        let later = limiter.ask(&buckets(), None, HORIZON).await;
        assert!(matches!(later, Answer::Later { .. }), "{later:?}");
        tokio::time::advance(HORIZON * 3).await;
        limiter.set_fleet(Fleet {
            replicas: 1,
            rank: 0,
        });
        let go = limiter.ask(&buckets(), None, HORIZON).await;
        assert!(matches!(go, Answer::Go), "{go:?}");
        assert!(!limiter.pause(&buckets(), Duration::ZERO).await);
    }
}
