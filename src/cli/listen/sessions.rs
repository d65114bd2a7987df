//! The position of `listen` in each session, and which sessions may continue.
//!
//! It remembers only sessions with events of the days that a pass reads. If a forgotten session returns, it is read
//! from its first event of those days, because its earlier events were shown before.

use std::collections::BTreeMap;
use std::sync::Arc;

use lanekeeper_postgres::log_follow::NewestSeq;
use tokio::time::Instant;

use super::super::output;
use super::forward::{Again, Forwarded};

#[derive(Default)]
pub(super) struct Sessions {
    by_id: BTreeMap<i64, Session>,
    pass: u64,
    /// Whether what passes find was there before the start.
    begun: bool,
    delivered: usize,
    refused: usize,
    missing: i64,
    with_events: usize,
}

struct Session {
    name: Arc<str>,
    /// Everything up to this seq is done.
    cursor: i64,
    /// Whether the event after the cursor is known to have been in the log.
    is_contiguous: bool,
    newest: i64,
    state: State,
    seen_in_pass: u64,
    had_events: bool,
}

enum State {
    Idle,
    UnderWay,
    Waiting(Again),
}

/// A session whose next events may go out.
#[derive(Clone)]
pub(super) struct Due {
    pub(super) session_id: i64,
    pub(super) session: Arc<str>,
    pub(super) cursor: i64,
    /// Failed attempts on the event after the cursor.
    pub(super) attempts: u32,
}

impl Sessions {
    pub(super) fn begin_pass(&mut self) {
        self.pass += 1;
    }

    pub(super) fn saw(&mut self, newest: NewestSeq) {
        let begun = self.begun;
        let session = self
            .by_id
            .entry(newest.session_id)
            .or_insert_with(|| Session {
                name: newest.session.into(),
                cursor: if begun { 0 } else { newest.seq },
                is_contiguous: !begun,
                newest: newest.seq,
                state: State::Idle,
                seen_in_pass: 0,
                had_events: false,
            });
        session.newest = session.newest.max(newest.seq);
        session.seen_in_pass = self.pass;
    }

    /// Forgets the sessions whose newest event is older than what was read.
    pub(super) fn end_pass(&mut self) {
        let pass = self.pass;
        self.by_id.retain(|_, session| {
            let is_done = matches!(session.state, State::Idle) && session.cursor >= session.newest;
            session.seen_in_pass == pass || !is_done
        });
    }

    /// What passes find from now on came after the start.
    pub(super) fn begin_here(&mut self) {
        self.begun = true;
    }

    /// The next session that may go on at `now`; it is under way from then on.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<Due> {
        let due = self.by_id.iter_mut().find(|(_, session)| {
            let may = match &session.state {
                State::Idle => true,
                State::UnderWay => false,
                State::Waiting(again) => again.at <= now,
            };
            may && session.newest > session.cursor
        });
        due.map(|(&session_id, session)| {
            let attempts = match std::mem::replace(&mut session.state, State::UnderWay) {
                State::Waiting(again) => again.attempts,
                State::Idle | State::UnderWay => 0,
            };
            Due {
                session_id,
                session: Arc::clone(&session.name),
                cursor: session.cursor,
                attempts,
            }
        })
    }

    /// When the first of the sessions that wait for their next attempt may go on.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        let waiting = self
            .by_id
            .values()
            .filter_map(|session| match &session.state {
                State::Waiting(again) => Some(again.at),
                State::Idle | State::UnderWay => None,
            });
        waiting.min()
    }

    /// Checks that the events that were read follow the cursor without a gap.
    pub(super) fn read(&mut self, due: &Due, seqs: impl Iterator<Item = i64>) {
        let Some(session) = self.by_id.get_mut(&due.session_id) else {
            return;
        };
        let mut before = session.cursor;
        for seq in seqs {
            if seq != before + 1 {
                if session.is_contiguous {
                    tell_missing(&session.name, before + 1, seq - 1);
                    self.missing += seq - 1 - before;
                }
                // Told once, also where this page is read again for another attempt.
                session.cursor = session.cursor.max(seq - 1);
            }
            session.is_contiguous = true;
            before = seq;
        }
    }

    /// Its events could not be read: it is due again.
    pub(super) fn put_back(&mut self, due: &Due) {
        if let Some(session) = self.by_id.get_mut(&due.session_id) {
            let (at, attempts) = (Instant::now(), due.attempts);
            session.state = State::Waiting(Again { at, attempts });
        }
    }

    /// The events that a pass saw are in the log no longer.
    pub(super) fn lost_to_retention(&mut self, due: &Due) {
        if let Some(session) = self.by_id.get_mut(&due.session_id) {
            tell_missing(&session.name, session.cursor + 1, session.newest);
            self.missing += session.newest - session.cursor;
            session.cursor = session.newest;
            session.state = State::Idle;
        }
    }

    pub(super) fn settle(&mut self, forwarded: Forwarded) {
        self.delivered += forwarded.delivered;
        self.refused += forwarded.refused;
        let Some(session) = self.by_id.get_mut(&forwarded.session_id) else {
            return;
        };
        if forwarded.delivered > 0 && !session.had_events {
            session.had_events = true;
            self.with_events += 1;
        }
        session.cursor = session.cursor.max(forwarded.cursor);
        // A page may end with an event that came after the last pass.
        session.newest = session.newest.max(forwarded.cursor);
        session.state = match forwarded.again {
            Some(again) => State::Waiting(again),
            None => State::Idle,
        };
    }

    pub(super) fn missing(&self) -> i64 {
        self.missing
    }

    pub(super) fn summary(&self) -> String {
        let Self {
            delivered,
            refused,
            missing,
            with_events,
            ..
        } = self;
        let mut summary = format!("{delivered} events of {with_events} sessions");
        if *refused > 0 {
            summary.push_str(&format!(", {refused} refused by the receiver"));
        }
        summary.push_str(&match missing {
            0 => ", none missing from the log".to_owned(),
            missing => format!(", {missing} MISSING from the log"),
        });
        summary
    }
}

fn tell_missing(session: &str, first: i64, last: i64) {
    output::note(format!(
        "session {}: seq {first} to {last} are gone from the log",
        output::plain(session)
    ));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn saw(sessions: &mut Sessions, session_id: i64, seq: i64) {
        sessions.saw(NewestSeq {
            session_id,
            session: format!("s{session_id}"),
            seq,
        });
    }

    fn pass(sessions: &mut Sessions, seen: &[(i64, i64)]) {
        sessions.begin_pass();
        for &(session_id, seq) in seen {
            saw(sessions, session_id, seq);
        }
        sessions.end_pass();
    }

    fn done(session_id: i64, cursor: i64) -> Forwarded {
        Forwarded {
            session_id,
            cursor,
            delivered: 1,
            refused: 0,
            again: None,
        }
    }

    fn due(sessions: &mut Sessions) -> Option<(i64, i64)> {
        let due = sessions.next_due(Instant::now());
        due.map(|due| (due.session_id, due.cursor))
    }

    #[test]
    fn what_was_there_at_the_start_is_not_due_and_what_comes_after_it_is_due_once() {
        let mut sessions = Sessions::default();
        pass(&mut sessions, &[(1, 7)]);
        sessions.begin_here();
        assert_eq!(due(&mut sessions), None);
        pass(&mut sessions, &[(1, 8), (2, 3)]);
        assert_eq!(due(&mut sessions), Some((1, 7)));
        assert_eq!(due(&mut sessions), Some((2, 0)));
        assert_eq!(due(&mut sessions), None);
        sessions.settle(done(1, 8));
        sessions.settle(done(2, 3));
        pass(&mut sessions, &[(1, 8), (2, 3)]);
        assert_eq!(due(&mut sessions), None);
    }

    #[test]
    fn a_session_that_waits_is_due_when_its_time_has_come_and_holds_up_no_other() {
        let mut sessions = Sessions::default();
        sessions.begin_here();
        pass(&mut sessions, &[(1, 1), (2, 1)]);
        let now = Instant::now();
        sessions.next_due(now).unwrap();
        let at = now + Duration::from_secs(5);
        sessions.settle(Forwarded {
            delivered: 0,
            again: Some(Again { at, attempts: 2 }),
            ..done(1, 0)
        });
        assert_eq!(sessions.next_due(now).unwrap().session_id, 2);
        assert!(sessions.next_due(now).is_none());
        assert_eq!(sessions.next_attempt(), Some(at));
        let again = sessions.next_due(at).unwrap();
        assert_eq!((again.session_id, again.attempts), (1, 2));
    }

    #[test]
    fn a_gap_is_counted_once_and_a_session_that_comes_back_has_none() {
        let mut sessions = Sessions::default();
        sessions.begin_here();
        pass(&mut sessions, &[(1, 9)]);
        let first = sessions.next_due(Instant::now()).unwrap();
        sessions.read(&first, [8, 9].into_iter());
        sessions.put_back(&first);
        let first = sessions.next_due(Instant::now()).unwrap();
        sessions.read(&first, [8, 9].into_iter());
        assert_eq!(sessions.missing(), 0, "its first events may be older");
        sessions.settle(done(1, 9));
        pass(&mut sessions, &[(1, 13)]);
        let second = sessions.next_due(Instant::now()).unwrap();
        sessions.read(&second, [12, 13].into_iter());
        sessions.read(&second, [12, 13].into_iter());
        assert_eq!(sessions.missing(), 2);
    }

    #[test]
    fn a_session_without_recent_events_is_forgotten_when_it_is_done() {
        let mut sessions = Sessions::default();
        sessions.begin_here();
        pass(&mut sessions, &[(1, 1), (2, 1)]);
        sessions.next_due(Instant::now()).unwrap();
        sessions.settle(done(1, 1));
        pass(&mut sessions, &[]);
        assert_eq!(sessions.by_id.keys().collect::<Vec<_>>(), [&2]);
    }
}
