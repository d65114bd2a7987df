//! Producers: `lanekeeper.enqueue` in a transaction that may hold more than one call (I1, I13).
//!
//! Source: `migrations/functions/append/enqueue.sql`. Left out: filters, priorities, dedupe keys, bulk calls (they lock all sessions first and are one
//! append to each otherwise), and days.

use crate::scenario::{Isolation, Mutation, Scenario};
use crate::state::{Bell, Database, LANES, Phase, Producer, Snapshot, Stage, State, bit};
use crate::state::{PRODUCERS, Process, insert_token};
use crate::step::Step;

pub fn steps(scenario: &Scenario, state: &State, steps: &mut Vec<Step>) {
    for (p, transaction) in scenario.transactions.iter().enumerate() {
        let producer = &state.producers[p];
        let session = transaction.sessions.get(usize::from(producer.next));
        // Of equal transactions that have not begun, the first begins: another order only renames.
        let mut before = scenario.transactions[..p].iter().zip(&state.producers);
        if producer.stage == Stage::Begun
            && producer.snapshot.is_none()
            && before.any(|(other, it)| other == transaction && it.stage == Stage::Begun)
        {
            continue;
        }
        match (producer.stage, session) {
            (Stage::Begun | Stage::Open, Some(session)) => {
                let old = transaction.isolation == Isolation::RepeatableRead
                    || scenario.lacks(Mutation::AppendReadsBeforeLock);
                if old && producer.snapshot.is_none() {
                    steps.push(Step::Snapshot(p));
                } else if append_lock_is_free(scenario, state, p, *session) {
                    steps.push(Step::AppendLock(p));
                }
            }
            (Stage::Open, None) if scenario.has_failovers() => steps.push(Step::Flush(p)),
            (Stage::Open, None) | (Stage::Flushed, _) => steps.push(Step::Commit(p)),
            (Stage::Locked, Some(session)) if !waits_for_key(state, p, *session) => {
                steps.push(Step::Append(p));
            }
            (Stage::Ringing, _) => steps.push(Step::Ring(p)),
            _ => {}
        }
        if scenario.rollbacks && producer.stage == Stage::Open {
            steps.push(Step::RollBack(p));
        }
    }
}

/// Exclusive: against other producers, and against holders that go idle.
fn append_lock_is_free(scenario: &Scenario, state: &State, own: usize, session: u8) -> bool {
    if scenario.lacks(Mutation::AppendsWithoutLock) {
        return true;
    }
    let others = (0..PRODUCERS)
        .filter(|p| *p != own)
        .any(|p| state.producers[p].locks & bit(usize::from(session)) != 0);
    let holders = scenario.lanes_of(session).any(|lane| {
        state.workers.iter().any(|worker| {
            let hold = &worker.holds[lane];
            matches!(hold.phase, Phase::Looking | Phase::Deciding) && hold.locked
        })
    });
    !others && !holders
}

/// Whether an uncommitted row has the key: the insert waits for its transaction.
fn waits_for_key(state: &State, own: usize, session: u8) -> bool {
    let key = Some((session, state.producers[own].seq));
    (0..PRODUCERS)
        .filter(|p| *p != own)
        .any(|p| is_open(&state.producers[p]) && state.producers[p].events.contains(&key))
}

fn is_open(producer: &Producer) -> bool {
    !matches!(
        producer.stage,
        Stage::Begun | Stage::Committed | Stage::RolledBack
    )
}

pub fn snapshot(scenario: &Scenario, state: &mut State, p: usize) {
    let database = &state.database;
    let snapshot = Snapshot {
        newest: database.log.map(|log| log.newest()),
        cursors: database.lanes.map(|lane| lane.cursor),
    };
    let producer = &mut state.producers[p];
    producer.snapshot = Some(snapshot);
    if scenario.transactions[p].isolation == Isolation::RepeatableRead {
        producer.stage = Stage::Open;
    }
}

pub fn append_lock(scenario: &Scenario, state: &mut State, p: usize) {
    let transaction = scenario.transactions[p];
    let session = usize::from(transaction.sessions[usize::from(state.producers[p].next)]);
    if state.database.closed & bit(session) != 0 {
        if !scenario.lacks(Mutation::CloseNotSeen) {
            // LK002.
            end(state, p, Stage::RolledBack);
            return;
        }
        state.broken.closed = true;
    }
    let newest = state.database.log[session].newest();
    let producer = &mut state.producers[p];
    let newest = match producer.snapshot {
        Some(old) if transaction.isolation == Isolation::RepeatableRead => old.newest[session],
        _ => newest,
    };
    if !scenario.lacks(Mutation::AppendsWithoutLock) {
        producer.locks |= bit(session);
    }
    producer.seq = newest + own_events(producer, session) + 1;
    producer.stage = Stage::Locked;
    let newest = producer.seq - 1;
    let look = |lane: usize| wants_token(state, p, lane, newest);
    // At REPEATABLE READ, and for a session's first event, nothing is left to this look.
    state.producers[p].look = transaction.isolation == Isolation::RepeatableRead
        || newest == 0
        || scenario
            .lanes_of(transaction.sessions[usize::from(state.producers[p].next)])
            .any(look);
}

/// By what this statement sees: whether the lane was idle before the event after `newest`.
fn wants_token(state: &State, p: usize, lane: usize, newest: u8) -> bool {
    let row = &state.database.lanes[lane];
    let cursor = match state.producers[p].snapshot {
        Some(old) => old.cursors[lane],
        None => row.cursor,
    };
    !row.parked && cursor >= newest
}

fn own_events(producer: &Producer, session: usize) -> u8 {
    let own = producer.events.iter().flatten();
    u8::try_from(own.filter(|(of, _)| usize::from(*of) == session).count())
        .expect("there are few events")
}

pub fn append(scenario: &Scenario, state: &mut State, p: usize) {
    let transaction = scenario.transactions[p];
    let fixed = transaction.isolation == Isolation::RepeatableRead;
    let producer = state.producers[p];
    let session = transaction.sessions[usize::from(producer.next)];
    let taken = state.database.log[usize::from(session)].has(producer.seq);
    if taken && fixed && !scenario.lacks(Mutation::NoStaleSnapshotCheck) {
        // 40001 from `refuse_stale_snapshot`: the producer starts over.
        state.producers[p] = Producer::default();
        return;
    }
    if taken {
        state.broken.seq = true;
    }
    let newest = producer.seq - 1;
    let mut inserted = false;
    for lane in scenario.lanes_of(session) {
        let always = fixed && !scenario.lacks(Mutation::NoTokenAtRepeatableRead);
        if always || producer.look && wants_token(state, p, lane, newest) {
            state.producers[p].tokens[lane] += 1;
            inserted = true;
        }
    }
    let producer = &mut state.producers[p];
    producer.events[usize::from(producer.next)] = Some((session, producer.seq));
    producer.next += 1;
    producer.seq = 0;
    producer.look = false;
    if !fixed {
        producer.snapshot = None;
    }
    producer.stage = if inserted && scenario.doorbell {
        Stage::Ringing
    } else {
        Stage::Open
    };
}

/// A shared try, without waiting: it fails where a worker holds the bell or queues for it.
pub fn ring(state: &mut State, p: usize) {
    let wanted = state.workers.iter().any(|worker| worker.bell != Bell::Away);
    let producer = &mut state.producers[p];
    producer.notify |= wanted;
    producer.bell |= !wanted;
    producer.stage = Stage::Open;
}

/// What a transaction's commit adds to a database. Returns whether a seq was not the next one.
pub fn add(producer: &Producer, database: &mut Database) -> bool {
    let mut wrong = false;
    for (session, seq) in producer.events.iter().flatten() {
        let log = &mut database.log[usize::from(*session)];
        wrong |= *seq != log.len + 1;
        log.seqs[usize::from(log.len)] = *seq;
        log.len += 1;
    }
    for lane in 0..LANES {
        for _ in 0..producer.tokens[lane] {
            insert_token(
                &mut database.lanes[lane],
                crate::state::Due::Now,
                producer.behind,
            );
        }
    }
    wrong
}

pub fn flush(state: &mut State, p: usize) {
    state.producers[p].stage = Stage::Flushed;
    state.durable = on_disk(state);
}

/// What is on disk once everything is that was written: more than what is seen, where a commit is
/// flushed and not visible yet.
pub fn on_disk(state: &State) -> Database {
    let mut database = state.database;
    for producer in &state.producers {
        if producer.stage == Stage::Flushed {
            add(producer, &mut database);
        }
    }
    database
}

pub fn commit(scenario: &Scenario, state: &mut State, p: usize) {
    let producer = state.producers[p];
    state.broken.seq |= add(&producer, &mut state.database);
    if producer.notify && !scenario.lacks(Mutation::NoNotifications) {
        wake_all(state);
    }
    end(state, p, Stage::Committed);
}

/// Nothing of an ended transaction matters any more.
pub fn end(state: &mut State, p: usize, stage: Stage) {
    state.producers[p] = Producer {
        stage,
        ..Producer::default()
    };
}

/// A notification reaches every process that listens.
pub fn wake_all(state: &mut State) {
    for worker in &mut state.workers {
        if worker.process == Process::Running {
            worker.asleep = false;
        }
    }
}
