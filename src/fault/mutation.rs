//! Switches that turn off single lines which keep an invariant, for example with `MUTATION=TrustWithoutEnd`. If a test
//! still passes, it would not notice that the line is missing.
//!
//! The switches exist only with the cargo feature `crash-points`. Without it, `is_on` is the constant false, the
//! variable has no effect, and code that awaits behind a switch is not compiled, so futures do not grow. SQL functions
//! need no switch: tests replace them in their own databases. `tests/support/mutation/table.rs` lists all mutations.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// I3: a lane waits out its head's backoff while it is held.
    BackoffWhileHeld,
    /// I3: what is behind an event that failed ahead of its lane's head is sent before it.
    SentPastAFailure,
    /// I4: the cursor passes an event before its delivery.
    CursorBeforeDelivery,
    /// I4: the cursor passes a batch, however far its destination came.
    BatchPassedWhole,
    /// I5: a worker settles on a pooled connection.
    SettledElsewhere,
    /// I5: a worker relies on its locks for ever.
    TrustWithoutEnd,
    /// I5: a handler's effect is committed before its settlement.
    EffectCommittedFirst,
    /// I7: a pooled connection is held during a delivery.
    PooledConnectionHeld,
    /// I7: a lane connection is in a transaction during its deliveries.
    TransactionHeld,
    /// I8: an idle connection scans only when it is notified, never by itself.
    NoPolls,
    /// I8: a worker keeps the doorbell for as long as it runs.
    DoorbellKept,
    /// I8: a worker that stops waiting for the doorbell lock assumes that it never acquired it.
    DoorbellLeftBehind,
    /// I9: each scan starts before the first ready entry, not at its scan start.
    NoBound,
    /// I10: a lane does not wait for its reservation.
    TurnNotAwaited,
    /// I10: a process without Redis uses the whole limit, not its local quota.
    WholeLimitAlone,
    /// I11: large payloads, which are read one by one, do not wait for memory.
    AllowanceWithoutBound,
    /// I11: prefetched events are not counted against the limit.
    BudgetWithoutBound,
    /// I12: critical events are merged like others.
    CriticalEventsMerged,
    /// I12: bursty events are merged across a critical one.
    SegmentsRunOn,
    /// I13: no backstop scan finds entries behind the scan starts.
    NoLookBehind,
    /// I13: backstop scans start above entries that an open transaction may still insert.
    OpenTransactionsForgotten,
}

impl Mutation {
    pub const ALL: [Self; 21] = [
        Self::BackoffWhileHeld,
        Self::SentPastAFailure,
        Self::CursorBeforeDelivery,
        Self::BatchPassedWhole,
        Self::SettledElsewhere,
        Self::TrustWithoutEnd,
        Self::EffectCommittedFirst,
        Self::PooledConnectionHeld,
        Self::TransactionHeld,
        Self::NoPolls,
        Self::DoorbellKept,
        Self::DoorbellLeftBehind,
        Self::NoBound,
        Self::TurnNotAwaited,
        Self::WholeLimitAlone,
        Self::AllowanceWithoutBound,
        Self::BudgetWithoutBound,
        Self::CriticalEventsMerged,
        Self::SegmentsRunOn,
        Self::NoLookBehind,
        Self::OpenTransactionsForgotten,
    ];

    /// As the variable names it.
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    #[cfg(not(feature = "crash-points"))]
    #[inline(always)]
    pub const fn is_on(self) -> bool {
        false
    }

    #[cfg(feature = "crash-points")]
    pub fn is_on(self) -> bool {
        use std::sync::OnceLock;

        static CHOSEN: OnceLock<Option<Mutation>> = OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| {
            let name = std::env::var("MUTATION").ok()?;
            Self::ALL.into_iter().find(|it| it.name() == name)
        });
        *chosen == Some(self)
    }
}
