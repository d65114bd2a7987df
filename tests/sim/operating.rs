//! What operators, `apply` and housekeeping do, and time.

use lanekeeper_postgres::{StoreError, maintenance, operate};

use crate::ensure;
use crate::ground::apply;
use crate::model::Model;
use crate::model::settlement::Refusal;
use crate::operation::{Action, LANES, NARROW, SUBSCRIPTIONS};
use crate::world::{Check, World, nth, told};

impl World {
    pub async fn operate(&mut self, lane: usize, action: Action) -> Check {
        let Some(lane_id) = self.lane_id(lane) else {
            return self.nothing();
        };
        let asked = match action {
            Action::Retry => operate::LaneAction::Retry,
            Action::Skip => operate::LaneAction::Skip,
            Action::Park => operate::LaneAction::Park,
            Action::Unpark => operate::LaneAction::Unpark,
        };
        let answer = operate::change_lane(&self.ground.admin, lane_id, asked, None, None).await;
        let expected = self.model.operate(lane, action);
        agree(answer.as_deref(), &expected, |state, expected| {
            state == expected
        })
    }

    pub async fn requeue(&mut self, letter: usize, at_end: bool) -> Check {
        let Some((lane, dead_id)) = self.letter(letter) else {
            return self.nothing();
        };
        let answer =
            operate::requeue_dead_letters(&self.ground.admin, &[dead_id], at_end, None).await;
        let expected = self.model.requeue(lane, dead_id, at_end);
        agree(answer.as_deref(), &expected, |results, expected| {
            **results == [(dead_id, *expected)]
        })
    }

    pub async fn drop_letter(&mut self, letter: usize) -> Check {
        let Some((lane, dead_id)) = self.letter(letter) else {
            return self.nothing();
        };
        let answer = operate::drop_dead_letter(&self.ground.admin, dead_id, None).await;
        let expected = self.model.drop_letter(lane, dead_id);
        agree(answer.as_ref(), &expected, |dropped, expected| {
            *dropped == expected
        })
    }

    /// The n-th dead letter that nobody has dealt with, or that somebody has.
    fn letter(&self, n: usize) -> Option<(usize, i64)> {
        let lanes = self.model.lanes.iter().enumerate();
        let letters =
            lanes.flat_map(|(lane, state)| state.letters.iter().map(move |letter| (lane, letter)));
        let (done, open): (Vec<_>, Vec<_>) =
            letters.partition(|(_, letter)| letter.resolution.is_some());
        nth(n, open.into_iter().chain(done)).map(|(lane, letter)| (lane, letter.dead_id))
    }

    pub async fn pause(&mut self, at: usize, paused: bool) -> Check {
        let name = SUBSCRIPTIONS[at];
        let changed = if paused {
            operate::pause_subscription(&self.ground.admin, name, "the list says so").await
        } else {
            operate::resume_subscription(&self.ground.admin, name).await
        };
        let known = &mut self.model.subscriptions[at];
        let expected = known.paused != paused;
        known.paused = paused;
        let changed = changed.map_err(told)?;
        ensure!(
            changed == expected,
            "pausing or resuming said {changed}, not {expected}"
        );
        Ok(())
    }

    pub async fn apply(&mut self, filter: usize, policy: usize) -> Check {
        let known = &mut self.model.subscriptions[NARROW];
        let (filter_changes, changes) = (
            known.filter != filter,
            known.filter != filter || known.policy != policy,
        );
        known.policy = policy;
        let changed = apply(&mut self.ground.admin, filter, policy).await;
        ensure!(
            changed == changes,
            "the apply changed {changed}, not {changes}"
        );
        if filter_changes {
            self.model.change_filter(filter);
        }
        Ok(())
    }

    /// Whether nothing is left to finish.
    pub async fn finish_changes(&mut self) -> Check<bool> {
        let turn = maintenance::finish_changes(&self.ground.admin, 10)
            .await
            .map_err(told)?;
        let finished = turn.unfinished == 0;
        for lane in 0..LANES {
            if finished
                && std::mem::take(&mut self.model.lanes[lane].excused)
                && self.model.front(lane).is_some()
            {
                let due = self.model.lanes[lane].retry_at.unwrap_or(self.model.now);
                let due = due.max(self.model.now);
                let lane = &mut self.model.lanes[lane];
                lane.due = (!lane.parked).then_some(lane.due.map_or(due, |other| other.min(due)));
            }
        }
        Ok(finished)
    }

    /// Keeps no day but the present one. Who appends would be in the way, and is not waited for.
    pub async fn maintain_log(&mut self) -> Check {
        if self.model.transactions.iter().any(Option::is_some) {
            return self.nothing();
        }
        let partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'lanekeeper.event'::regclass
                          AND inhrelid::regclass::text < 'lanekeeper.event_' || to_char('2040-01-01'::date + $1::int, 'YYYYMMDD')";
        let today = i32::try_from(self.model.today()).expect("a few days");
        let before: i64 = self
            .ground
            .admin
            .query_one(partitions, &[&today])
            .await
            .unwrap()
            .get(0);
        // The first turn only says that the day is about to go.
        for _ in 0..2 {
            let report = maintenance::run(&self.ground.admin, 0, 1_000, false)
                .await
                .map_err(told)?;
            if report.partitions_dropped == 0 {
                continue;
            }
            let day = self.model.today() - before;
            *self.met.entry("days dropped").or_default() += 1;
            for lane in (0..LANES).filter(|lane| self.model.exists(*lane)) {
                let session = &self.model.sessions[Model::session_of(lane)];
                let head = self.model.head(lane);
                let needed = head.is_some_and(|seq| session.log[seq as usize - 1].day == day);
                ensure!(
                    !needed,
                    "day {day} was dropped, and lane {lane} needs {head:?} of it"
                );
            }
            for session in &mut self.model.sessions {
                session
                    .log
                    .iter_mut()
                    .filter(|entry| entry.day == day)
                    .for_each(|entry| entry.gone = true);
            }
        }
        Ok(())
    }
}

/// The operator was told what the model says.
fn agree<A: std::fmt::Debug, E: std::fmt::Debug>(
    answer: Result<A, &StoreError>,
    expected: &Result<E, Refusal>,
    same: impl FnOnce(&A, &E) -> bool,
) -> Check {
    match (answer, expected) {
        (Ok(answer), Ok(expected)) if same(&answer, expected) => Ok(()),
        (Err(error), Err(refusal)) if error.sqlstate() == Some(refusal.sqlstate()) => Ok(()),
        (answer, expected) => Err(format!(
            "the operator was told {:?}, not {expected:?}",
            answer.map_err(|error| format!("{error}: {}", error.source))
        )),
    }
}
