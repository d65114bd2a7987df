//! What a run of the checker covers: the lanes and their sessions, the producers' transactions, what
//! may go wrong and how often, and the details that are left out on purpose.

use crate::state::{Budget, LANES};

/// How a producer's transaction reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Isolation {
    ReadCommitted,
    /// SERIALIZABLE too: what matters is that its one snapshot may be older than the append lock.
    RepeatableRead,
}

/// One producer's transaction: the sessions of its events, in the order of its calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transaction {
    pub isolation: Isolation,
    pub sessions: &'static [u8],
}

/// A transaction at READ COMMITTED.
pub const fn committed(sessions: &'static [u8]) -> Transaction {
    Transaction {
        isolation: Isolation::ReadCommitted,
        sessions,
    }
}

/// A transaction whose snapshot is as old as its first statement.
pub const fn repeatable(sessions: &'static [u8]) -> Transaction {
    Transaction {
        isolation: Isolation::RepeatableRead,
        sessions,
    }
}

/// A protecting detail that is taken away, to see the checker notice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutation {
    // lanekeeper.enqueue
    /// Appends do not take the append lock.
    AppendsWithoutLock,
    /// The tokens are decided by what was read before the append lock.
    AppendReadsBeforeLock,
    /// REPEATABLE READ decides about tokens like READ COMMITTED.
    NoTokenAtRepeatableRead,
    /// `refuse_stale_snapshot` is not called.
    NoStaleSnapshotCheck,
    // lanekeeper.claim
    /// A claim does not look again, under the lane's lock, whether the token is still there.
    GoneTokensAreTaken,
    /// Progress is read with the snapshot of the scan.
    ProgressOfWalkSnapshot,
    /// Lanes that the connection holds are not passed over.
    HeldLanesAreWalked,
    /// The claim deletes the token that it took.
    ClaimDeletesToken,
    /// No row of `claim` is written.
    ClaimsAreNotRecorded,
    // lanekeeper.settle and the claimer
    /// A lane goes idle without the append lock.
    IdleWithoutLock,
    /// The look at the log comes before the append lock.
    LookBeforeLock,
    /// The next version is inserted whatever the delete hit.
    PlainInsert,
    /// The lane's lock is released before the settlement commits.
    UnlockBeforeCommit,
    /// A settlement may go over another connection than the one that holds the lock.
    SettleElsewhere,
    /// Events are settled when they are fetched.
    SettleBeforeDelivery,
    /// Settlements that dead-letter or drop are not flushed either.
    OutcomesAreNotFlushed,
    /// The successor of an exhausted event does not wait for the settlement of that.
    SuccessorBeforeOutcome,
    /// A marked lane that is released keeps the token in the future.
    ReleaseKeepsMark,
    // lanekeeper.requeue_dead_letters
    /// A dead letter is requeued whoever delivers its lane.
    RequeueWithoutLaneLock,
    /// A requeued dead letter that is in front has no token.
    RequeueInsertsNoToken,
    /// The successor of a requeued dead letter does not wait for the settlement of that.
    SuccessorBeforeLetter,
    // acknowledgements
    /// The cursor passes what was sent.
    SentCountsAsAcknowledged,
    /// A lane that waits for an acknowledgement has no token.
    WaitInsertsNoToken,
    /// An acknowledgement inserts no token.
    AckInsertsNoToken,
    /// It is marked that a message was sent, and then it is sent.
    MarkedBeforeSent,
    // lanekeeper.close_session, lanekeeper.interrupt
    /// An append that waited for a close does not look whether the session is closed.
    CloseNotSeen,
    /// What is passed has no outcome.
    PassedWithoutOutcome,
    /// A lane that is passed keeps its version.
    ClosedLaneKeepsItsVersion,
    /// A lane that is passed gets no token.
    PassedLaneNotWoken,
    /// What waits before a barrier is passed while a delivery is under way.
    BarrierDoesNotWait,
    // lanekeeper.take_over
    /// Survivors insert no tokens.
    NoTokenAtTakeover,
    /// Survivors do not try the lane's lock.
    TakeoverWithoutLaneLock,
    /// Claims whose lanes are not released yet are forgotten.
    TakeoverForgetsBusyLanes,
    /// Lost connections of living workers are charged too.
    TakeoverChargesTheLiving,
    /// Connections of an earlier epoch are charged too.
    TakeoverIgnoresEpoch,
    // waking
    /// No scan starts from the beginning.
    NoFullWalk,
    /// An idle worker looks again only when something wakes it.
    NoPoll,
    /// Nobody looks after the doorbell was granted.
    NoLookAfterGrant,
    /// Notifications do not arrive.
    NoNotifications,
}

/// Whether a worker stops believing in its locks before the server gives them to others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Trust {
    /// As `src/engine/peers/lock_validity.rs` sees to.
    #[default]
    Kept,
    /// The assumption is broken: a lost connection is noticed late.
    Broken,
}

/// One run of the checker.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Of each lane. Two lanes of one session are two subscriptions.
    pub sessions: [u8; LANES],
    pub transactions: Vec<Transaction>,
    pub workers: usize,
    /// States that differ in the workers' names only are one. A way to a state then exchanges the
    /// names without saying so.
    pub alike: bool,
    pub budget: Budget,
    /// Producers may roll back.
    pub rollbacks: bool,
    /// A lane that cannot go idle is retried later. Otherwise it tries for ever.
    pub gives_up: bool,
    pub trust: Trust,
    /// Idle workers sleep, and are woken by the doorbell, timers and polls. Otherwise they may look
    /// at any time, which is the same and more.
    pub doorbell: bool,
    /// Subscriptions require acknowledgements.
    pub acks: bool,
    /// Scans start at a scan start.
    pub bounds: bool,
    /// Statements that a lock makes equal to one step are steps of their own.
    pub fine: bool,
    pub mutations: Vec<Mutation>,
}

impl Scenario {
    /// Two workers, two lanes in a session each, and nothing that goes wrong.
    pub fn new(transactions: &[Transaction]) -> Self {
        Self {
            sessions: [0, 1],
            transactions: transactions.to_vec(),
            workers: 2,
            alike: false,
            budget: Budget::default(),
            rollbacks: true,
            gives_up: true,
            trust: Trust::Kept,
            doorbell: false,
            acks: false,
            bounds: false,
            fine: false,
            mutations: Vec::new(),
        }
    }

    /// Both lanes belong to the first session: two subscriptions.
    #[must_use]
    pub fn one_session(mut self) -> Self {
        self.sessions = [0, 0];
        self
    }

    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    #[must_use]
    pub fn without(mut self, mutation: Mutation) -> Self {
        self.mutations.push(mutation);
        self
    }

    pub fn lacks(&self, mutation: Mutation) -> bool {
        self.mutations.contains(&mutation)
    }

    /// Whether the disk may lag behind what is seen.
    pub fn has_failovers(&self) -> bool {
        self.budget.failovers > 0
    }

    pub fn lanes_of(&self, session: u8) -> impl Iterator<Item = usize> {
        let sessions = self.sessions;
        (0..LANES).filter(move |lane| sessions[*lane] == session)
    }
}
