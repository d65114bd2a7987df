//! What Lanekeeper promises, as a struct without I/O: the committed log, each lane's progress, who holds
//! what, and by when a lane that has work must have an entry. It knows nothing of statements, entries' places,
//! plans or snapshots of lanes; what it says of a call is compared with what the call returned.

mod appending;
pub mod holding;
pub mod producer;
pub mod settlement;
pub mod takeover;

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::operation::{FILTERS, LANES, PRODUCERS, SESSIONS, SUBSCRIPTIONS, TYPES, WORKERS};
use producer::{Key, Transaction};
use takeover::{Claim, Registered};

pub const MAX_ATTEMPTS: [i32; 2] = [0, 2];
pub const SCHEDULE_MS: [i64; 2] = [1_000, 2_000];
pub const FROZEN_AFTER_MS: i64 = 30_000;

#[derive(Clone, Debug)]
pub struct Entry {
    pub kind: usize,
    pub id: Uuid,
    pub day: i64,
    /// Its day was dropped.
    pub gone: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Session {
    pub created: bool,
    /// The event with seq n is at n - 1.
    pub log: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub struct Subscription {
    pub filter: usize,
    pub policy: usize,
    pub paused: bool,
}

#[derive(Clone, Debug)]
pub struct Letter {
    /// 0 until the database has told.
    pub dead_id: i64,
    pub seq: i64,
    pub attempts: i32,
    pub crashes: i32,
    pub after: Option<i64>,
    pub resolution: Option<&'static str>,
}

#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Version and step in one, as claims and settlements have it.
    pub version: i64,
    /// Settlements since the version began.
    pub step: i64,
    pub cursor: i64,
    pub attempts: i32,
    pub crashes: i32,
    pub retry_at: Option<i64>,
    pub parked: bool,
    pub outcomes: BTreeMap<i64, &'static str>,
    pub letters: Vec<Letter>,
    /// The connection whose session has the lock.
    pub holder: Option<usize>,
    /// An entry is there, due no later than this. `None`: the lane is idle or parked.
    pub due: Option<i64>,
    /// Its filter changed while a transaction was open that may not have seen it: housekeeping wakes it.
    pub excused: bool,
    /// Events that the destination accepted, in the order in which each came first, letters aside.
    pub accepted: Vec<i64>,
    /// Accepted as a requeued dead letter.
    pub redelivered: BTreeSet<i64>,
    /// Accepted, and not on record as such: they may come again.
    pub repeatable: BTreeSet<i64>,
    /// The filter of the moment left them out.
    pub filtered: BTreeSet<i64>,
}

#[derive(Clone, Debug)]
pub struct Worker {
    pub worker_id: i64,
    pub alive: bool,
    pub beat_at: i64,
}

pub struct Model {
    pub now: i64,
    pub sessions: [Session; SESSIONS],
    pub subscriptions: [Subscription; 2],
    pub lanes: [Lane; LANES],
    pub keys: BTreeMap<Key, (i64, Uuid)>,
    pub transactions: [Option<Transaction>; PRODUCERS],
    pub workers: [Option<Worker>; WORKERS],
    /// Workers that died, with the rows that they left.
    pub dead_workers: Vec<Worker>,
    pub registered: Vec<Registered>,
    pub claims: Vec<Claim>,
}

impl Model {
    pub fn new() -> Self {
        let subscription = |filter| Subscription {
            filter,
            policy: 0,
            paused: false,
        };
        Self {
            now: 0,
            sessions: Default::default(),
            subscriptions: [subscription(FILTERS.len() - 1), subscription(0)],
            lanes: Default::default(),
            keys: BTreeMap::new(),
            transactions: Default::default(),
            workers: Default::default(),
            dead_workers: Vec::new(),
            registered: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Days since the epoch's own, which began 22 hours before the epoch.
    pub fn today(&self) -> i64 {
        (self.now + 22 * 3_600_000) / crate::operation::DAY
    }

    pub fn matches(&self, subscription: usize, kind: usize) -> bool {
        FILTERS[self.subscriptions[subscription].filter]
            .is_none_or(|types| types.contains(&TYPES[kind]))
    }

    pub fn session_of(lane: usize) -> usize {
        lane / SUBSCRIPTIONS.len()
    }

    pub fn subscription_of(lane: usize) -> usize {
        lane % SUBSCRIPTIONS.len()
    }

    pub fn exists(&self, lane: usize) -> bool {
        self.sessions[Self::session_of(lane)].created
    }

    /// The first committed event behind the cursor that the subscription receives.
    pub fn head(&self, lane: usize) -> Option<i64> {
        let log = &self.sessions[Self::session_of(lane)].log;
        (self.lanes[lane].cursor + 1..=log.len() as i64).find(|seq| {
            let entry = &log[*seq as usize - 1];
            !entry.gone && self.matches(Self::subscription_of(lane), entry.kind)
        })
    }

    /// Whether the log has anything behind a cursor, whoever receives it.
    pub fn has_newer(&self, lane: usize, cursor: i64) -> bool {
        let log = &self.sessions[Self::session_of(lane)].log;
        log.iter().skip(cursor as usize).any(|entry| !entry.gone)
    }

    /// What is delivered next: an event, or a requeued dead letter with its id.
    pub fn front(&self, lane: usize) -> Option<(i64, Option<i64>)> {
        let head = self.head(lane);
        match self.lanes[lane].next_letter() {
            Some(letter) if head.is_none_or(|seq| letter.after < Some(seq)) => {
                Some((letter.seq, Some(letter.dead_id)))
            }
            _ => head.map(|seq| (seq, None)),
        }
    }

    /// The lane's state with its own counters begun anew, as an operator leaves it.
    pub fn written(&mut self, lane: usize, now_due: bool) -> &mut Lane {
        let now = self.now;
        let lane = &mut self.lanes[lane];
        lane.begin_version();
        lane.retry_at = None;
        lane.due = if lane.parked {
            None
        } else if now_due {
            Some(now)
        } else {
            lane.due
        };
        lane
    }

    /// The state of an event as `lanekeeper.message` shows it.
    pub fn state(&self, lane_id: usize, seq: i64) -> &'static str {
        let lane = &self.lanes[lane_id];
        let entry = &self.sessions[Self::session_of(lane_id)].log[seq as usize - 1];
        let matches = self.matches(Self::subscription_of(lane_id), entry.kind);
        if lane
            .letters
            .iter()
            .any(|letter| letter.seq == seq && letter.after.is_some())
        {
            return "requeued";
        }
        if seq <= lane.cursor {
            let plain = if matches { "delivered" } else { "filtered" };
            return match lane.outcomes.get(&seq).copied() {
                Some("dead_lettered") => "failed",
                outcome => outcome.unwrap_or(plain),
            };
        }
        if !matches {
            return "filtered";
        }
        let head = self.head(lane_id).unwrap_or(i64::MAX);
        if seq > head || lane.requeued_after().is_some_and(|after| after < head) {
            "pending"
        } else if lane.parked {
            "parked"
        } else if lane.retry_at.is_some_and(|at| at > self.now) {
            "retrying"
        } else if lane.holder.is_some() {
            "sending"
        } else {
            "pending"
        }
    }

    /// The connection is gone, and its locks with it.
    pub fn connection_gone(&mut self, connection: usize, connection_id: i64) {
        for lane in &mut self.lanes {
            if lane.holder == Some(connection) {
                lane.holder = None;
            }
        }
        for registered in &mut self.registered {
            if registered.connection_id == connection_id {
                registered.alive = false;
            }
        }
    }
}

/// Settlements of one version.
const STEPS: i64 = 16;

impl Lane {
    /// As a settlement leaves it.
    pub fn take_step(&mut self) {
        self.version += 1;
        self.step = (self.step + 1) % STEPS;
    }

    /// As whoever else writes it leaves it.
    pub fn begin_version(&mut self) {
        self.version += STEPS - self.step;
        self.step = 0;
    }

    /// As a survivor leaves it that charges it.
    pub fn skip_version(&mut self) {
        self.version += STEPS;
    }

    pub fn next_letter(&self) -> Option<&Letter> {
        self.letters
            .iter()
            .filter(|letter| letter.after.is_some())
            .min_by_key(|letter| (letter.after, letter.seq, letter.dead_id))
    }

    pub fn requeued_after(&self) -> Option<i64> {
        self.next_letter().and_then(|letter| letter.after)
    }

    pub fn wake(&mut self, now: i64) {
        if !self.parked {
            self.due = Some(self.due.map_or(now, |due| due.min(now)));
        }
    }
}
