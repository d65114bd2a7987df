//! When a worker counts as idle and as quiet, on a clock that stands still.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Wake, Waker};

use super::*;
use futures_util::FutureExt;
use tokio::time::advance;

#[tokio::test(start_paused = true)]
async fn an_idle_moment_begins_after_a_connection_was_idle_for_a_while() {
    let idle = Idle::default();
    let mut idle_moment = Box::pin(idle.idle_moment());
    // However long the first connection takes to open: it has not scanned yet.
    advance(IDLE_MOMENT * 5).await;
    assert!((&mut idle_moment).now_or_never().is_none(), "none is idle");
    idle.enter(2);
    let almost = IDLE_MOMENT - Duration::from_millis(1);
    advance(almost).await;
    for delivers in [Idle::busy, |idle: &Idle| idle.found(1)].repeat(3) {
        delivers(&idle);
        advance(almost).await;
        assert!(
            (&mut idle_moment).now_or_never().is_none(),
            "a backlog is being delivered"
        );
    }
    // Notifications and claims that take nothing do not count as deliveries.
    idle.notified();
    idle.enter(2);
    advance(Duration::from_millis(1)).await;
    idle_moment.await;
    idle.leave(2);
    assert!(idle.idle_moment().now_or_never().is_none());
}

/// Checks for an idle moment at the very moment in which it is woken.
struct Waiter {
    idle: Arc<Idle>,
    idle_moments: AtomicUsize,
    wakes: AtomicUsize,
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        let idle_moment = self.idle.idle_moment().now_or_never();
        self.idle_moments
            .fetch_add(usize::from(idle_moment.is_some()), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_sees_an_idle_connection_sees_since_when_it_is_idle() {
    let waiter = Arc::new(Waiter {
        idle: Arc::default(),
        idle_moments: AtomicUsize::new(0),
        wakes: AtomicUsize::new(0),
    });
    advance(IDLE_MOMENT * 5).await;
    let waker = Waker::from(Arc::clone(&waiter));
    let idle = Arc::clone(&waiter.idle);
    let mut idle_moment = Box::pin(idle.idle_moment());
    assert!(
        idle_moment
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    waiter.idle.enter(1);
    let counts = [&waiter.wakes, &waiter.idle_moments].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [1, 0]);
}

/// The time from now until the worker is quiet.
async fn quiet_after(idle: &Idle) -> Duration {
    let since = Instant::now();
    idle.quiet().await - since
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_quiet_after_a_time_without_claims_and_notifications() {
    let idle = Idle::default();
    idle.enter(1);
    assert_eq!(quiet_after(&idle).await, QUIET_PERIOD);
    for _ in 0..50 {
        let mut quiet = Box::pin(idle.quiet());
        idle.found(1);
        idle.enter(1);
        advance(QUIET_PERIOD / 2).await;
        assert!((&mut quiet).now_or_never().is_none());
    }
    assert_eq!(quiet_after(&idle).await, QUIET_PERIOD / 2);
    idle.leave(1);
    assert!(
        idle.quiet().now_or_never().is_none(),
        "no connection is idle"
    );
}

#[tokio::test(start_paused = true)]
async fn while_only_handlers_are_idle_a_worker_that_claims_every_few_milliseconds_is_not_quiet() {
    let idle = Idle::default();
    idle.enter_handler(9);
    assert_eq!(quiet_after(&idle).await, QUIET_PERIOD_HANDLERS);
    for step in 0..50 {
        let mut quiet = Box::pin(idle.quiet());
        idle.found(1);
        // On a slow machine too.
        advance(QUIET_PERIOD * (step + 4)).await;
        assert!((&mut quiet).now_or_never().is_none());
    }
    // A lane connection that becomes idle shortens the wait that has begun.
    idle.found(1);
    let quiet = idle.quiet();
    tokio::pin!(quiet);
    assert!(quiet.as_mut().now_or_never().is_none());
    let since = Instant::now();
    idle.enter(1);
    assert_eq!(quiet.await - since, QUIET_PERIOD);
}

/// Each number is a count of notifications between two times at which the worker is quiet. If `finds`, a claim
/// takes lanes after them. Returns how many milliseconds the worker then takes to become quiet.
async fn waits(idle: &Idle, notifications: &[u32], finds: bool) -> Vec<u128> {
    let mut waits = Vec::new();
    for notified in notifications {
        for _ in 0..*notified {
            idle.notified();
        }
        if finds {
            idle.found(1);
        }
        idle.enter(1);
        // A claim that no notification asked for changes nothing.
        idle.enter(1);
        waits.push(quiet_after(idle).await.as_millis());
    }
    waits
}

#[tokio::test(start_paused = true)]
async fn single_notifications_do_not_lengthen_the_quiet_period() {
    let idle = Idle::default();
    for _ in 0..20 {
        advance(BURST_GAP).await;
        assert_eq!(waits(&idle, &[1], true).await, [2]);
    }
}

/// With a disk that takes four milliseconds for a commit, the worker is at first quiet again before the next
/// producer in the queue has committed.
#[tokio::test(start_paused = true)]
async fn contention_is_seen_although_the_worker_is_quiet_between_notifications() {
    let idle = Idle::default();
    let mut activity = Vec::new();
    for _ in 0..5 {
        activity.push(waits(&idle, &[1], true).await[0]);
        advance(Duration::from_millis(4) - QUIET_PERIOD).await;
    }
    assert_eq!(activity, [2, 2, 2, 20, 20]);
}

#[tokio::test(start_paused = true)]
async fn contention_lengthens_the_quiet_period_for_a_while() {
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
    let activity = Instant::now();
    assert!(idle.contention_after(activity).now_or_never().is_none());
    advance(Duration::from_millis(1)).await;
    assert_eq!(waits(&idle, &[4], true).await, [20]);
    idle.contention_after(activity).await;
    let first = counts().await;
    assert!(first < CONTENTION_LASTS);
    // Contention again at once: it is assumed to last twice as long.
    assert_eq!(waits(&idle, &[9], true).await, [20]);
    assert!(counts().await > first * 3 / 2);
    // After single notifications the time is as short as at first.
    for _ in 0..3 {
        advance(BURST_GAP).await;
        assert_eq!(waits(&idle, &[1], true).await, [2]);
    }
    assert_eq!(waits(&idle, &[5], true).await, [20]);
    assert!(counts().await < CONTENTION_LASTS);
}

#[tokio::test(start_paused = true)]
async fn notifications_without_a_claim_double_the_quiet_period_until_a_claim_succeeds() {
    let idle = Idle::default();
    let mut in_vain = Vec::new();
    for _ in 0..8 {
        advance(BURST_GAP).await;
        in_vain.extend(waits(&idle, &[1], false).await);
    }
    assert_eq!(in_vain, [4, 8, 16, 32, 64, 128, 160, 160]);
    assert_eq!(waits(&idle, &[1], true).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn activity_after_the_quiet_period_is_noticed_afterwards_too() {
    let idle = Idle::default();
    idle.enter(1);
    let activity = idle.quiet().await;
    let mut active = Box::pin(idle.active_after(activity));
    assert!((&mut active).now_or_never().is_none());
    advance(Duration::from_millis(1)).await;
    idle.found(1);
    assert!(!active.await, "no notification was among it");
    idle.notified();
    assert!(
        idle.active_after(activity).await,
        "a notification arrived meanwhile"
    );
}
