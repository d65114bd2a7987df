//! A worker as lists of operations drive it: the statements of `store` and the decisions of `engine`, in the
//! order in which the engine has them, one step at a time. What the engine leaves to time is left to the
//! list: when to look, when to settle, when to let go.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_engine::decision::{Progress, Step, Stop};
use lanekeeper_postgres::claim::{ReadyEntry, ScanStart};
use lanekeeper_postgres::fetch::FetchedEvent;
use lanekeeper_postgres::settle::Operation;
use lanekeeper_postgres::subscription::Subscription;
use lanekeeper_postgres::worker::Identity;

use crate::ground::Physical;
use crate::model::holding::Shadow;
use crate::operation::{Answer, POLICIES};

/// A process: its liveness lock and what it knows of subscriptions, by their place.
pub struct Process {
    pub control: Physical,
    pub identity: Identity,
    pub routes: BTreeMap<usize, Arc<Subscription>>,
}

/// A lane connection.
pub struct Connection {
    pub physical: Physical,
    pub id: i64,
    pub holdings: BTreeMap<usize, Holding>,
    /// Lanes that were let go and not unlocked yet.
    pub released: Vec<usize>,
    pub bounds: HashMap<i32, ScanStart>,
    /// Lanes still held of each claim.
    pub claims: HashMap<i64, usize>,
    pub finished_claims: Vec<i64>,
    next_claim: i64,
}

pub struct Holding {
    pub lane_id: i64,
    pub session_id: i64,
    pub cursor_day: Date,
    pub progress: Progress,
    pub shadow: Shadow,
    pub entry: ReadyEntry,
    pub route: Arc<Subscription>,
    pub claim_id: i64,
    pub suspect_claim: Option<i64>,
    pub batch: Option<Batch>,
    /// What it must settle before anything else.
    pub stop: Option<Stop>,
    pub marked: bool,
    pub busy: bool,
    /// The server let its lock go, and it does not know.
    pub ghost: bool,
}

pub struct Batch {
    pub steps: VecDeque<(FetchedEvent, Step)>,
    /// Nothing was fetched.
    pub was_empty: bool,
}

impl Holding {
    pub fn wants_events(&self) -> bool {
        self.batch.is_none() && self.stop.is_none() && !self.ghost
    }

    /// Whether the next of its batch, or a requeued dead letter, can be delivered now.
    pub fn can_deliver(&self) -> bool {
        let settles_first = self.progress.must_settle() || self.stop.is_some();
        let letters = self.progress.is_requeued_before(self.letters_before());
        self.batch
            .as_ref()
            .is_some_and(|batch| !batch.steps.is_empty() || letters)
            && !settles_first
            && !self.ghost
    }

    /// Whether all of its batch is passed, dead letters aside.
    pub fn is_through(&self) -> bool {
        self.stop.is_none()
            && self
                .batch
                .as_ref()
                .is_some_and(|batch| batch.steps.is_empty())
    }

    /// The seq before which requeued dead letters come now.
    pub fn letters_before(&self) -> i64 {
        match &self.batch {
            Some(batch) if !batch.steps.is_empty() => batch.steps[0].0.seq,
            Some(batch) if batch.was_empty => i64::MAX,
            _ => self.progress.next_seq(),
        }
    }

    pub fn policy(&self) -> usize {
        let known = POLICIES
            .iter()
            .position(|policy| *policy == self.route.on_exhausted.as_str());
        known.expect("a policy of the lists")
    }

    pub fn critical(&self) -> Option<&[String]> {
        self.route
            .critical
            .as_deref()
            .filter(|_| self.route.coalesce)
    }
}

impl Connection {
    pub fn new(physical: Physical, id: i64) -> Self {
        Self {
            physical,
            id,
            holdings: BTreeMap::new(),
            released: Vec::new(),
            bounds: HashMap::new(),
            claims: HashMap::new(),
            finished_claims: Vec::new(),
            next_claim: 0,
        }
    }

    pub fn next_claim(&mut self) -> i64 {
        self.next_claim += 1;
        self.next_claim
    }

    /// Lets go of a lane, to be unlocked later unless the lock is lost anyway.
    pub fn forget(&mut self, lane: usize) -> Option<Holding> {
        let holding = self.holdings.remove(&lane)?;
        self.finished_claims.extend(holding.suspect_claim);
        if let Some(left) = self.claims.get_mut(&holding.claim_id) {
            *left -= 1;
            if *left == 0 {
                self.claims.remove(&holding.claim_id);
                self.finished_claims.push(holding.claim_id);
            }
        }
        if !holding.ghost {
            self.released.push(lane);
        }
        Some(holding)
    }
}

pub fn verdict(answer: Answer) -> Verdict {
    let error = "as the list says".to_owned();
    match answer {
        Answer::Accepted => Verdict::Accepted,
        Answer::Retry => Verdict::Retry { error, after: None },
        Answer::RetryAfter(ms) => Verdict::Retry {
            error,
            after: Some(Duration::from_millis(ms)),
        },
        Answer::Throttled(ms) => Verdict::Throttled {
            reason: error,
            after: Duration::from_millis(ms),
            of: None,
        },
        Answer::Rejected => Verdict::Rejected { error },
        Answer::Gone => Verdict::Gone { error },
    }
}

/// What it asks for after a batch: it must not go idle with requeued dead letters to come.
pub fn after_batch(progress: &Progress) -> Stop {
    Stop::new(if progress.has_requeued() {
        Operation::Yield
    } else {
        Operation::Finish
    })
}
