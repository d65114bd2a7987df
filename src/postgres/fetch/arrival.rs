//! Collects the rows of a fetch as they arrive, and lets a lane start before all rows are there (I12).
//!
//! With the pinned plan, the rows of one position arrive together. This code does not rely on that: seqs have no gaps
//! (I1), so rows whose seqs continue a cursor one by one are that lane's next events, whatever arrives after them. If
//! they do not continue it (the log before them was dropped, or rows arrived in another order), the lane waits for all
//! rows.

use std::collections::HashMap;

use super::{FetchedEvent, Position};

/// Takes rows, and gives the events of each position once.
pub(super) struct Arrival<'a, F> {
    positions: &'a [Position],
    given: Vec<bool>,
    /// The position whose rows come now, and those that came since another's did.
    at: usize,
    run: Vec<FetchedEvent>,
    /// Of positions that wait for all rows.
    waiting: HashMap<usize, Vec<FetchedEvent>>,
    give: F,
}

impl<'a, F: FnMut(usize, Vec<FetchedEvent>)> Arrival<'a, F> {
    pub(super) fn new(positions: &'a [Position], give: F) -> Self {
        Self {
            positions,
            given: vec![false; positions.len()],
            at: 0,
            run: Vec::new(),
            waiting: HashMap::new(),
            give,
        }
    }

    pub(super) fn row(&mut self, at: usize, event: FetchedEvent) {
        if at != self.at {
            self.end_run();
            self.at = at;
        }
        // Of one that was given, this is behind what it got: the next fetch brings it.
        if !self.given[at] {
            self.run.push(event);
        }
    }

    /// All rows were there: what is left goes, in order.
    pub(super) fn end(mut self) {
        self.end_run();
        for at in 0..self.positions.len() {
            if !self.given[at] {
                let mut events = self.waiting.remove(&at).unwrap_or_default();
                events.sort_unstable_by_key(|event| event.seq);
                (self.give)(at, events);
            }
        }
    }

    fn end_run(&mut self) {
        if self.run.is_empty() {
            return;
        }
        let at = self.at;
        let next = self.positions[at].cursor + 1;
        if (next..).zip(&self.run).all(|(seq, event)| event.seq == seq) {
            self.waiting.remove(&at);
            self.given[at] = true;
            // As large as it must be: many lanes have one event.
            (self.give)(at, self.run.drain(..).collect());
        } else {
            self.waiting.entry(at).or_default().append(&mut self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use jiff::civil::date;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn position(cursor: i64) -> Position {
        Position {
            session_id: 1,
            cursor,
            cursor_day: date(2026, 1, 1),
            subscription_id: 1,
        }
    }

    fn event(seq: i64) -> FetchedEvent {
        FetchedEvent {
            seq,
            day: date(2026, 1, 1),
            message_id: Uuid::nil(),
            event_type: "".into(),
            created_at: Timestamp::UNIX_EPOCH,
            size: 0,
            matched: true,
            payload: None,
            headers: None,
        }
    }

    /// What each position got, in the order of giving, and after how many rows.
    fn arrive(cursors: &[i64], rows: &[(usize, i64)]) -> Vec<(usize, Vec<i64>, usize)> {
        let positions: Vec<Position> = cursors.iter().copied().map(position).collect();
        let mut given = Vec::new();
        let arrived = std::cell::Cell::new(0);
        let mut arrival = Arrival::new(&positions, |at, events: Vec<FetchedEvent>| {
            let seqs = events.iter().map(|event| event.seq).collect();
            given.push((at, seqs, arrived.get()));
        });
        for &(at, seq) in rows {
            arrival.row(at, event(seq));
            arrived.set(arrived.get() + 1);
        }
        arrival.end();
        given
    }

    #[test]
    fn a_position_has_its_events_when_the_next_ones_come() {
        let rows = [(0, 1), (0, 2), (1, 8), (3, 1)];
        let given = arrive(&[0, 7, 0, 0], &rows);
        let expected = [
            (0, vec![1, 2], 2),
            (1, vec![8], 3),
            (3, vec![1], 4),
            (2, vec![], 4),
        ];
        assert_eq!(given, expected);
    }

    #[test]
    fn events_behind_a_gap_wait_for_all_rows_and_are_put_in_order() {
        let rows = [(0, 5), (1, 1), (0, 4), (0, 3)];
        let given = arrive(&[1, 0], &rows);
        assert_eq!(given, [(1, vec![1], 2), (0, vec![3, 4, 5], 4)]);
    }

    #[test]
    fn a_late_row_of_a_position_that_has_its_events_is_left_to_the_next_fetch() {
        let given = arrive(&[0, 0], &[(0, 1), (1, 1), (0, 2)]);
        assert_eq!(given, [(0, vec![1], 1), (1, vec![1], 2)]);
    }

    proptest! {
        /// Whatever the order of the rows, nobody gets an event before one that precedes it.
        #[test]
        fn in_any_order_of_rows_each_position_gets_a_beginning_of_its_events(
            rows in Just((0..4_usize).flat_map(|at| (1..=6_i64).map(move |seq| (at, seq))).collect::<Vec<_>>())
                .prop_shuffle()
        ) {
            let mut given = arrive(&[0; 4], &rows);
            given.sort_unstable();
            prop_assert_eq!(given.len(), 4);
            for (place, (at, seqs, _)) in given.into_iter().enumerate() {
                prop_assert_eq!(at, place);
                prop_assert!(!seqs.is_empty());
                prop_assert_eq!(&seqs, &(1..=seqs.len() as i64).collect::<Vec<_>>());
            }
        }
    }
}
