//! Lines that keep an invariant, each with a switch by which a test has the code do without it:
//! `MUTATION=TrustWithoutEnd`. A test that passes then would not notice if the line were gone.
//!
//! Only with the cargo feature `crash-points`. Without it `is_on` is the constant false, and what awaits behind
//! a switch is not there at all, so that no future is larger for it; the variable means nothing. Functions of
//! the schema need no switch: tests replace them in their own databases. The table of all is
//! `tests/support/mutation/table.rs`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// I3: a lane waits out its head's backoff while it is held.
    BackoffWhileHeld,
    /// I4: the cursor passes an event before its delivery.
    CursorBeforeDelivery,
    /// I5: settlements go over a pooled connection.
    SettledElsewhere,
    /// I5: locks are believed in for ever.
    TrustWithoutEnd,
    /// I5: a handler's effect is committed before its settlement.
    EffectCommittedFirst,
    /// I7: a pooled connection is held during a delivery.
    PooledConnectionHeld,
    /// I7: a lane connection is in a transaction during its deliveries.
    TransactionHeld,
    /// I8: an idle connection looks when it is told to, and never by itself.
    NoPolls,
    /// I8: a worker keeps the doorbell for as long as it runs.
    DoorbellKept,
    /// I8: who leaves the queue for the doorbell takes it that it did not get it.
    DoorbellLeftBehind,
    /// I9: each walk starts at the first token that there ever was.
    NoBound,
    /// I10: a lane does not wait for its turn.
    TurnNotAwaited,
    /// I10: a process on its own takes the whole of each limit.
    WholeLimitAlone,
    /// I11: payloads that are read one by one do not wait for memory.
    AllowanceWithoutBound,
    /// I11: what is fetched ahead is not held against its bound.
    BudgetWithoutBound,
    /// I12: critical events are merged like others.
    CriticalEventsMerged,
    /// I12: bursty events are merged across a critical one.
    SegmentsRunOn,
    /// I13: nobody looks behind the bounds of the walks.
    NoLookBehind,
    /// I13: looks behind them start above what an open transaction may yet insert.
    OpenTransactionsForgotten,
}

impl Mutation {
    pub const ALL: [Self; 19] = [
        Self::BackoffWhileHeld,
        Self::CursorBeforeDelivery,
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
