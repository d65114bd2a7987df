//! What must hold, whatever happened: judged from the producers' ledger, the log, the lanes' state
//! and the receiver's record, none of which believes the others.
//!
//! Repeats are allowed where something was cut: one for each cause that could lose a settlement or an
//! answer. Without any cause there must be none. What requeued dead letters may do is in `letters`; to the
//! other events of their lanes they change nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use uuid::Uuid;

use crate::ledger::{Entry, Fate};

mod acked;
mod course;
mod letters;
mod terminal;
#[cfg(test)]
mod tests;

pub use acked::Acks;
use course::Course;
use letters::Requeues;
pub use letters::{Letter, Place, Round};
pub use terminal::Terminal;

#[derive(Clone, Debug)]
pub struct Subscription {
    pub name: &'static str,
    /// `None`: every type.
    pub events: Option<&'static [&'static str]>,
    /// 0: for ever.
    pub max_attempts: u32,
}

impl Subscription {
    fn wants(&self, event: &Logged) -> bool {
        self.events
            .is_none_or(|types| types.contains(&event.event_type.as_str()))
    }
}

/// A row of the log.
#[derive(Clone, Debug)]
pub struct Logged {
    pub seq: i64,
    pub id: Uuid,
    pub event_type: String,
}

/// A line of the receiver's record, in the order in which it was written.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at_ms: i64,
    pub subscription: String,
    pub session: String,
    pub seq: i64,
    pub id: Uuid,
    pub attempt: u32,
    pub sender: usize,
    /// As a dead letter that is delivered again.
    pub requeued: bool,
    /// It was not accepted.
    pub refused: bool,
}

/// Subscription and session.
pub type LaneName = (String, String);

#[derive(Clone, Debug, Default)]
pub struct Lane {
    pub cursor: i64,
    /// Events that came to an outcome other than plain delivery.
    pub outcomes: BTreeMap<i64, String>,
    /// Events that were exhausted and kept, whatever became of them since.
    pub letters: BTreeMap<i64, Letter>,
}

#[derive(Default)]
pub struct Case {
    pub subscriptions: Vec<Subscription>,
    pub ledger: HashMap<Uuid, Entry>,
    pub log: BTreeMap<String, Vec<Logged>>,
    pub lanes: BTreeMap<LaneName, Lane>,
    pub arrivals: Vec<Arrival>,
    /// What happened that may make one event come once more.
    pub causes: usize,
    /// What operators had delivered again.
    pub rounds: Vec<Round>,
    /// A subscription whose messages are acknowledged, what came of that, and how much may delay or repeat a message.
    pub acks: Option<(&'static str, Acks, usize)>,
    /// A subscription's limit, where requests arrive about when they were let go.
    pub limited: Option<(&'static str, Limit)>,
}

/// Sends a second, and how many of them may go at once.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub rate: i64,
    pub burst: i64,
}

/// From the decision that a request may go until it is on record: the network, the proxies, a busy machine.
const RECORDED_WITHIN_MS: i64 = 500;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// Committed and not in the log.
    Lost {
        session: String,
        id: Uuid,
    },
    /// Told another seq, session or type than what is in the log.
    Mistold {
        session: String,
        seq: i64,
    },
    RolledBackInLog {
        session: String,
        seq: i64,
    },
    RolledBackDelivered {
        session: String,
        seq: i64,
    },
    /// Not in the log, nor anywhere.
    Invented {
        session: String,
        seq: i64,
    },
    GapInLog {
        session: String,
        seq: i64,
    },
    /// Delivered to a subscription that did not ask for it.
    Unwanted {
        lane: LaneName,
        seq: i64,
    },
    /// An event came first before one that precedes it had come or had an outcome.
    Overtook {
        lane: LaneName,
        seq: i64,
        open: i64,
    },
    /// A repeated stretch left one out.
    Skipped {
        lane: LaneName,
        seq: i64,
        after: i64,
    },
    SettledUndelivered {
        lane: LaneName,
        seq: i64,
    },
    Undelivered {
        lane: LaneName,
        seq: i64,
    },
    TooOften {
        lane: LaneName,
        seq: i64,
        times: usize,
        causes: usize,
    },
    TooManyAttempts {
        lane: LaneName,
        seq: i64,
        attempt: u32,
    },
    /// It came as a requeued dead letter, and nobody had asked for it by then.
    NotRequeued {
        lane: LaneName,
        seq: i64,
    },
    RequeuedTooOften {
        lane: LaneName,
        seq: i64,
        times: usize,
        rounds: usize,
        causes: usize,
    },
    /// A dead letter that was requeued is neither delivered nor a dead letter again.
    LetterLost {
        lane: LaneName,
        seq: i64,
        letter: Option<Letter>,
        outcome: Option<String>,
    },
    /// An event that is new to its lane came before a requeued dead letter whose turn it was.
    LetterOvertaken {
        lane: LaneName,
        letter: i64,
        by: i64,
    },
    /// A dead letter that was to come at the end came before an event that was committed by then.
    LetterOvertook {
        lane: LaneName,
        letter: i64,
        open: i64,
    },
    /// Two that were requeued at their places came in the wrong order.
    LettersSwapped {
        lane: LaneName,
        letter: i64,
        by: i64,
    },
    /// A cursor passed it, without an outcome, before anybody acknowledged it.
    SettledUnacknowledged {
        lane: LaneName,
        seq: i64,
    },
    /// It came once more, and it was not in flight when it was acknowledged.
    SentAfterItsAcknowledgement {
        lane: LaneName,
        seq: i64,
    },
    /// More than the limit lets through in so much time.
    TooFast {
        sends: usize,
        in_ms: i64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Case {
    /// After everything was healed and settled: every way in which it is wrong.
    pub fn judge(&self) -> Vec<Violation> {
        let mut found = BTreeSet::new();
        self.judge_log(&mut found);
        self.judge_ids(&mut found);
        self.judge_pace(&mut found);
        let acknowledged = self.acks.as_ref().map(|(name, acks, causes)| {
            acks.judge(name, &self.arrivals, *causes, &mut found);
            *name
        });
        let mut requeues: HashMap<&LaneName, Vec<&Round>> = HashMap::new();
        for round in &self.rounds {
            requeues.entry(&round.lane).or_default().push(round);
        }
        let mut by_lane: HashMap<(&str, &str), Vec<&Arrival>> = HashMap::new();
        for arrival in &self.arrivals {
            let lane = (arrival.subscription.as_str(), arrival.session.as_str());
            by_lane.entry(lane).or_default().push(arrival);
        }
        for subscription in &self.subscriptions {
            for (session, log) in &self.log {
                let arrivals = by_lane.remove(&(subscription.name, session.as_str()));
                let name = (subscription.name.to_owned(), session.clone());
                let due: Vec<i64> = log
                    .iter()
                    .filter(|event| subscription.wants(event))
                    .map(|event| event.seq)
                    .collect();
                let nothing = Lane::default();
                let state = self.lanes.get(&name).unwrap_or(&nothing);
                let arrivals = arrivals.unwrap_or_default();
                let requeues = Requeues {
                    name: &name,
                    due: &due,
                    state,
                    arrivals: &arrivals,
                    rounds: requeues.remove(&name).unwrap_or_default(),
                };
                requeues.judge(self.causes, &mut found);
                let is_acknowledged = acknowledged == Some(subscription.name);
                let lane = Course {
                    name: &name,
                    due: &due,
                    state,
                    arrivals: &arrivals,
                    is_acknowledged,
                };
                // What is acknowledged late is sent again, from the first that is not.
                let causes = match is_acknowledged {
                    true => usize::MAX / 2,
                    false => self.causes,
                };
                lane.judge(subscription, causes, &mut found);
            }
        }
        found.into_iter().collect()
    }

    /// While it runs: what a lane's cursor has passed was accepted, or has an outcome.
    pub fn settled_undelivered(&self) -> Vec<Violation> {
        let came: HashSet<(&str, &str, i64)> = self
            .arrivals
            .iter()
            .filter(|one| !one.refused)
            .map(|one| (one.subscription.as_str(), one.session.as_str(), one.seq))
            .collect();
        let mut found = Vec::new();
        for subscription in &self.subscriptions {
            for ((name, session), lane) in &self.lanes {
                if name != subscription.name {
                    continue;
                }
                for event in self.log.get(session).into_iter().flatten() {
                    let seq = event.seq;
                    if seq <= lane.cursor
                        && subscription.wants(event)
                        && !lane.outcomes.contains_key(&seq)
                        && !came.contains(&(subscription.name, session.as_str(), seq))
                    {
                        let lane = (name.clone(), session.clone());
                        found.push(Violation::SettledUndelivered { lane, seq });
                    }
                }
            }
        }
        found
    }

    fn judge_log(&self, found: &mut BTreeSet<Violation>) {
        let mut logged = HashSet::new();
        for (session, log) in &self.log {
            for (place, event) in log.iter().enumerate() {
                let (session, seq) = (session.clone(), event.seq);
                logged.insert(event.id);
                if usize::try_from(seq) != Ok(place + 1) {
                    found.insert(Violation::GapInLog { session, seq });
                    break;
                }
                match self.ledger.get(&event.id) {
                    None => found.insert(Violation::Invented { session, seq }),
                    Some(entry) => match entry.fate {
                        Fate::RolledBack => {
                            found.insert(Violation::RolledBackInLog { session, seq })
                        }
                        Fate::Committed { seq: told } if told != seq => {
                            found.insert(Violation::Mistold { session, seq })
                        }
                        _ if entry.session != session || entry.event_type != event.event_type => {
                            found.insert(Violation::Mistold { session, seq })
                        }
                        _ => false,
                    },
                };
            }
        }
        for (id, entry) in &self.ledger {
            if matches!(entry.fate, Fate::Committed { .. }) && !logged.contains(id) {
                let (session, id) = (entry.session.clone(), *id);
                found.insert(Violation::Lost { session, id });
            }
        }
    }

    /// In every stretch of the record at most what the limit lets through in that time.
    fn judge_pace(&self, found: &mut BTreeSet<Violation>) {
        let Some((name, limit)) = self.limited else {
            return;
        };
        let arrivals = self.arrivals.iter().filter(|one| one.subscription == name);
        let mut times: Vec<i64> = arrivals.map(|one| one.at_ms).collect();
        times.sort_unstable();
        for (from, first) in times.iter().enumerate() {
            for (to, last) in times.iter().enumerate().skip(from) {
                let (sends, in_ms) = (to - from + 1, last - first);
                let most = limit.rate * (in_ms + RECORDED_WITHIN_MS) / 1000 + limit.burst + 1;
                if i64::try_from(sends).is_ok_and(|sends| sends > most) {
                    found.insert(Violation::TooFast { sends, in_ms });
                    return;
                }
            }
        }
    }

    /// Only what was committed arrives, and as what it was committed.
    fn judge_ids(&self, found: &mut BTreeSet<Violation>) {
        let log: HashMap<Uuid, (&str, i64)> = self
            .log
            .iter()
            .flat_map(|(session, log)| {
                log.iter()
                    .map(move |event| (event.id, (session.as_str(), event.seq)))
            })
            .collect();
        for arrival in &self.arrivals {
            let (session, seq) = (arrival.session.clone(), arrival.seq);
            let entry = self.ledger.get(&arrival.id);
            if entry.is_some_and(|entry| entry.fate == Fate::RolledBack) {
                found.insert(Violation::RolledBackDelivered { session, seq });
            } else if log.get(&arrival.id) != Some(&(session.as_str(), seq)) {
                found.insert(Violation::Invented { session, seq });
            }
        }
    }
}
