//! One state of the small system: what Postgres has, what the processes know, what arrived.
//!
//! Everything is a small number in a fixed place: states are compared and hashed by the million.
//! `0` and `1` are the lanes and the workers; `seq` starts at 1 as in the log.

use crate::letter::{Done, Expected, Letter};

pub const LANES: usize = 2;
pub const SESSIONS: usize = 2;
pub const WORKERS: usize = 2;
pub const PRODUCERS: usize = 3;
/// Events in all, and so the most that one session can have.
pub const EVENTS: usize = 3;
/// Tokens that one lane can have at once, spare ones included.
pub const TOKENS: usize = 5;
/// A token that was deleted while somebody still remembers its key.
pub const GONE: u8 = u8::MAX;

/// The two connections of a worker that the model knows: the one it has, and the one before.
pub const CURRENT: usize = 0;
pub const LOST: usize = 1;

/// When a token is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Due {
    /// There is no token in this place.
    #[default]
    Never,
    Now,
    /// After the delay of a failed attempt, or of a lane that could not go idle.
    Retry,
    /// At the lock time-out: the token of a marked lane.
    TimeOut,
    /// When an acknowledgement is late.
    Wait,
}

/// A row of `ready`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token {
    pub due: Due,
    /// Workers, as bits, whose bound has passed it.
    pub behind: u8,
}

/// The newest row of `progress`, and the outcomes beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lane {
    pub version: u8,
    pub cursor: u8,
    pub crashes: u8,
    /// `retry_at` is in the future.
    pub waiting: bool,
    pub parked: bool,
    /// Rows of `outcome`: seqs as bits.
    pub outcomes: u8,
    pub letter: Letter,
    /// The event that was sent and is not acknowledged; 0: none.
    pub sent: u8,
    /// `ack_due_at` has passed.
    pub waited: bool,
    /// Acknowledged rows of `sent`: seqs as bits.
    pub acked: u8,
    /// A row of `closing_lane`: events up to this seq are to be passed; 0: none.
    pub closing: u8,
    /// Whether the delivery that is under way is cancelled for that.
    pub cuts: bool,
    pub tokens: [Token; TOKENS],
    /// There were more tokens than places.
    pub overflowed: bool,
}

/// A row of `claim`: per lane the version and crashes that the claim read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Claim {
    pub lanes: [Option<(u8, u8)>; LANES],
}

impl Claim {
    pub fn is_used(&self) -> bool {
        self.lanes.iter().any(Option::is_some)
    }
}

/// A row of `lane_connection`, and its claims.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Connection {
    pub registered: bool,
    /// Its worker died as a whole: its liveness lock is free.
    pub of_dead: bool,
    /// It was opened before the server last started.
    pub of_old_epoch: bool,
    pub claims: [Claim; 2],
}

/// The events of a session in the order in which they were committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Log {
    pub len: u8,
    pub seqs: [u8; EVENTS],
}

impl Log {
    pub fn has(&self, seq: u8) -> bool {
        self.seqs[..usize::from(self.len)].contains(&seq)
    }

    pub fn newest(&self) -> u8 {
        self.seqs[..usize::from(self.len)]
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
    }
}

/// What is committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Database {
    pub log: [Log; SESSIONS],
    /// Closed sessions as bits.
    pub closed: u8,
    pub lanes: [Lane; LANES],
    pub connections: [[Connection; 2]; WORKERS],
}

/// The advisory locks of one connection's session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Locks {
    /// The connection's own lock, which shows that it lives.
    pub own: bool,
    /// Lanes as bits.
    pub lanes: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Process {
    #[default]
    Running,
    Frozen,
    Dead,
}

/// Where a worker stands with a lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Phase {
    #[default]
    None,
    /// Within `claim`, before its second statement.
    Locked,
    /// Claimed, nothing fetched yet.
    Claimed,
    /// The lane's task delivers what was fetched.
    Running,
    /// Within `settle`, after the compare-and-set and the try for the append lock.
    Looking,
    /// Within `settle`, after the look at the log.
    Deciding,
    /// Settled and committed; the lane is let go.
    Unlocking,
    /// Unlocked; the claim's row is not deleted yet.
    Forgetting,
}

/// What a lane's task asks its connection for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Wish {
    #[default]
    None,
    Retry,
    Park,
    Discard,
    Release,
    Await,
}

/// A lane that a worker holds, as the worker sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Hold {
    pub phase: Phase,
    pub wish: Wish,
    /// Which of the connection's claims it belongs to.
    pub claim: u8,
    /// The place of its token, or [`GONE`].
    pub token: u8,
    pub marked: bool,
    pub version: u8,
    pub crashes: u8,
    /// Everything up to here was accepted or has an outcome.
    pub cursor: u8,
    /// Events up to here were fetched.
    pub fetched: u8,
    /// Progress that is not settled.
    pub changed: bool,
    /// Outcomes that are not settled.
    pub outcomes: u8,
    /// Where a requeued dead letter is to come: `requeued_after`.
    pub after: Option<u8>,
    /// What became of it, where that is not settled.
    pub done: Done,
    /// The event that was sent and is not acknowledged.
    pub sent: u8,
    /// Its acknowledgement is late.
    pub waited: bool,
    /// It is marked and not sent (mutations only).
    pub unsent: bool,
    /// Acknowledged seqs as bits, as they were when events were fetched.
    pub acked: u8,
    /// Within `settle`: the append lock was got.
    pub locked: bool,
    /// Within `settle`: nothing is newer than the cursor.
    pub empty: bool,
    /// The last try to go idle met a producer.
    pub busy: bool,
    /// Trust is gone; one request is still on its way.
    pub late: bool,
    /// It was read by a scan whose snapshot is older than the lane's lock (mutations only).
    pub stale: bool,
}

/// Where a worker stands with the doorbell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Bell {
    #[default]
    Away,
    Queued,
    Held,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Worker {
    pub process: Process,
    /// It has a lane connection, or believes so.
    pub connected: bool,
    pub holds: [Hold; LANES],
    /// It looked and found nothing; it looks again when something wakes it.
    pub asleep: bool,
    /// It knows of a token that will be due, and will wake itself then.
    pub timer: bool,
    pub bell: Bell,
    /// Its control connection is gone, and its liveness lock with it.
    pub unseen: bool,
}

/// Where a producer's transaction stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Stage {
    /// Before its first statement.
    #[default]
    Begun,
    /// Between two statements.
    Open,
    /// Within `enqueue`, after the append lock and the look for the newest seq.
    Locked,
    /// Within `enqueue`, before the probe of the doorbell.
    Ringing,
    /// The commit is in the log on disk, but nobody sees it yet.
    Flushed,
    Committed,
    RolledBack,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Producer {
    pub stage: Stage,
    /// The next of its events.
    pub next: u8,
    /// The seq of that event, once the append lock is held.
    pub seq: u8,
    /// Some lane may have nobody to notice that event.
    pub look: bool,
    /// What it inserted: session and seq.
    pub events: [Option<(u8, u8)>; EVENTS],
    /// Tokens that it inserted, per lane.
    pub tokens: [u8; LANES],
    /// Workers, as bits, whose bound has passed them.
    pub behind: u8,
    /// Sessions, as bits, whose append lock it holds.
    pub locks: u8,
    /// What its snapshot showed, where one is older than the append lock.
    pub snapshot: Option<Snapshot>,
    /// It holds the doorbell in shared mode.
    pub bell: bool,
    /// It notifies when it commits.
    pub notify: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Snapshot {
    pub newest: [u8; SESSIONS],
    pub cursors: [u8; LANES],
}

/// What arrived at a lane's destination.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Received {
    /// Accepted seqs as bits.
    pub accepted: u8,
    /// Seqs that arrived at all, as bits.
    pub tried: u8,
    /// The last one, less what was late.
    pub last: u8,
    /// Of a requeued dead letter.
    pub letter: Expected,
}

/// What the properties forbid and only a step can see. Once set it stays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Broken {
    /// A producer met a duplicate key, or committed another seq than the next (I1).
    pub seq: bool,
    /// A lane was delivered while another worker believed to hold it (I2).
    pub overlap: bool,
    /// A lane was claimed again by who held it (I2).
    pub twice: bool,
    /// First deliveries were not in order, or one was left out.
    pub order: bool,
    /// A stretch of redelivered events had a hole.
    pub stretch: bool,
    /// Something was delivered again although nothing had failed.
    pub duplicate: bool,
    /// Something was settled without the lane's lock (I5).
    pub lockless: bool,
    /// A holder that had its lock all the time was told that it lost (I5).
    pub robbed: bool,
    /// A settlement was taken although the version that it had read was not the newest (I5).
    pub stale: bool,
    /// Settled progress went back, other than with the server (I5).
    pub reverted: bool,
    /// A requeued dead letter came at another place than the one it was asked for, or unasked.
    pub letter: bool,
    /// An outcome that was on record is gone.
    pub outcome_lost: bool,
    /// A crash was charged that no worker died of.
    pub charged: bool,
    /// A message was sent again before its acknowledgement was late, although nothing had failed.
    pub sent_again: bool,
    /// A barrier superseded what its destination had accepted before.
    pub barrier: bool,
    /// An event was appended to a closed session.
    pub closed: bool,
}

/// What may still happen to the system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Budget {
    pub kills: u8,
    pub cuts: u8,
    pub freezes: u8,
    pub failovers: u8,
    pub failures: u8,
    pub exhaustions: u8,
    pub parks: u8,
    pub marks: u8,
    pub releases: u8,
    pub yields: u8,
    pub operations: u8,
    pub requeues: u8,
    pub time_outs: u8,
    pub closes: u8,
    pub interrupts: u8,
    pub barriers: u8,
}

/// What happened already that excuses something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Happened {
    pub fault: bool,
    pub kills: u8,
    /// Lanes, as bits, in which an acknowledgement was late.
    pub timed_out: u8,
    /// Lanes, as bits, whose events were passed by a close or an interrupt.
    pub passed: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct State {
    pub database: Database,
    /// What the disk has: the database after a failover. Unused without failovers.
    pub durable: Database,
    pub locks: [[Locks; 2]; WORKERS],
    pub workers: [Worker; WORKERS],
    pub producers: [Producer; PRODUCERS],
    pub received: [Received; LANES],
    pub budget: Budget,
    pub happened: Happened,
    pub broken: Broken,
}

impl State {
    /// Whether any session has the lane's lock.
    pub fn lane_is_locked(&self, lane: usize) -> bool {
        self.locks
            .iter()
            .flatten()
            .any(|locks| locks.lanes & bit(lane) != 0)
    }

    /// Inserts a token that is due then.
    pub fn insert_token(&mut self, lane: usize, due: Due, behind: u8) {
        insert_token(&mut self.database.lanes[lane], due, behind);
    }

    /// Deletes a token; whoever remembers its key will find nothing there.
    pub fn delete_token(&mut self, lane: usize, token: u8) {
        let Some(row) = self.database.lanes[lane].tokens.get_mut(usize::from(token)) else {
            return;
        };
        *row = Token::default();
        for worker in &mut self.workers {
            let hold = &mut worker.holds[lane];
            if (hold.phase != Phase::None || hold.stale) && hold.token == token {
                hold.token = GONE;
            }
        }
    }

    /// Whether no worker believes to hold a lane.
    pub fn holds_nothing(&self) -> bool {
        let mut holds = self.workers.iter().flat_map(|worker| &worker.holds);
        holds.all(|hold| hold.phase == Phase::None || hold.late)
    }
}

/// Returns the place; [`GONE`] where there is none left, which a property forbids.
pub fn insert_token(lane: &mut Lane, due: Due, behind: u8) -> u8 {
    let mut tokens = lane.tokens.iter_mut().zip(0..);
    let Some((token, place)) = tokens.find(|(token, _)| token.due == Due::Never) else {
        lane.overflowed = true;
        return GONE;
    };
    *token = Token { due, behind };
    place
}

pub fn bit(index: usize) -> u8 {
    1 << index
}

/// The bit of a seq.
pub fn seq_bit(seq: u8) -> u8 {
    1 << (seq - 1)
}

/// The bits of all seqs up to this one.
pub fn up_to(seq: u8) -> u8 {
    (1 << seq) - 1
}
