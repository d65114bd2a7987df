//! Lists by hand: the interleavings that the design names, each as short as it can be. Like all lists they
//! are checked after each operation and drained at the end; beside that, each says what it must have met.

use crate::generated::Simulation;
use crate::operation::Operation::*;
use crate::operation::{Action, Answer, DAY, Event, How, Operation};

const STOP: usize = 0;
const USE: usize = 1;

/// Event types are places in `operation::TYPES`.
fn event(session: usize, kind: usize) -> Event {
    Event {
        session,
        kind,
        priority: 0,
        key: None,
        id: None,
    }
}

fn enqueue(producer: usize, session: usize, kind: usize) -> Operation {
    Enqueue {
        producer,
        event: event(session, kind),
    }
}

fn begin(producer: usize) -> Operation {
    Begin {
        producer,
        repeatable_read: false,
    }
}

fn claim(connection: usize) -> Operation {
    Claim {
        connection,
        limit: 8,
        full: true,
    }
}

const FETCH: Operation = Fetch { nth: 0, rows: 3 };
const ACCEPT: Operation = Deliver {
    nth: 0,
    answer: Answer::Accepted,
};
const SETTLE: Operation = Settle {
    nth: 0,
    how: How::Natural,
};
const UNLOCK: Operation = Unlock { nth: 0 };

/// Runs a list, which must meet all of that.
fn meets(met: &[&str], list: &[Operation]) {
    let simulation = Simulation::new();
    simulation.run(list).unwrap();
    for what in met {
        assert!(
            simulation.met(what) > 0,
            "the list did not come to {what:?}"
        );
    }
}

#[test]
fn a_second_producer_waits_for_the_first_and_gets_the_next_number() {
    meets(
        &["calls that waited"],
        &[
            begin(0),
            enqueue(0, 0, STOP),
            enqueue(1, 0, STOP),
            Commit { nth: 0 },
        ],
    );
}

#[test]
fn a_second_producer_that_waits_for_a_rolled_back_creation_creates_the_session_itself() {
    meets(
        &["calls that waited"],
        &[
            begin(0),
            enqueue(0, 0, STOP),
            enqueue(1, 0, STOP),
            Rollback { nth: 0 },
        ],
    );
}

#[test]
fn a_savepoint_that_is_rolled_back_lets_the_append_lock_go() {
    let list = [
        enqueue(2, 0, STOP),
        begin(0),
        Savepoint { nth: 0 },
        enqueue(0, 0, STOP),
        enqueue(1, 0, STOP),
        RollbackTo { nth: 0 },
        enqueue(0, 1, STOP),
    ];
    meets(&["calls that waited"], &list);
}

#[test]
fn a_key_of_an_open_transaction_is_waited_for_in_another_session() {
    let keyed = |producer, session| Enqueue {
        producer,
        event: Event {
            key: Some(0),
            ..event(session, STOP)
        },
    };
    let list = [begin(0), keyed(0, 0), keyed(1, 1), Commit { nth: 0 }];
    meets(&["calls that waited", "duplicates of producers"], &list);
}

#[test]
fn a_snapshot_from_before_an_append_is_refused() {
    let list = [
        enqueue(1, 0, STOP),
        Begin {
            producer: 0,
            repeatable_read: true,
        },
        enqueue(1, 0, STOP),
        enqueue(0, 0, STOP),
    ];
    meets(&["snapshots refused"], &list);
}

#[test]
fn a_lane_does_not_go_idle_under_an_open_append() {
    let work = Work {
        connection: 0,
        answer: Answer::Accepted,
    };
    let later = Settle {
        nth: 0,
        how: How::Later,
    };
    let list = [
        enqueue(0, 0, STOP),
        begin(1),
        enqueue(1, 0, STOP),
        work,
        SETTLE,
        later,
        UNLOCK,
        Commit { nth: 0 },
        Pass { ms: 250 },
        claim(0),
    ];
    meets(&["finished under an open append"], &list);
}

#[test]
fn an_event_that_comes_during_a_delivery_is_fetched_by_its_holder() {
    meets(
        &["finished with more to do"],
        &[
            enqueue(0, 0, STOP),
            claim(0),
            FETCH,
            ACCEPT,
            enqueue(0, 0, STOP),
            SETTLE,
            FETCH,
            ACCEPT,
            SETTLE,
            UNLOCK,
        ],
    );
}

#[test]
fn a_lane_with_an_in_flight_record_of_a_dead_worker_is_woken_at_once() {
    meets(
        &["crashes charged"],
        &[
            enqueue(0, 0, STOP),
            claim(0),
            Mark { nth: 0 },
            Kill { worker: 0 },
            TakeOver { worker: 1 },
            claim(2),
        ],
    );
}

#[test]
fn a_dead_workers_lane_that_was_claimed_before_it_could_be_charged_stays_on_record() {
    meets(
        &["crashes charged"],
        &[
            enqueue(0, 0, STOP),
            claim(0),
            Kill { worker: 0 },
            claim(2),
            TakeOver { worker: 1 },
            Kill { worker: 1 },
            Open { connection: 0 },
            TakeOver { worker: 0 },
        ],
    );
}

#[test]
fn a_head_that_outlives_three_workers_is_exhausted() {
    let crash = |worker| Crash { worker };
    let list = [
        enqueue(0, 0, STOP),
        crash(0),
        crash(1),
        // Suspect from here on: recorded under a claim of its own.
        claim(2),
        FETCH,
        Deliver {
            nth: 0,
            answer: Answer::Throttled(1_500),
        },
        Kill { worker: 1 },
        TakeOver { worker: 0 },
    ];
    meets(&["suspects", "exhausted by crashes"], &list);
}

#[test]
fn a_holder_without_its_lock_settles_nothing_over_its_successor() {
    meets(
        &["settlements that missed"],
        &[
            enqueue(0, 0, STOP),
            claim(0),
            FETCH,
            ACCEPT,
            Usurp {
                nth: 0,
                answer: Answer::Accepted,
            },
            SETTLE,
        ],
    );
}

#[test]
fn what_a_lost_connection_did_not_settle_comes_again_and_its_order_holds() {
    meets(
        &["repeated with a cause"],
        &[
            enqueue(0, 0, STOP),
            enqueue(0, 0, USE),
            claim(0),
            FETCH,
            ACCEPT,
            Cut { connection: 0 },
            Work {
                connection: 2,
                answer: Answer::Accepted,
            },
        ],
    );
}

#[test]
fn a_dead_letter_comes_again_at_its_place_and_blocks_what_is_behind_it() {
    meets(
        &["dead letters delivered again"],
        &[
            enqueue(0, 0, STOP),
            Work {
                connection: 0,
                answer: Answer::Rejected,
            },
            enqueue(0, 0, STOP),
            Requeue {
                nth: 0,
                at_end: false,
            },
            Work {
                connection: 0,
                answer: Answer::Retry,
            },
            Pass { ms: 1_000 },
            Work {
                connection: 0,
                answer: Answer::Rejected,
            },
            Requeue {
                nth: 0,
                at_end: true,
            },
        ],
    );
}

#[test]
fn a_filter_that_changes_under_an_open_append_strands_nothing() {
    let list = [
        begin(0),
        enqueue(0, 0, USE),
        Apply {
            filter: 1,
            policy: 0,
        },
        Commit { nth: 0 },
        FinishChanges,
        Pass { ms: 1_000 },
        FinishChanges,
    ];
    meets(&["lanes gone idle"], &list);
}

#[test]
fn days_go_when_no_lane_needs_them_and_numbers_go_on() {
    let list = [
        enqueue(0, 0, STOP),
        Pass { ms: DAY },
        // Needed.
        KeepHouse,
        Work {
            connection: 0,
            answer: Answer::Accepted,
        },
        Work {
            connection: 0,
            answer: Answer::Accepted,
        },
        KeepHouse,
        enqueue(0, 0, STOP),
        Pass { ms: DAY },
    ];
    meets(&["days dropped"], &list);
}

#[test]
fn a_parked_lane_gets_no_ready_entry_and_all_of_its_events_when_it_is_unparked() {
    let list = [
        Apply {
            filter: 0,
            policy: 1,
        },
        Refresh { worker: 0 },
        enqueue(0, 0, STOP),
        Work {
            connection: 0,
            answer: Answer::Rejected,
        },
        enqueue(0, 0, STOP),
        claim(2),
        Operate {
            lane: 1,
            action: Action::Unpark,
        },
    ];
    meets(&["parked"], &list);
}

#[test]
fn a_worker_without_heartbeat_loses_its_connections_and_is_not_charged() {
    let list = [
        enqueue(0, 0, STOP),
        claim(0),
        FETCH,
        Pass { ms: 30_000 },
        Pass { ms: 60 },
        EndFrozen { worker: 1 },
        TakeOver { worker: 1 },
        claim(2),
    ];
    meets(&["connections lost"], &list);
}
