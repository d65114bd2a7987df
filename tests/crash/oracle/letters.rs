//! What a requeued dead letter may do.
//!
//! It comes because somebody asked, once for each time and cause. At its place it comes before everything that
//! is new to its lane from then on, and two of them in the order of their events; at the end behind what was
//! committed when it was asked for, and before what was committed later. In the end it was accepted, or is a
//! dead letter again. Where an answer was lost nobody knows its place, and only the rest is judged.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Arrival, Lane, LaneName, Violation};

#[cfg(test)]
mod tests;

/// A dead letter as the database has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Letter {
    /// It was requeued and accepted.
    pub is_redelivered: bool,
    /// It is to be delivered again.
    pub is_requeued: bool,
    /// When it was exhausted last.
    pub died_ms: i64,
}

/// A dead letter that an operator had delivered again.
#[derive(Clone, Debug)]
pub struct Round {
    pub lane: LaneName,
    pub seq: i64,
    pub asked_ms: i64,
    /// `None`: the answer was lost. It is requeued, or nothing was changed.
    pub answered_ms: Option<i64>,
    pub to: Place,
}

#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Where it was.
    Own,
    /// The newest events that were committed before it was asked for, and after it was answered.
    End { least: i64, most: i64 },
}

impl Lane {
    /// Whether the event was passed without having been accepted, if only for a while.
    pub fn gave_up(&self, seq: i64) -> bool {
        self.outcomes.contains_key(&seq) || self.letters.contains_key(&seq)
    }
}

/// The dead letters of one lane.
pub struct Requeues<'a> {
    pub name: &'a LaneName,
    pub due: &'a [i64],
    pub state: &'a Lane,
    pub arrivals: &'a [&'a Arrival],
    pub rounds: Vec<&'a Round>,
}

/// One that was answered, and where in the record it came because of it.
struct Delivered<'a> {
    round: &'a Round,
    answered_ms: i64,
    first: usize,
    /// Not a request of an earlier round that arrived late, if that can be told.
    surely: usize,
}

impl Requeues<'_> {
    pub fn judge(&self, causes: usize, found: &mut BTreeSet<Violation>) {
        let mut rounds: BTreeMap<i64, Vec<&Round>> = BTreeMap::new();
        for round in &self.rounds {
            rounds.entry(round.seq).or_default().push(round);
        }
        self.judge_counts(&rounds, causes, found);
        for seq in rounds.keys().chain(self.state.letters.keys()) {
            let asked = rounds.get(seq).into_iter().flatten();
            let asked = asked.filter(|round| round.answered_ms.is_some());
            self.judge_end(*seq, asked.map(|round| round.asked_ms).max(), found);
        }
        let delivered: Vec<Delivered<'_>> = rounds
            .values()
            .flat_map(|of| self.delivered(of, causes))
            .collect();
        self.judge_places(&delivered, causes, found);
        self.judge_order(&delivered, causes, found);
    }

    /// It comes because somebody asked.
    fn judge_counts(
        &self,
        rounds: &BTreeMap<i64, Vec<&Round>>,
        causes: usize,
        found: &mut BTreeSet<Violation>,
    ) {
        let lane = || self.name.clone();
        let mut came: HashMap<i64, usize> = HashMap::new();
        for arrival in self.arrivals.iter().filter(|one| one.requeued) {
            let seq = arrival.seq;
            let mut of = rounds.get(&seq).into_iter().flatten();
            if !of.any(|round| round.asked_ms <= arrival.at_ms) {
                found.insert(Violation::NotRequeued { lane: lane(), seq });
            }
            *came.entry(seq).or_default() += 1;
        }
        for (seq, times) in came {
            let rounds = rounds.get(&seq).map_or(0, Vec::len);
            if times > rounds + causes {
                found.insert(Violation::RequeuedTooOften {
                    lane: lane(),
                    seq,
                    times,
                    rounds,
                    causes,
                });
            }
        }
    }

    /// What became of it: `asked_ms` is when it was requeued last, for all that is known.
    fn judge_end(&self, seq: i64, asked_ms: Option<i64>, found: &mut BTreeSet<Violation>) {
        let letter = self.state.letters.get(&seq);
        let outcome = self.state.outcomes.get(&seq);
        let accepted = self
            .arrivals
            .iter()
            .any(|one| one.seq == seq && one.requeued && !one.refused);
        let ended = letter.is_some_and(|letter| {
            if letter.is_redelivered {
                return accepted && outcome.is_none();
            }
            // Exhausted since.
            let again = asked_ms.is_none_or(|asked| letter.died_ms >= asked);
            !letter.is_requeued && again && outcome.is_some_and(|kind| kind == "dead_lettered")
        });
        if !ended {
            found.insert(Violation::LetterLost {
                lane: self.name.clone(),
                seq,
                letter: letter.cloned(),
                outcome: outcome.cloned(),
            });
        }
    }

    /// Of the rounds of one dead letter, in their order, those of which it is known when it came. One that
    /// failed until it was exhausted, without having arrived, is not among them.
    fn delivered<'a>(&self, rounds: &[&'a Round], causes: usize) -> Vec<Delivered<'a>> {
        let ends = rounds.iter().skip(1).map(|next| next.asked_ms);
        let ends = ends.chain([i64::MAX]);
        let came = rounds.iter().zip(ends).filter_map(|(round, end)| {
            let of_round = |one: &Arrival| {
                one.requeued && one.seq == round.seq && (round.asked_ms..end).contains(&one.at_ms)
            };
            let mut came = (0..self.arrivals.len()).filter(|at| of_round(self.arrivals[*at]));
            let first = came.next()?;
            Some(Delivered {
                round,
                answered_ms: round.answered_ms?,
                first,
                surely: came.take(causes).last().unwrap_or(first),
            })
        });
        came.collect()
    }

    /// Where each stands among the events that came for the first time. A request that was given up may
    /// arrive late, once for each cause.
    fn judge_places(
        &self,
        delivered: &[Delivered<'_>],
        causes: usize,
        found: &mut BTreeSet<Violation>,
    ) {
        let mut firsts: HashMap<i64, usize> = HashMap::new();
        for (at, arrival) in self.arrivals.iter().enumerate() {
            if !arrival.requeued {
                firsts.entry(arrival.seq).or_insert(at);
            }
        }
        for one in delivered {
            let letter = one.round.seq;
            let (least, most) = match one.round.to {
                Place::Own => (0, 0),
                Place::End { least, most } => (least, most),
            };
            let came_before = |seq: i64, at: usize| firsts.get(&seq).is_some_and(|it| *it < at);
            let open = self.due.iter().find(|seq| {
                **seq <= least && !came_before(**seq, one.surely) && !self.state.gave_up(**seq)
            });
            if let Some(&open) = open {
                let lane = self.name.clone();
                found.insert(Violation::LetterOvertook { lane, letter, open });
            }
            let mut by = self.due.iter().filter(|seq| {
                let since = firsts
                    .get(seq)
                    .is_some_and(|at| self.arrivals[*at].at_ms > one.answered_ms);
                **seq > most && since && came_before(**seq, one.first)
            });
            if let Some(&by) = by.nth(causes) {
                let lane = self.name.clone();
                found.insert(Violation::LetterOvertaken { lane, letter, by });
            }
        }
    }

    /// Two that wait for their delivery at the same time, at their places, come in the order of their events.
    fn judge_order(
        &self,
        delivered: &[Delivered<'_>],
        causes: usize,
        found: &mut BTreeSet<Violation>,
    ) {
        let own = |one: &&Delivered<'_>| matches!(one.round.to, Place::Own);
        for one in delivered.iter().filter(own) {
            let mut by = delivered.iter().filter(own).filter(|other| {
                other.round.seq > one.round.seq
                    && other.first < one.first
                    && self.arrivals[other.first].at_ms > one.answered_ms
            });
            if let Some(by) = by.nth(causes) {
                found.insert(Violation::LettersSwapped {
                    lane: self.name.clone(),
                    letter: one.round.seq,
                    by: by.round.seq,
                });
            }
        }
    }
}
