//! Which lane connections have nothing to do, and since when: the doorbell and retention want to know (I8).
//!
//! Who holds the doorbell has producers notify, and a notification takes a lock of the whole server until its commit is
//! on disk: producers that notify commit one after the other. So a worker wants the doorbell only when it has been calm
//! for a while: no claim of it took a lane, and nobody was notified. For how long goes by what comes of it:
//!
//! - Notifications that come one by one: it costs nobody anything to tell of each event. A moment is enough.
//! - Several in a row, each a commit after the one before: producers stand in line. For some time it is not to be told
//!   of what it finds anyway, because it looks at short intervals after each event; for longer if they stand in line again
//!   then.
//! - One, and nothing to be had, because other workers were there first: it need not be told of everything.
//!
//! Who is not told looks: no connection waits for longer than [`CALM_LATE`] then, whatever keeps the others busy.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

/// For how long nothing must have stirred at the least.
const CALM_SOON: Duration = Duration::from_millis(2);
/// After producers stood in line: longer than most disks take for a commit, so that those which still stand there do not
/// have the doorbell taken again.
pub const CALM_LATE: Duration = Duration::from_millis(20);
/// Notifications that make a line, each so soon after the one before.
const LINE: u32 = 4;
const IN_A_ROW: Duration = Duration::from_millis(6);
/// For how long that counts, the first time and at the most.
const LINE_COUNTS: Duration = Duration::from_millis(250);
const LINE_COUNTS_LIMIT: Duration = Duration::from_secs(8);
/// Of a worker that was told in vain over and over.
const CALM_LIMIT: Duration = Duration::from_millis(160);
/// For how long nothing is taken or settled in a lull. While a backlog is delivered, a connection takes some lanes every
/// few milliseconds, and finds none now and then because another was there first.
const LULL: Duration = Duration::from_millis(200);

/// The connections of one worker that have nothing to do.
#[derive(Debug, Default)]
pub struct Idle {
    connections: Mutex<HashSet<i64>>,
    any: watch::Sender<bool>,
    calm: Mutex<Calm>,
    stirs: Notify,
    /// The worker holds the doorbell, or stands in line for it.
    is_told: AtomicBool,
}

#[derive(Debug)]
struct Calm {
    stirred_at: Instant,
    told_at: Option<Instant>,
    /// Notifications in a row.
    row: u32,
    /// Producers stood in line then.
    line_at: Option<Instant>,
    /// That counts until then; and for how long it will the next time.
    line_until: Instant,
    line_counts: Duration,
    /// For how long nothing must have stirred, by how often it was told in vain.
    by_luck: Duration,
    /// Notified, and no claim came back since.
    expects: bool,
    /// When a lane was last taken or settled, or the first connection came to be idle: a lull begins no sooner.
    busy_at: Instant,
}

impl Default for Calm {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            stirred_at: now,
            told_at: None,
            row: 0,
            line_at: None,
            line_until: now,
            line_counts: LINE_COUNTS,
            by_luck: CALM_SOON,
            expects: false,
            busy_at: now,
        }
    }
}

impl Calm {
    fn at(&self) -> Instant {
        let soon = self.stirred_at + self.by_luck.max(CALM_SOON);
        let late = self.stirred_at + self.by_luck.max(CALM_LATE);
        late.min(soon.max(self.line_until))
    }
}

impl Idle {
    /// A claim of this connection took nothing.
    pub fn enter(&self, connection_id: i64) {
        {
            let mut calm = self.calm();
            if std::mem::take(&mut calm.expects) {
                calm.by_luck = (calm.by_luck * 2).min(CALM_LIMIT);
            }
        }
        self.change(|connections| connections.insert(connection_id));
    }

    /// A claim of this connection took lanes.
    pub fn found(&self, connection_id: i64) {
        self.leave(connection_id);
        self.stir(|calm| {
            calm.busy_at = calm.stirred_at;
            calm.expects = false;
            calm.by_luck = CALM_SOON;
        });
    }

    /// Something is delivered and settled: there is no lull.
    pub fn busy(&self) {
        self.calm().busy_at = Instant::now();
    }

    /// This connection ends.
    pub fn leave(&self, connection_id: i64) {
        self.change(|connections| connections.remove(&connection_id));
    }

    /// Somebody notified the workers.
    pub fn told(&self) {
        self.stir(|calm| {
            let now = calm.stirred_at;
            let follows = calm.told_at.is_some_and(|at| now - at < IN_A_ROW);
            calm.row = if follows {
                calm.row.saturating_add(1)
            } else {
                1
            };
            calm.told_at = Some(now);
            calm.expects = true;
            if calm.row >= LINE {
                calm.line_at = Some(now);
                if now >= calm.line_until {
                    calm.line_until = now + calm.line_counts;
                    calm.line_counts = (calm.line_counts * 2).min(LINE_COUNTS_LIMIT);
                }
            }
        });
    }

    /// Producers tell the workers from now on, or do so no more as far as this one is concerned.
    pub fn set_told(&self, is_told: bool) {
        self.is_told.store(is_told, Ordering::Relaxed);
    }

    /// Whether this worker is told of what comes. If not, its connections look for it.
    pub fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    fn stir(&self, change: impl FnOnce(&mut Calm)) {
        {
            let mut calm = self.calm();
            calm.stirred_at = Instant::now();
            change(&mut calm);
        }
        self.stirs.notify_waiters();
    }

    fn change(&self, change: impl FnOnce(&mut HashSet<i64>) -> bool) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if change(&mut connections) {
            let any = !connections.is_empty();
            if any && !*self.any.borrow() {
                // Before it is said: who waits for a lull looks at it then.
                self.busy();
            }
            self.any.send_replace(any);
        }
    }

    fn calm(&self) -> MutexGuard<'_, Calm> {
        self.calm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until any is idle.
    async fn any_idle(&self) {
        // An error would mean that the sender, which is ours, is gone.
        let _ = self.any.subscribe().wait_for(|any| *any).await;
    }

    /// Until any is idle and nothing has been delivered for long enough that it is not just between two claims.
    pub async fn lull(&self) {
        loop {
            self.any_idle().await;
            let lull_at = self.calm().busy_at + LULL;
            if lull_at <= Instant::now() {
                return;
            }
            sleep_until(lull_at).await;
        }
    }

    /// Until any is idle and nothing has stirred for a while. Returns when that was found.
    pub async fn calmed(&self) -> Instant {
        loop {
            self.any_idle().await;
            let now = Instant::now();
            let calm_at = self.calm().at();
            if calm_at <= now {
                let mut calm = self.calm();
                if calm.row == 1 {
                    calm.line_counts = (calm.line_counts / 2).max(LINE_COUNTS);
                }
                return now;
            }
            sleep_until(calm_at).await;
        }
    }

    /// Until something has stirred after that. Returns whether it was told of.
    pub async fn stirred_after(&self, calm: Instant) -> bool {
        self.stirs_until(|state| state.stirred_at > calm).await;
        self.calm().told_at.is_some_and(|at| at > calm)
    }

    /// Until producers have stood in line after that.
    pub async fn line_after(&self, calm: Instant) {
        self.stirs_until(|state| state.line_at.is_some_and(|at| at > calm))
            .await;
    }

    async fn stirs_until(&self, holds: impl Fn(&Calm) -> bool) {
        loop {
            let stir = self.stirs.notified();
            tokio::pin!(stir);
            // Before the look, so that none is missed in between.
            stir.as_mut().enable();
            if holds(&self.calm()) {
                return;
            }
            stir.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake, Waker};

    use super::*;
    use futures_util::FutureExt;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_lull_is_when_a_connection_has_had_nothing_to_do_for_a_while() {
        let idle = Idle::default();
        let mut lull = Box::pin(idle.lull());
        // However long the first connection takes to open: what it can claim it has not looked for yet.
        advance(LULL * 5).await;
        assert!((&mut lull).now_or_never().is_none(), "none is idle");
        idle.enter(2);
        let almost = LULL - Duration::from_millis(1);
        advance(almost).await;
        for delivers in [Idle::busy, |idle: &Idle| idle.found(1)].repeat(3) {
            delivers(&idle);
            advance(almost).await;
            assert!(
                (&mut lull).now_or_never().is_none(),
                "a backlog is delivered"
            );
        }
        // Notifications are about what others may have taken, and looks about nothing at all.
        idle.told();
        idle.enter(2);
        advance(Duration::from_millis(1)).await;
        lull.await;
        idle.leave(2);
        assert!(idle.lull().now_or_never().is_none());
    }

    /// Looks for a lull in the moment in which it is woken.
    struct Looking {
        idle: Arc<Idle>,
        lulls: AtomicUsize,
        looks: AtomicUsize,
    }

    impl Wake for Looking {
        fn wake(self: Arc<Self>) {
            self.looks.fetch_add(1, Ordering::Relaxed);
            let lull = self.idle.lull().now_or_never();
            self.lulls
                .fetch_add(usize::from(lull.is_some()), Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_learns_that_a_connection_is_idle_knows_since_when() {
        let looking = Arc::new(Looking {
            idle: Arc::default(),
            lulls: AtomicUsize::new(0),
            looks: AtomicUsize::new(0),
        });
        advance(LULL * 5).await;
        let waker = Waker::from(Arc::clone(&looking));
        let idle = Arc::clone(&looking.idle);
        let mut lull = Box::pin(idle.lull());
        assert!(
            lull.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        looking.idle.enter(1);
        let counts = [&looking.looks, &looking.lulls].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 0]);
    }

    /// How long it takes until a worker is calm of which this has just become known.
    async fn calm_after(idle: &Idle) -> Duration {
        let since = Instant::now();
        idle.calmed().await - since
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_is_calm_when_nothing_was_found_or_told_for_a_while() {
        let idle = Idle::default();
        idle.enter(1);
        assert_eq!(calm_after(&idle).await, CALM_SOON);
        for _ in 0..50 {
            let mut calmed = Box::pin(idle.calmed());
            idle.found(1);
            idle.enter(1);
            advance(CALM_SOON / 2).await;
            assert!((&mut calmed).now_or_never().is_none());
        }
        assert_eq!(calm_after(&idle).await, CALM_SOON / 2);
        idle.leave(1);
        assert!(
            idle.calmed().now_or_never().is_none(),
            "no connection is idle"
        );
    }

    /// Each number is of notifications between two times that the worker is calm, the first of which brings something;
    /// returned is how many milliseconds it takes until it is calm then.
    async fn waits(idle: &Idle, notifications: &[u32], finds: bool) -> Vec<u128> {
        let mut waits = Vec::new();
        for notified in notifications {
            for _ in 0..*notified {
                idle.told();
            }
            if finds {
                idle.found(1);
            }
            idle.enter(1);
            // Looks that nobody asked for say nothing.
            idle.enter(1);
            waits.push(calm_after(idle).await.as_millis());
        }
        waits
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_of_events_one_by_one_wants_to_be_told_at_once() {
        let idle = Idle::default();
        for _ in 0..20 {
            advance(IN_A_ROW).await;
            assert_eq!(waits(&idle, &[1], true).await, [2]);
        }
    }

    /// With a disk that takes four milliseconds for a commit the worker is calm, by what it knows at first, before the
    /// next one in line has committed.
    #[tokio::test(start_paused = true)]
    async fn a_line_is_seen_although_the_worker_is_calm_between_its_notifications() {
        let idle = Idle::default();
        let mut calm = Vec::new();
        for _ in 0..5 {
            calm.push(waits(&idle, &[1], true).await[0]);
            advance(Duration::from_millis(4) - CALM_SOON).await;
        }
        assert_eq!(calm, [2, 2, 2, 20, 20]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_made_producers_stand_in_line_is_not_to_be_told_for_a_while() {
        let idle = Idle::default();
        let counts = async || {
            let since = Instant::now();
            let mut late = 0;
            while waits(&idle, &[0], true).await == [20] {
                late += 1;
            }
            assert!(late > 10);
            since.elapsed()
        };
        assert_eq!(waits(&idle, &[1], true).await, [2]);
        let calm = Instant::now();
        assert!(idle.line_after(calm).now_or_never().is_none());
        advance(Duration::from_millis(1)).await;
        assert_eq!(waits(&idle, &[4], true).await, [20]);
        idle.line_after(calm).await;
        let first = counts().await;
        assert!(first < LINE_COUNTS);
        // Again at once: it counts twice as long.
        assert_eq!(waits(&idle, &[9], true).await, [20]);
        assert!(counts().await > first * 3 / 2);
        // One by one meanwhile: as at first.
        for _ in 0..3 {
            advance(IN_A_ROW).await;
            assert_eq!(waits(&idle, &[1], true).await, [2]);
        }
        assert_eq!(waits(&idle, &[5], true).await, [20]);
        assert!(counts().await < LINE_COUNTS);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_in_vain_wants_to_be_told_less_often_until_it_finds_something() {
        let idle = Idle::default();
        let mut in_vain = Vec::new();
        for _ in 0..8 {
            advance(IN_A_ROW).await;
            in_vain.extend(waits(&idle, &[1], false).await);
        }
        assert_eq!(in_vain, [4, 8, 16, 32, 64, 128, 160, 160]);
        assert_eq!(waits(&idle, &[1], true).await, [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stir_since_it_was_calm_is_noticed_also_afterwards() {
        let idle = Idle::default();
        idle.enter(1);
        let calm = idle.calmed().await;
        let mut stirred = Box::pin(idle.stirred_after(calm));
        assert!((&mut stirred).now_or_never().is_none());
        advance(Duration::from_millis(1)).await;
        idle.found(1);
        assert!(!stirred.await, "nobody told of it");
        idle.told();
        assert!(idle.stirred_after(calm).await, "it was told meanwhile");
    }
}
