//! The oracle sees each way in which a requeued dead letter can be wrong.

use uuid::Uuid;

use super::*;
use crate::ledger::{Entry, Fate};
use crate::oracle::{Case, Logged, Subscription};

fn name() -> LaneName {
    ("all".to_owned(), "s".to_owned())
}

fn id(seq: i64) -> Uuid {
    Uuid::from_u128(u128::try_from(seq).unwrap())
}

/// What came at this moment: an event, as a requeued dead letter where that is said.
fn came(at_ms: i64, seq: i64, requeued: bool) -> Arrival {
    Arrival {
        at_ms,
        subscription: "all".to_owned(),
        session: "s".to_owned(),
        seq,
        id: id(seq),
        attempt: 1,
        sender: 0,
        requeued,
        refused: false,
    }
}

fn refused(arrival: Arrival) -> Arrival {
    Arrival {
        refused: true,
        ..arrival
    }
}

fn round(seq: i64, asked_ms: i64, to: Place) -> Round {
    Round {
        lane: name(),
        seq,
        asked_ms,
        answered_ms: Some(asked_ms + 1),
        to,
    }
}

fn redelivered() -> Letter {
    Letter {
        is_redelivered: true,
        ..Letter::default()
    }
}

/// Six events of a session; `letters` were exhausted, and what is left of them has an outcome.
fn case(letters: &[(i64, Letter)], rounds: Vec<Round>, arrivals: Vec<Arrival>) -> Case {
    let fate = |seq| Entry {
        session: "s".to_owned(),
        event_type: "a",
        fate: Fate::Committed { seq },
    };
    let logged = |seq| Logged {
        seq,
        id: id(seq),
        event_type: "a".to_owned(),
    };
    let dead = letters.iter().filter(|(_, letter)| !letter.is_redelivered);
    let lane = Lane {
        cursor: 6,
        outcomes: dead
            .map(|(seq, _)| (*seq, "dead_lettered".to_owned()))
            .collect(),
        letters: letters.iter().cloned().collect(),
    };
    Case {
        subscriptions: vec![Subscription {
            name: "all",
            events: None,
            max_attempts: 3,
        }],
        ledger: (1..=6).map(|seq| (id(seq), fate(seq))).collect(),
        log: [("s".to_owned(), (1..=6).map(logged).collect())].into(),
        lanes: [(name(), lane)].into(),
        arrivals,
        rounds,
        ..Case::default()
    }
}

fn lane(case: &mut Case) -> &mut Lane {
    case.lanes.values_mut().next().unwrap()
}

/// Event 2 is refused, requeued after 3 came, and accepted at its place before 4.
fn at_its_place() -> Case {
    let arrivals = vec![
        came(10, 1, false),
        refused(came(20, 2, false)),
        came(30, 3, false),
        came(50, 2, true),
        came(60, 4, false),
        came(70, 5, false),
        came(80, 6, false),
    ];
    case(
        &[(2, redelivered())],
        vec![round(2, 40, Place::Own)],
        arrivals,
    )
}

/// The same, at the end: it was asked for when 4 was the newest.
fn at_the_end() -> Case {
    let mut case = at_its_place();
    case.arrivals.swap(3, 4);
    for (at, arrival) in (0..).zip(&mut case.arrivals) {
        arrival.at_ms = 10 + 10 * at;
    }
    case.rounds = vec![round(2, 35, Place::End { least: 4, most: 4 })];
    case
}

#[test]
fn good_records_are_good() {
    assert_eq!(at_its_place().judge(), []);
    assert_eq!(at_its_place().settled_undelivered(), []);
    assert_eq!(at_the_end().judge(), []);
    // Whether 5 was committed by then is not known.
    let mut either = at_the_end();
    either.rounds[0].to = Place::End { least: 3, most: 5 };
    assert_eq!(either.judge(), []);
}

#[test]
fn one_that_nobody_asked_for_is_found() {
    let mut case = at_its_place();
    let unasked = Violation::NotRequeued {
        lane: name(),
        seq: 2,
    };
    // Only after it came.
    case.rounds[0].asked_ms = 55;
    assert!(case.judge().contains(&unasked), "{:?}", case.judge());
    case.rounds.clear();
    assert!(case.judge().contains(&unasked), "{:?}", case.judge());
}

#[test]
fn one_that_comes_more_often_than_it_was_asked_for_needs_a_cause() {
    let mut case = at_its_place();
    case.arrivals.insert(4, came(55, 2, true));
    let too_often = Violation::RequeuedTooOften {
        lane: name(),
        seq: 2,
        times: 2,
        rounds: 1,
        causes: 0,
    };
    assert_eq!(case.judge(), [too_often]);
    case.causes = 1;
    assert_eq!(case.judge(), []);
}

#[test]
fn an_event_that_passes_one_at_its_place_is_found() {
    let mut case = at_its_place();
    case.arrivals[3..5].reverse();
    case.arrivals[3].at_ms = 45;
    let overtaken = Violation::LetterOvertaken {
        lane: name(),
        letter: 2,
        by: 4,
    };
    assert_eq!(case.judge(), [overtaken]);
    // A request that was given up may arrive late, once for each cause.
    case.causes = 1;
    assert_eq!(case.judge(), []);
    // It was under way when the letter was asked for.
    case.causes = 0;
    case.arrivals[3].at_ms = 41;
    assert_eq!(case.judge(), []);
    // Where the answer was lost, nobody knows since when it was its turn.
    case.arrivals[3].at_ms = 45;
    case.rounds[0].answered_ms = None;
    assert_eq!(case.judge(), []);
}

#[test]
fn one_at_the_end_that_comes_before_what_was_committed_is_found() {
    let mut case = at_the_end();
    case.rounds[0].to = Place::End { least: 5, most: 5 };
    let overtook = Violation::LetterOvertook {
        lane: name(),
        letter: 2,
        open: 5,
    };
    assert_eq!(case.judge(), [overtook]);
    // Unless that one was given up.
    lane(&mut case).outcomes.insert(5, "dropped".to_owned());
    assert_eq!(case.judge(), []);
}

#[test]
fn one_at_the_end_that_was_passed_by_what_came_later_is_found() {
    let mut case = at_the_end();
    case.rounds[0].to = Place::End { least: 3, most: 3 };
    let overtaken = Violation::LetterOvertaken {
        lane: name(),
        letter: 2,
        by: 4,
    };
    assert_eq!(case.judge(), [overtaken]);
}

#[test]
fn two_at_their_places_that_come_in_the_wrong_order_are_found() {
    let mut case = at_its_place();
    case.arrivals[2].refused = true;
    lane(&mut case).letters.insert(3, redelivered());
    case.rounds.push(round(3, 42, Place::Own));
    case.arrivals.insert(4, came(55, 3, true));
    assert_eq!(case.judge(), []);
    case.arrivals.swap(3, 4);
    case.arrivals[3].at_ms = 50;
    case.arrivals[4].at_ms = 55;
    let swapped = Violation::LettersSwapped {
        lane: name(),
        letter: 2,
        by: 3,
    };
    assert_eq!(case.judge(), [swapped]);
    // The second was delivered before the first was asked for.
    case.rounds[0] = round(2, 52, Place::Own);
    assert_eq!(case.judge(), []);
}

#[test]
fn one_that_is_neither_accepted_nor_dead_again_is_found() {
    let is_lost = |case: &Case| {
        let lost = |it: &Violation| matches!(it, Violation::LetterLost { seq: 2, .. });
        let found = case.judge();
        assert!(found.iter().all(lost), "{found:?}");
        !found.is_empty()
    };
    let unaccepted = |change: fn(&mut Letter), outcome: Option<&str>| {
        let mut case = at_its_place();
        case.arrivals[3].refused = true;
        let lane = lane(&mut case);
        let letter = lane.letters.get_mut(&2).unwrap();
        letter.is_redelivered = false;
        letter.died_ms = 51;
        change(letter);
        lane.outcomes = outcome
            .map(|kind| (2, kind.to_owned()))
            .into_iter()
            .collect();
        is_lost(&case)
    };
    let dead = Some("dead_lettered");
    // It was refused again, and is a dead letter again.
    assert!(!unaccepted(|_| (), dead));
    assert!(
        unaccepted(|letter| letter.died_ms = 21, dead),
        "it was not tried since"
    );
    assert!(
        unaccepted(|letter| letter.is_requeued = true, dead),
        "it still waits"
    );
    assert!(unaccepted(|_| (), None), "its outcome is gone");
    assert!(
        unaccepted(|letter| letter.is_redelivered = true, None),
        "it was never accepted"
    );
    let mut kept = at_its_place();
    lane(&mut kept)
        .outcomes
        .insert(2, "dead_lettered".to_owned());
    assert!(is_lost(&kept), "it was accepted and counts as dead");
    let mut gone = at_its_place();
    lane(&mut gone).letters.clear();
    let found = gone.judge();
    assert!(
        found
            .iter()
            .any(|it| matches!(it, Violation::LetterLost { .. })),
        "{found:?}"
    );
}

#[test]
fn the_order_of_the_other_events_stays_as_it_was() {
    let mut case = at_its_place();
    case.arrivals.swap(4, 5);
    let overtook = Violation::Overtook {
        lane: name(),
        seq: 5,
        open: 4,
    };
    assert!(case.judge().contains(&overtook), "{:?}", case.judge());
}
