//! Postgres' clock, as this worker reads it off with each heartbeat: for figures only, no decision goes by it (I6).

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use tokio::time::Instant;

/// Microseconds of Postgres' clock, from those of this process's monotonic one.
#[derive(Debug)]
pub struct ServerClock {
    started: Instant,
    /// What Postgres' clock showed, or would have shown, when this one started.
    at_start_us: AtomicI64,
}

impl ServerClock {
    /// Postgres showed `shown` between these two moments.
    pub fn read(asked: Instant, shown: Timestamp, answered: Instant) -> Self {
        let clock = Self {
            started: asked,
            at_start_us: AtomicI64::new(0),
        };
        clock.set(asked, shown, answered);
        clock
    }

    /// Reads it anew: it may have been set, and after a failover it is another server's.
    pub fn set(&self, asked: Instant, shown: Timestamp, answered: Instant) {
        let halfway = asked + answered.duration_since(asked) / 2;
        let at_start = shown.as_microsecond() - self.since_start(halfway);
        self.at_start_us.store(at_start, Ordering::Relaxed);
    }

    /// Seconds from an instant of Postgres' clock until then; none is less than 0.
    pub fn seconds_since(&self, earlier: Timestamp, then: Instant) -> f64 {
        let then = self.at_start_us.load(Ordering::Relaxed) + self.since_start(then);
        (then - earlier.as_microsecond()).max(0) as f64 / 1e6
    }

    fn since_start(&self, then: Instant) -> i64 {
        i64::try_from(then.duration_since(self.started).as_micros()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_since_an_append_goes_by_the_clock_of_postgres() {
        let shown: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let asked = Instant::now();
        let after = |millis| asked + Duration::from_millis(millis);
        let clock = ServerClock::read(asked, shown, after(200));
        let since = |millis| clock.seconds_since(shown, after(millis));
        assert!((since(100) - 0.0).abs() < 1e-6);
        assert!((since(1_600) - 1.5).abs() < 1e-6);
        assert!((since(0) - 0.0).abs() < 1e-6, "no latency is negative");
        // It was set an hour back.
        let set_back: Timestamp = "2026-01-02T02:04:07Z".parse().unwrap();
        clock.set(after(2_000), set_back, after(2_000));
        let appended: Timestamp = "2026-01-02T02:04:06Z".parse().unwrap();
        assert!((clock.seconds_since(appended, after(2_000)) - 1.0).abs() < 1e-6);
    }
}
