//! The steps of the small system, each with the code that it stands for.
//!
//! A step is what is atomic for everybody else: a statement with its snapshot, or several that the
//! locks held meanwhile make equal to one. Where that was done, the step says so; scenarios with
//! `fine` take them apart again.

use crate::state::{Phase, State};

/// What the destination made of an event; `Verdict` and `Exhaustion` of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    Accept,
    /// Retried later.
    Fail,
    /// The last attempt: the event is dead-lettered or dropped, with an outcome.
    Exhaust,
    /// The last attempt: the lane is parked.
    Park,
}

/// What an operator does; `lanekeeper.change_lane`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    Unpark,
    Skip,
}

/// Where an operator has a dead letter delivered again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// Before everything that its lane has not delivered yet.
    Own,
    /// Behind everything that is committed.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    // ── Producers: lanekeeper.enqueue ────────────────────────────────────────────────────────────
    /// The first statement of a REPEATABLE READ transaction takes its snapshot.
    Snapshot(usize),
    /// `pg_advisory_xact_lock(append_lock(…))` is granted, and the next statement reads the newest
    /// seq, which nobody can change in between, and looks whether some lane may be idle.
    AppendLock(usize),
    /// The event is inserted; and where some lane may be idle, a ready entry for each lane that
    /// is idle by the progress that this statement sees.
    Append(usize),
    /// `lanekeeper.ring`: the probe of the doorbell.
    Ring(usize),
    /// The commit record reaches the disk.
    Flush(usize),
    /// The transaction becomes visible, lets its locks go and notifies.
    Commit(usize),
    RollBack(usize),

    // ── Lane connections: src/engine/claiming/claimer/mod.rs, lanekeeper.claim ────────────────────────────────
    /// The scan's statement takes its snapshot. A step only if a mutation makes the snapshot matter.
    WalkSnapshot(usize),
    /// The scan of `lanekeeper.claim` takes the locks of these lanes (as bits), which have a due ready entry each; its
    /// second statement reads their progress and records the claim.
    Claim(usize, u8),
    /// The second statement, if it is a separate step.
    Read(usize),
    /// `fetch` in `src/postgres/fetch.rs`: the events after the cursor.
    Fetch(usize, usize),
    /// `plan` in `src/engine/claiming/scan.rs`, with scan starts: whatever is not committed yet falls behind the
    /// worker's scan start.
    WalkPast(usize),
    /// The backstop scan (`src/engine/claiming/backstop.rs`), or a claim's scan from the beginning: about once a
    /// second.
    FullWalk(usize),

    // ── Lane tasks: src/engine/delivering/adapter_lane/mod.rs ───────────────────────────────────────────────────────────
    /// `Runner::attempt`: the adapter answers.
    Deliver(usize, usize, Verdict),
    /// The worker stops: `Operation::Release`.
    Release(usize, usize),
    /// After five tries to go idle, `BUSY_DELAY`.
    GiveUp(usize, usize),

    // ── Settlements: lanekeeper.settle ───────────────────────────────────────────────────────────
    /// `Operation::Keep`: compare-and-set and commit.
    Keep(usize, usize),
    /// `Operation::Finish`, first statement: the try for the append lock in shared mode.
    Finish(usize, usize),
    /// `Operation::Finish`, second statement: its snapshot, taken after the lock, and what it shows of
    /// the log.
    Look(usize, usize),
    /// `Operation::Finish`: the compare-and-set, the ready entry, and the commit.
    Decide(usize, usize),
    /// `Operation::Yield`.
    Yield(usize, usize),
    /// Retry, Park, Discard or Release, as the lane's task asked: compare-and-set, ready entries, commit.
    Settle(usize, usize),
    /// `sql/unlock.sql`, or the connection's next claim: the lane's lock, and the claim's row if nothing of it is held any more.
    Unlock(usize, usize),
    /// The deletion of the claim's row, where it is a step of its own.
    Forget(usize, usize),
    /// `lanekeeper.record_in_flight`: the ready entry is replaced by one that is due at the lock time-out.
    Mark(usize, usize),

    // ── Time ─────────────────────────────────────────────────────────────────────────────────────
    /// The lane's retry becomes due.
    RetryDue(usize),
    /// The lane's in-flight record becomes due.
    TimeOutDue(usize),

    // ── Waking: src/engine/waking/listener.rs, src/engine/claiming/scan.rs ───────────────────────────────────────────
    /// A claim took nothing: `Idle::enter`.
    Doze(usize),
    /// The time `next_at` of the next scan has come (`src/engine/claiming/scan.rs`).
    Poll(usize),
    /// The idle worker queues for the doorbell (`src/engine/waking/doorbell.rs`).
    QueueForBell(usize),
    /// The doorbell is granted, and the worker scans once.
    GrantBell(usize),
    /// A busy worker gives it up, or leaves the queue once granted.
    GiveBell(usize),

    // ── Faults, and what mends them ──────────────────────────────────────────────────────────────
    /// SIGKILL.
    Kill(usize),
    /// Another process is started in its place.
    Restart(usize),
    /// The lane connection is cut, or its backend ended.
    Cut(usize),
    /// The worker notices the loss of its connection late (`src/engine/peers/lock_validity.rs`).
    Notice(usize),
    /// SIGSTOP.
    Freeze(usize),
    /// `lanekeeper.terminate_frozen` by a peer.
    Terminate {
        by: usize,
        frozen: usize,
    },
    /// A request that was under way when its worker froze.
    Late(usize, usize),
    /// SIGCONT.
    Thaw(usize),
    /// The server lets go of one lane's lock of a lost connection.
    EndLaneLock(usize, usize),
    /// The server lets go of the lost connection's own lock.
    EndOwnLock(usize),
    /// `lane_connection::open`.
    Open(usize),
    /// `control::run_once`: the control connection is back, and the worker's liveness lock taken.
    Control(usize),
    /// `lanekeeper.take_over`.
    TakeOver {
        by: usize,
        of: usize,
    },
    /// The WAL writer: what was settled is on disk.
    WriteOut,
    /// The server crashes or a standby is promoted: what was not on disk is gone.
    FailOver,

    // ── Operators ────────────────────────────────────────────────────────────────────────────────
    /// `lanekeeper.change_lane`.
    Operate(usize, Action),
    /// `lanekeeper.requeue_dead_letters`.
    Requeue(usize, Place),
    /// `lanekeeper.close_session`.
    Close(usize),
    /// `lanekeeper.interrupt`.
    Interrupt(usize),
    /// The same without cancelling what is under way.
    Barrier(usize),
    /// `lanekeeper.finish_closing` of a lane that was held then.
    FinishClosing(usize),
    /// `Runner::give_way`: the worker hears of it, and drops the delivery.
    Cancel(usize, usize),
    /// `Runner::let_go`: before a barrier.
    LetGo(usize, usize),

    // ── Acknowledgements ─────────────────────────────────────────────────────────────────────────
    /// `Runner::send_once`.
    Send(usize, usize),
    /// `Progress::pass`, of an event that is acknowledged.
    PassAcked(usize, usize),
    /// `Progress::time_out`.
    SendAgain(usize, usize),
    /// `Stop::awaits`.
    Await(usize, usize),
    /// `lanekeeper.ack_many`, of the first message that its consumer has.
    Acknowledge(usize),
    /// The acknowledgement is late.
    WaitOver(usize),
}

impl Step {
    /// Whether the system takes this step by itself, given time: no fault, no producer, no operator,
    /// no choice of the destination but acceptance. What must come about must come about by these.
    pub fn is_own(&self) -> bool {
        !matches!(
            self,
            Self::Snapshot(_)
                | Self::AppendLock(_)
                | Self::Append(_)
                | Self::Ring(_)
                | Self::Flush(_)
                | Self::Commit(_)
                | Self::RollBack(_)
                | Self::WalkPast(_)
                | Self::Deliver(_, _, Verdict::Fail | Verdict::Exhaust | Verdict::Park)
                | Self::Release(..)
                | Self::Mark(..)
                | Self::Yield(..)
                | Self::Kill(_)
                | Self::Cut(_)
                | Self::Freeze(_)
                | Self::Late(..)
                | Self::Thaw(_)
                | Self::WriteOut
                | Self::FailOver
                | Self::Operate(..)
                | Self::Requeue(..)
                | Self::Close(_)
                | Self::Interrupt(_)
                | Self::Barrier(_)
                | Self::WaitOver(_)
        )
    }

    /// Whether it waits for the lock time-out: recovery must not need it.
    pub fn is_time_out(&self) -> bool {
        matches!(self, Self::TimeOutDue(_))
    }

    /// Whether it is progress of this lane's backoff or deliveries, which no other may wait for.
    pub fn is_of(&self, lane: usize) -> bool {
        match self {
            Self::RetryDue(of)
            | Self::TimeOutDue(of)
            | Self::Deliver(_, of, _)
            | Self::Send(_, of)
            | Self::Acknowledge(of) => *of == lane,
            _ => false,
        }
    }
}

/// A hold's phases in which its connection is within a statement or owes one at once.
pub fn occupies(phase: Phase) -> bool {
    matches!(
        phase,
        Phase::Locked | Phase::Looking | Phase::Deciding | Phase::Unlocking | Phase::Forgetting
    )
}

/// Whether a worker's lane connection is free for the next statement.
pub fn is_free(state: &State, worker: usize) -> bool {
    !state.workers[worker]
        .holds
        .iter()
        .any(|hold| occupies(hold.phase))
}
