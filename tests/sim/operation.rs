//! What may happen, as data: lists of it are generated, shrunk and run. Domains are small, so that
//! operations meet; one that is not possible when its turn comes does nothing, so that every part of a
//! list is a list.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

pub const PRODUCERS: usize = 3;
pub const SESSIONS: usize = 3;
/// `wide` coalesces and has no filter; `narrow` has one that changes, and does not coalesce.
pub const SUBSCRIPTIONS: [&str; 2] = ["wide", "narrow"];
pub const NARROW: usize = 1;
pub const LANES: usize = SESSIONS * SUBSCRIPTIONS.len();
pub const WORKERS: usize = 2;
/// Two of each worker.
pub const CONNECTIONS: usize = WORKERS * 2;

pub const TYPES: [&str; 3] = ["stop", "use", "note"];
/// Those are never merged.
pub const CRITICAL: &str = "stop";
/// What `narrow` may receive; `None`: everything.
pub const FILTERS: [Option<&[&str]>; 4] = [
    Some(&["stop"]),
    Some(&["stop", "use"]),
    Some(&["note"]),
    None,
];
pub const POLICIES: [&str; 3] = ["dead_letter", "park", "drop"];

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub session: usize,
    pub kind: usize,
    pub priority: i16,
    /// One of two dedupe keys.
    pub key: Option<u8>,
    /// One of two message ids.
    pub id: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Accepted,
    Retry,
    RetryAfter(u64),
    Throttled(u64),
    Rejected,
    Gone,
}

/// What a worker asks for besides what follows from its deliveries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// Whatever the engine would ask for now.
    Natural,
    /// A lane that an open append keeps busy is tried later.
    Later,
    Release,
    Yield,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    Retry,
    Skip,
    Park,
    Unpark,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    Begin {
        producer: usize,
        repeatable_read: bool,
    },
    /// In a transaction of its own where none is open.
    Enqueue {
        producer: usize,
        event: Event,
    },
    EnqueueMany {
        producer: usize,
        events: Vec<Event>,
    },
    /// `nth`, here and below, counts those for which the operation is possible, round and round.
    Savepoint {
        nth: usize,
    },
    RollbackTo {
        nth: usize,
    },
    Commit {
        nth: usize,
    },
    Rollback {
        nth: usize,
    },

    /// Claims, fetches, delivers, settles and lets go.
    Work {
        connection: usize,
        answer: Answer,
    },
    Claim {
        connection: usize,
        limit: i32,
        full: bool,
    },
    Fetch {
        nth: usize,
        rows: i64,
    },
    Deliver {
        nth: usize,
        answer: Answer,
    },
    Settle {
        nth: usize,
        how: How,
    },
    Unlock {
        nth: usize,
    },
    Mark {
        nth: usize,
    },
    /// The worker reads which subscriptions there are.
    Refresh {
        worker: usize,
    },
    Beat {
        worker: usize,
    },

    /// Opens what is not open: the worker too, where it is dead.
    Open {
        connection: usize,
    },
    Cut {
        connection: usize,
    },
    Kill {
        worker: usize,
    },
    /// The worker dies with whatever is due in its hands, another takes over, and it starts again.
    Crash {
        worker: usize,
    },
    /// The server lets a lock go that its holder believes in.
    LoseLock {
        nth: usize,
    },
    /// The same, and another worker goes on with the lane.
    Usurp {
        nth: usize,
        answer: Answer,
    },
    TakeOver {
        worker: usize,
    },
    EndFrozen {
        worker: usize,
    },

    Operate {
        lane: usize,
        action: Action,
    },
    Requeue {
        nth: usize,
        at_end: bool,
    },
    DropLetter {
        nth: usize,
    },
    Pause {
        subscription: usize,
    },
    Resume {
        subscription: usize,
    },
    /// Another filter and another policy for `narrow`.
    Apply {
        filter: usize,
        policy: usize,
    },
    FinishChanges,
    KeepHouse,
    Pass {
        ms: i64,
    },
}

pub const DAY: i64 = 86_400_000;

/// Lists of up to so many operations, and of half as many at the least. Each operation can be left out when a
/// list is shrunk, which a shorter list alone would not allow.
pub fn operations(length: usize) -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop::option::weighted(0.99, operation());
    vec(operation, length / 2..=length).prop_map(|list| list.into_iter().flatten().collect())
}

fn event() -> impl Strategy<Value = Event> {
    (
        prop_oneof![3 => Just(0), 2 => 1..SESSIONS],
        0..TYPES.len(),
        prop_oneof![6 => Just(0i16), 1 => Just(5), 1 => Just(-5)],
        prop_oneof![5 => Just(None), 1 => (0..2u8).prop_map(Some)],
        prop_oneof![7 => Just(None), 1 => (0..2u8).prop_map(Some)],
    )
        .prop_map(|(session, kind, priority, key, id)| Event {
            session,
            kind,
            priority,
            key,
            id,
        })
}

fn nth() -> impl Strategy<Value = usize> {
    0..8usize
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        7 => Just(Answer::Accepted),
        3 => Just(Answer::Retry),
        1 => Just(Answer::RetryAfter(3_000)),
        1 => Just(Answer::Throttled(1_500)),
        5 => Just(Answer::Rejected),
        1 => Just(Answer::Gone),
    ]
}

fn producing() -> impl Strategy<Value = Operation> {
    let producer = 0..PRODUCERS;
    prop_oneof![
        5 => (producer.clone(), prop::bool::weighted(0.4))
            .prop_map(|(producer, repeatable_read)| Operation::Begin { producer, repeatable_read }),
        10 => (producer.clone(), event()).prop_map(|(producer, event)| Operation::Enqueue { producer, event }),
        8 => (producer, vec(event(), 1..6))
            .prop_map(|(producer, events)| Operation::EnqueueMany { producer, events }),
        1 => nth().prop_map(|nth| Operation::Savepoint { nth }),
        1 => nth().prop_map(|nth| Operation::RollbackTo { nth }),
        4 => nth().prop_map(|nth| Operation::Commit { nth }),
        1 => nth().prop_map(|nth| Operation::Rollback { nth }),
    ]
}

fn delivering() -> impl Strategy<Value = Operation> {
    let connection = 0..CONNECTIONS;
    let how = select(
        &[
            How::Natural,
            How::Natural,
            How::Natural,
            How::Later,
            How::Release,
            How::Yield,
        ][..],
    );
    prop_oneof![
        7 => (connection.clone(), answer()).prop_map(|(connection, answer)| Operation::Work { connection, answer }),
        6 => (connection, 1..4i32, prop::bool::weighted(0.6))
            .prop_map(|(connection, limit, full)| Operation::Claim { connection, limit, full }),
        5 => (nth(), 1..4i64).prop_map(|(nth, rows)| Operation::Fetch { nth, rows }),
        8 => (nth(), answer()).prop_map(|(nth, answer)| Operation::Deliver { nth, answer }),
        7 => (nth(), how).prop_map(|(nth, how)| Operation::Settle { nth, how }),
        4 => nth().prop_map(|nth| Operation::Unlock { nth }),
        2 => nth().prop_map(|nth| Operation::Mark { nth }),
        2 => (0..WORKERS).prop_map(|worker| Operation::Refresh { worker }),
        1 => (0..WORKERS).prop_map(|worker| Operation::Beat { worker }),
    ]
}

fn failing() -> impl Strategy<Value = Operation> {
    let (connection, worker) = (0..CONNECTIONS, 0..WORKERS);
    prop_oneof![
        4 => connection.clone().prop_map(|connection| Operation::Open { connection }),
        1 => connection.prop_map(|connection| Operation::Cut { connection }),
        2 => worker.clone().prop_map(|worker| Operation::Kill { worker }),
        3 => worker.clone().prop_map(|worker| Operation::Crash { worker }),
        1 => nth().prop_map(|nth| Operation::LoseLock { nth }),
        3 => (nth(), answer()).prop_map(|(nth, answer)| Operation::Usurp { nth, answer }),
        3 => worker.clone().prop_map(|worker| Operation::TakeOver { worker }),
        1 => worker.prop_map(|worker| Operation::EndFrozen { worker }),
    ]
}

fn operating() -> impl Strategy<Value = Operation> {
    let action = select(
        &[
            Action::Retry,
            Action::Skip,
            Action::Park,
            Action::Unpark,
            Action::Unpark,
        ][..],
    );
    let subscription = 0..SUBSCRIPTIONS.len();
    prop_oneof![
        4 => (0..LANES, action).prop_map(|(lane, action)| Operation::Operate { lane, action }),
        7 => (nth(), any::<bool>()).prop_map(|(nth, at_end)| Operation::Requeue { nth, at_end }),
        1 => nth().prop_map(|nth| Operation::DropLetter { nth }),
        1 => subscription.clone().prop_map(|subscription| Operation::Pause { subscription }),
        2 => subscription.prop_map(|subscription| Operation::Resume { subscription }),
        1 => (0..FILTERS.len(), 0..POLICIES.len()).prop_map(|(filter, policy)| Operation::Apply { filter, policy }),
        1 => Just(Operation::FinishChanges),
        1 => Just(Operation::KeepHouse),
        4 => select(&[60, 250, 1_000, 2_200, 30_000, DAY][..]).prop_map(|ms| Operation::Pass { ms }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        9 => producing(),
        14 => delivering(),
        4 => failing(),
        5 => operating(),
    ]
}
