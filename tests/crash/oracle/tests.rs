//! The oracle can fail: a record for each way to be wrong.

use super::*;

const ALL: Subscription = Subscription {
    name: "all",
    events: None,
    max_attempts: 3,
};

fn id(seq: i64) -> Uuid {
    Uuid::from_u128(u128::try_from(seq).unwrap())
}

fn arrival(seq: i64, sender: usize) -> Arrival {
    Arrival {
        at_ms: 0,
        subscription: "all".to_owned(),
        session: "s".to_owned(),
        seq,
        id: id(seq),
        attempt: 1,
        sender,
        requeued: false,
        refused: false,
    }
}

/// Five events of one session, all delivered once by worker 0 and settled.
fn good() -> Case {
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
    let lane = Lane {
        cursor: 5,
        ..Lane::default()
    };
    Case {
        subscriptions: vec![ALL],
        ledger: (1..=5).map(|seq| (id(seq), fate(seq))).collect(),
        log: [("s".to_owned(), (1..=5).map(logged).collect())].into(),
        lanes: [(("all".to_owned(), "s".to_owned()), lane)].into(),
        arrivals: (1..=5).map(|seq| arrival(seq, 0)).collect(),
        causes: 0,
        rounds: Vec::new(),
        acks: None,
        limited: None,
    }
}

fn came(seqs: &[i64], causes: usize) -> Case {
    Case {
        arrivals: seqs.iter().map(|seq| arrival(*seq, 0)).collect(),
        causes,
        ..good()
    }
}

fn lane(case: &mut Case) -> &mut Lane {
    case.lanes.values_mut().next().unwrap()
}

fn name() -> LaneName {
    ("all".to_owned(), "s".to_owned())
}

#[test]
fn a_good_record_is_good() {
    assert_eq!(good().judge(), []);
    assert_eq!(good().settled_undelivered(), []);
}

#[test]
fn a_gap_a_reorder_and_a_lost_event_are_found() {
    let missing = Violation::SettledUndelivered {
        lane: name(),
        seq: 3,
    };
    let found = came(&[1, 2, 4, 5], 0);
    assert_eq!(found.settled_undelivered(), std::slice::from_ref(&missing));
    let found = found.judge();
    assert!(found.contains(&missing), "{found:?}");
    let overtook = |seq, open| Violation::Overtook {
        lane: name(),
        seq,
        open,
    };
    assert!(found.contains(&overtook(4, 3)), "{found:?}");
    let found = came(&[1, 3, 2, 4, 5], 9).judge();
    assert!(found.contains(&overtook(3, 2)), "{found:?}");
    let mut case = came(&[1, 2, 3, 4], 0);
    lane(&mut case).cursor = 4;
    let undelivered = Violation::Undelivered {
        lane: name(),
        seq: 5,
    };
    assert_eq!(case.judge(), [undelivered]);
}

#[test]
fn an_outcome_excuses_its_event_and_no_other() {
    let mut case = came(&[1, 2, 4, 5], 0);
    lane(&mut case).outcomes = [(3, "dropped".to_owned())].into();
    assert_eq!(case.judge(), []);
    lane(&mut case).outcomes = [(2, "dropped".to_owned())].into();
    assert_ne!(case.judge(), []);
}

#[test]
fn what_was_rolled_back_is_neither_in_the_log_nor_delivered() {
    let mut case = good();
    case.ledger.get_mut(&id(2)).unwrap().fate = Fate::RolledBack;
    let (session, seq) = ("s".to_owned(), 2);
    let logged = Violation::RolledBackInLog {
        session: session.clone(),
        seq,
    };
    let delivered = Violation::RolledBackDelivered { session, seq };
    assert_eq!(case.judge(), [logged, delivered]);
}

#[test]
fn a_confirmed_event_that_the_log_lacks_is_lost() {
    let mut case = good();
    let fate = Fate::Committed { seq: 6 };
    let (session, event_type) = ("s".to_owned(), "a");
    case.ledger.insert(
        id(6),
        Entry {
            session: session.clone(),
            event_type,
            fate,
        },
    );
    assert_eq!(case.judge(), [Violation::Lost { session, id: id(6) }]);
    case.ledger.get_mut(&id(6)).unwrap().fate = Fate::Unknown;
    assert_eq!(case.judge(), []);
}

#[test]
fn what_nobody_sent_and_what_was_told_wrong_are_found() {
    let mut case = good();
    case.ledger.remove(&id(4));
    assert_eq!(
        case.judge(),
        [Violation::Invented {
            session: "s".to_owned(),
            seq: 4
        }]
    );
    let mut case = good();
    case.ledger.get_mut(&id(4)).unwrap().fate = Fate::Committed { seq: 5 };
    assert_eq!(
        case.judge(),
        [Violation::Mistold {
            session: "s".to_owned(),
            seq: 4
        }]
    );
    let mut case = good();
    case.log.get_mut("s").unwrap().remove(1);
    assert!(case.judge().contains(&Violation::GapInLog {
        session: "s".to_owned(),
        seq: 3
    }));
}

#[test]
fn repeats_need_a_cause_and_are_contiguous() {
    let twice = |causes| came(&[1, 2, 3, 2, 3, 4, 5], causes).judge();
    assert_eq!(twice(1), []);
    let too_often = |seq| Violation::TooOften {
        lane: name(),
        seq,
        times: 2,
        causes: 0,
    };
    assert_eq!(twice(0), [too_often(2), too_often(3)]);
    let skipped = [Violation::Skipped {
        lane: name(),
        seq: 3,
        after: 1,
    }];
    assert_eq!(came(&[1, 2, 3, 4, 1, 3, 4, 5], 9).judge(), skipped);
    // One that was given up may come late, for each cause.
    assert_eq!(came(&[1, 2, 3, 1, 4, 5], 1).judge(), []);
    assert_eq!(came(&[1, 2, 3, 1, 4, 2, 5], 1).judge().len(), 1);
}

/// A consumer acknowledged 3 and 4 before 2 was sent again.
#[test]
fn what_is_sent_again_goes_past_what_was_acknowledged_and_past_nothing_that_did_not_come() {
    let mut case = came(&[1, 2, 3, 4, 2, 5], 0);
    let skipped = |case: &Case| {
        let found = case.judge().into_iter();
        found
            .filter(|one| matches!(one, Violation::Skipped { .. }))
            .count()
    };
    assert_eq!(skipped(&case), 1);
    case.acks = Some((ALL.name, Acks::default(), 0));
    assert_eq!(skipped(&case), 0);
    let mut case = came(&[1, 2, 4, 5], 0);
    case.acks = Some((ALL.name, Acks::default(), 0));
    assert_eq!(skipped(&case), 1);
}

#[test]
fn a_successor_may_go_on_between_what_a_frozen_worker_had_in_flight() {
    let mut case = came(&[], 1);
    let senders = [(1, 0), (2, 0), (2, 1), (3, 1), (2, 0), (4, 1), (5, 1)];
    case.causes = 2;
    case.arrivals = senders.map(|(seq, sender)| arrival(seq, sender)).into();
    assert_eq!(case.judge(), []);
}

#[test]
fn attempts_are_bounded_and_filters_are_kept() {
    let mut case = good();
    case.arrivals[4].attempt = 4;
    let too_many = Violation::TooManyAttempts {
        lane: name(),
        seq: 5,
        attempt: 4,
    };
    assert_eq!(case.judge(), [too_many]);
    let mut case = good();
    case.subscriptions[0].events = Some(&["b"]);
    assert_eq!(case.judge().len(), 5);
}

#[test]
fn an_event_that_was_only_refused_is_not_delivered() {
    let mut case = good();
    case.arrivals[2].refused = true;
    let undelivered = Violation::SettledUndelivered {
        lane: name(),
        seq: 3,
    };
    assert_eq!(
        case.settled_undelivered(),
        std::slice::from_ref(&undelivered)
    );
    assert_eq!(case.judge(), [undelivered]);
    lane(&mut case).outcomes = [(3, "dropped".to_owned())].into();
    assert_eq!(case.judge(), []);
}

#[test]
fn terminal_states_that_go_back_are_found() {
    let at = |cursor, outcome: Option<&str>| {
        let outcomes = outcome.map(|kind| (2, kind.to_owned()));
        let outcomes = outcomes.into_iter().collect();
        let lane = Lane {
            cursor,
            outcomes,
            ..Lane::default()
        };
        BTreeMap::from([(name(), lane)])
    };
    let mut terminal = Terminal::default();
    assert!(terminal.look(at(3, Some("dropped"))).is_empty());
    assert!(terminal.look(at(4, Some("dropped"))).is_empty());
    assert_eq!(terminal.look(at(3, Some("dropped"))).len(), 1);
    assert_eq!(terminal.look(at(3, None)).len(), 1);
    terminal.forget();
    assert!(terminal.look(at(1, None)).is_empty());
    assert_eq!(terminal.look(BTreeMap::new()).len(), 1);
}

#[test]
fn a_dead_letter_goes_for_good_and_only_when_it_was_redelivered() {
    let dead = |outcome: Option<&str>, is_redelivered| {
        let letter = Letter {
            is_redelivered,
            ..Letter::default()
        };
        let lane = Lane {
            cursor: 3,
            outcomes: outcome
                .map(|kind| (2, kind.to_owned()))
                .into_iter()
                .collect(),
            letters: [(2, letter)].into(),
        };
        BTreeMap::from([(name(), lane)])
    };
    let mut terminal = Terminal::default();
    assert!(terminal.look(dead(Some("dead_lettered"), false)).is_empty());
    assert!(terminal.look(dead(None, true)).is_empty());
    assert_eq!(terminal.look(dead(Some("dead_lettered"), false)).len(), 1);
    assert_eq!(terminal.look(dead(None, false)).len(), 1);
    let mut gone = dead(None, true);
    gone.values_mut().next().unwrap().letters.clear();
    assert_eq!(terminal.look(gone).len(), 1);
}

#[test]
fn more_than_the_limit_lets_through_is_found_in_any_stretch() {
    let limit = Limit { rate: 4, burst: 1 };
    let mut case = good();
    case.limited = Some(("all", limit));
    // Half a second passes until a request is on record, and one is let through at once: four.
    for (apart_ms, found) in [(250, false), (60, true)] {
        for (number, arrival) in (0..).zip(&mut case.arrivals) {
            arrival.at_ms = number * apart_ms;
        }
        let wrong = case.judge();
        let too_fast = wrong.iter().any(|one| {
            matches!(
                one,
                Violation::TooFast {
                    sends: 5,
                    in_ms: 240
                }
            )
        });
        assert_eq!((too_fast, wrong.is_empty()), (found, !found), "{wrong:?}");
    }
}
