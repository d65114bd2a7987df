//! Named places between "lane locked" and "cursor moved" where a test can have the process end, as by
//! SIGKILL: `CRASH_POINT=delivered:3` ends it when that place is reached for the third time.
//!
//! Only with the cargo feature `crash-points`. Without it a call compiles to nothing and the variable
//! means nothing.

/// In the order in which a delivery passes them, but for handlers: see [`CrashPoint::HANDLERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// The lanes' locks are taken and the claim is on record.
    Claimed,
    /// Their events are here, no task has them yet.
    Fetched,
    /// A lane's task has begun.
    Held,
    /// A head that outlived two workers has a claim of its own.
    SuspectedPoisonRecorded,
    /// The adapter is about to be called; or the handler, with its transaction open.
    Delivering,
    /// The token of a delivery that takes long was replaced.
    Marked,
    /// The destination has answered, and the lane does not know yet; or the handler has, and nothing is
    /// committed.
    Delivered,
    /// The lane asks to settle.
    Judged,
    /// Its connection is about to ask Postgres.
    Settling,
    /// A handler's effect and its settlement are written and not committed.
    Committing,
    /// The cursor has moved; the lock is still held.
    Settled,
    /// The lock is free; the lane's task does not know yet.
    Unlocked,
    /// A source's update is appended, and its offset is where it was.
    UpdateAppended,
    /// Both are written and not committed.
    UpdateMoved,
    /// Both are committed; its platform does not know yet.
    UpdateCommitted,
    /// The events of an archived day are restored, and not committed.
    DayCopied,
}

impl CrashPoint {
    /// What a delivery to an adapter passes.
    pub const ADAPTERS: [Self; 11] = [
        Self::Claimed,
        Self::Fetched,
        Self::Held,
        Self::SuspectedPoisonRecorded,
        Self::Delivering,
        Self::Marked,
        Self::Delivered,
        Self::Judged,
        Self::Settling,
        Self::Settled,
        Self::Unlocked,
    ];

    /// What a delivery to a handler passes, in this order.
    pub const HANDLERS: [Self; 11] = [
        Self::Claimed,
        Self::Held,
        Self::Fetched,
        Self::SuspectedPoisonRecorded,
        Self::Delivering,
        Self::Delivered,
        Self::Judged,
        Self::Settling,
        Self::Committing,
        Self::Settled,
        Self::Unlocked,
    ];

    /// What an update of a source passes.
    pub const SOURCES: [Self; 3] = [
        Self::UpdateAppended,
        Self::UpdateMoved,
        Self::UpdateCommitted,
    ];

    /// As the variable names it.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    #[cfg(not(feature = "crash-points"))]
    #[inline(always)]
    pub fn pass(self) {}

    #[cfg(feature = "crash-points")]
    pub fn pass(self) {
        use std::sync::OnceLock;
        use std::sync::atomic::{AtomicU64, Ordering};

        static CHOSEN: OnceLock<Option<(String, u64)>> = OnceLock::new();
        static REACHED: AtomicU64 = AtomicU64::new(0);
        let chosen = CHOSEN.get_or_init(|| {
            let text = std::env::var("CRASH_POINT").ok()?;
            let (name, times) = text.split_once(':')?;
            Some((name.to_owned(), times.parse().ok()?))
        });
        let Some((name, times)) = chosen else { return };
        if *name == self.name() && REACHED.fetch_add(1, Ordering::SeqCst) + 1 == *times {
            let this = rustix::process::getpid();
            // It does not return: nobody survives this signal.
            let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
        }
    }
}
