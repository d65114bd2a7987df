//! Which connections of the worker are idle, and since when: the doorbell and maintenance ask (I8).
//!
//! A worker that holds the doorbell makes producers notify, and producers that notify commit one after the other.
//! So it queues for the doorbell only after a quiet period:
//!
//! - **Idle** means: the worker has an idle connection, has claimed nothing and has received no notification for
//!   two milliseconds (the quiet period).
//! - **Contention.** Four notifications within 6 ms of one another show that producers queue for the NOTIFY lock.
//!   Then the quiet period is 20 ms, longer than the commit of the producers that still queue: for 250 ms, and each
//!   time twice as long if there is contention again, up to 8 s. Without this, many producers with a slow disk stay
//!   in the queue for ever: one commit at a time is less than the workers could deliver, so one worker is always
//!   idle and wants to be notified. That happened, at times for minutes: 16 producers at 2,000 events/s fell to 230
//!   to 410 (docs/performance-history.md). On a disk that takes more than 6 ms for a commit, contention is not recognised
//!   and stays.
//! - **Only handlers idle.** While no lane connection is idle, because all slots are taken, the quiet period is 250 ms:
//!   a worker that delivers a backlog claims more often than that, and need not be notified of anything. Its handler
//!   connections scan by themselves.
//! - **Back-off.** A worker that is notified and finds nothing, because other workers were first, doubles its quiet
//!   period each time, up to 160 ms, until it finds something. All workers hear each notification, so the one that
//!   becomes idle first acts for the others; they are then granted the doorbell one after the other and give it up
//!   at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

/// The shortest time without activity after which the worker queues for the doorbell.
const QUIET_PERIOD: Duration = Duration::from_millis(2);
/// The same while producers contend for the NOTIFY lock: longer than a commit takes on most disks, so that producers
/// that still queue do not find the doorbell taken again.
pub const QUIET_PERIOD_CONTENDED: Duration = Duration::from_millis(20);
/// The same while only handler connections are idle: longer than a busy worker takes from one claim to the next, also on a
/// slow machine. With each doorbell that it is granted, handler connections scan, and find nothing.
const QUIET_PERIOD_HANDLERS: Duration = Duration::from_millis(250);
/// So many notifications, each within `BURST_GAP` of the one before, show contention.
const BURST: u32 = 4;
const BURST_GAP: Duration = Duration::from_millis(6);
/// How long contention is assumed to last, the first time and at most.
const CONTENTION_LASTS: Duration = Duration::from_millis(250);
const CONTENTION_LASTS_MAX: Duration = Duration::from_secs(8);
/// The longest quiet period of a worker whose notifications lead to no claim.
const QUIET_PERIOD_MAX: Duration = Duration::from_millis(160);
/// An idle moment is this long without a claim or settlement. While a backlog is delivered, a connection claims lanes
/// every few milliseconds, and sometimes finds none because another connection was first.
const IDLE_MOMENT: Duration = Duration::from_millis(200);

/// The idle connections of one worker, and its recent activity.
#[derive(Debug, Default)]
pub struct Idle {
    /// Each with its kind.
    connections: Mutex<HashMap<i64, Who>>,
    who: watch::Sender<Who>,
    activity: Mutex<Activity>,
    changed: Notify,
    /// The worker holds the doorbell or queues for it.
    is_notified: AtomicBool,
}

/// Whose connections are idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    #[default]
    Nobody,
    /// Handler connections only.
    Handlers,
    /// A lane connection among them.
    Lanes,
}

#[derive(Debug)]
struct Activity {
    active_at: Instant,
    notified_at: Option<Instant>,
    /// Notifications in a row, each within `BURST_GAP` of the one before.
    burst: u32,
    /// When contention was last seen.
    contention_at: Option<Instant>,
    /// When contention is assumed to be over, and how long it will be assumed to last the next time.
    contended_until: Instant,
    contention_lasts: Duration,
    /// The quiet period, doubled by each notification that led to no claim.
    backoff: Duration,
    /// There was a notification, and no claim has returned since.
    awaits_claim: bool,
    /// When a lane was last claimed or settled, or the first connection became idle. An idle moment begins no sooner.
    busy_at: Instant,
}

impl Default for Activity {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            active_at: now,
            notified_at: None,
            burst: 0,
            contention_at: None,
            contended_until: now,
            contention_lasts: CONTENTION_LASTS,
            backoff: QUIET_PERIOD,
            awaits_claim: false,
            busy_at: now,
        }
    }
}

impl Activity {
    fn at(&self, who: Who) -> Instant {
        let soon = self.active_at + self.backoff.max(QUIET_PERIOD);
        let late = self.active_at + self.backoff.max(QUIET_PERIOD_CONTENDED);
        match who {
            Who::Lanes => late.min(soon.max(self.contended_until)),
            Who::Handlers | Who::Nobody => self.active_at + QUIET_PERIOD_HANDLERS,
        }
    }
}

impl Idle {
    /// A claim of this lane connection took no lane.
    pub fn enter(&self, connection_id: i64) {
        self.enter_as(connection_id, Who::Lanes);
    }

    /// A claim of this handler connection took no lane.
    pub fn enter_handler(&self, connection_id: i64) {
        self.enter_as(connection_id, Who::Handlers);
    }

    fn enter_as(&self, connection_id: i64, who: Who) {
        {
            let mut activity = self.activity();
            if std::mem::take(&mut activity.awaits_claim) {
                activity.backoff = (activity.backoff * 2).min(QUIET_PERIOD_MAX);
            }
        }
        self.change(|connections| {
            connections.insert(connection_id, who);
        });
    }

    /// A claim of this connection took lanes.
    pub fn found(&self, connection_id: i64) {
        self.leave(connection_id);
        self.change_activity(|activity| {
            activity.busy_at = activity.active_at;
            activity.awaits_claim = false;
            activity.backoff = QUIET_PERIOD;
        });
    }

    /// Lanes are being settled: this is no idle moment.
    pub fn busy(&self) {
        self.activity().busy_at = Instant::now();
    }

    /// The connection is no longer idle.
    pub fn leave(&self, connection_id: i64) {
        self.change(|connections| {
            connections.remove(&connection_id);
        });
    }

    /// A notification arrived.
    pub fn notified(&self) {
        self.change_activity(|activity| {
            let now = activity.active_at;
            let follows = activity.notified_at.is_some_and(|at| now - at < BURST_GAP);
            activity.burst = if follows {
                activity.burst.saturating_add(1)
            } else {
                1
            };
            activity.notified_at = Some(now);
            activity.awaits_claim = true;
            if activity.burst >= BURST {
                activity.contention_at = Some(now);
                if now >= activity.contended_until {
                    activity.contended_until = now + activity.contention_lasts;
                    activity.contention_lasts =
                        (activity.contention_lasts * 2).min(CONTENTION_LASTS_MAX);
                }
            }
        });
    }

    /// Records whether the worker holds the doorbell or queues for it, so that producers notify.
    pub fn set_notified(&self, is_notified: bool) {
        self.is_notified.store(is_notified, Ordering::Relaxed);
    }

    /// Whether producers notify this worker. If not, its connections scan at short intervals.
    pub fn is_notified(&self) -> bool {
        self.is_notified.load(Ordering::Relaxed)
    }

    fn change_activity(&self, change: impl FnOnce(&mut Activity)) {
        {
            let mut activity = self.activity();
            activity.active_at = Instant::now();
            change(&mut activity);
        }
        self.changed.notify_waiters();
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<i64, Who>)) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        change(&mut connections);
        let who = connections.values().copied().max().unwrap_or_default();
        let before = *self.who.borrow();
        if who == before {
            return;
        }
        if before == Who::Nobody {
            // Before the change is published: a task that waits for an idle moment reads this time when it wakes.
            self.busy();
        }
        self.who.send_replace(who);
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until some connection is idle.
    async fn any_idle(&self) {
        // An error would mean that the sender, which `self` owns, is gone.
        let _ = self
            .who
            .subscribe()
            .wait_for(|who| *who != Who::Nobody)
            .await;
    }

    /// Waits until some connection is idle and nothing was claimed or settled for [`IDLE_MOMENT`].
    pub async fn idle_moment(&self) {
        loop {
            self.any_idle().await;
            let idle_moment_at = self.activity().busy_at + IDLE_MOMENT;
            if idle_moment_at <= Instant::now() {
                return;
            }
            sleep_until(idle_moment_at).await;
        }
    }

    /// Waits until some connection is idle and the quiet period has passed. Returns when that was found.
    pub async fn quiet(&self) -> Instant {
        let mut idle = self.who.subscribe();
        loop {
            // An error would mean that the sender, which `self` owns, is gone.
            let who = idle.wait_for(|who| *who != Who::Nobody).await;
            let who = who.map_or(Who::Nobody, |who| *who);
            let now = Instant::now();
            let quiet_at = self.activity().at(who);
            if quiet_at <= now {
                let mut activity = self.activity();
                if activity.burst == 1 {
                    activity.contention_lasts =
                        (activity.contention_lasts / 2).max(CONTENTION_LASTS);
                }
                return now;
            }
            tokio::select! {
                () = sleep_until(quiet_at) => {}
                _ = idle.changed() => {}
            }
        }
    }

    /// Waits for activity after `activity`. Returns whether a notification was among it.
    pub async fn active_after(&self, activity: Instant) -> bool {
        self.activity_until(|state| state.active_at > activity)
            .await;
        self.activity().notified_at.is_some_and(|at| at > activity)
    }

    /// Waits until contention is seen after `activity`.
    pub async fn contention_after(&self, activity: Instant) {
        self.activity_until(|state| state.contention_at.is_some_and(|at| at > activity))
            .await;
    }

    async fn activity_until(&self, holds: impl Fn(&Activity) -> bool) {
        loop {
            let change_activity = self.changed.notified();
            tokio::pin!(change_activity);
            // Registered before the check, so that no change between the two is missed.
            change_activity.as_mut().enable();
            if holds(&self.activity()) {
                return;
            }
            change_activity.await;
        }
    }
}

#[cfg(test)]
mod tests;
