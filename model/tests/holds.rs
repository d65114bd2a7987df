//! The protocol keeps its invariants over every interleaving of each scenario.

use lanekeeper_model::property::*;
use lanekeeper_model::recovery;
use lanekeeper_model::scenario::Scenario;
use lanekeeper_model::scenarios;
use stateright::{Checker, Model};

/// Every property, in every state; and every goal, from every state. Except where it is said.
fn holds_but(scenario: Scenario, exceptions: &[&str]) {
    let outcome = recovery::check(&scenario.with(|it| it.alike = true));
    let mut broken = outcome.broken;
    broken.retain(|it| !exceptions.contains(&it.property));
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(outcome.stuck.is_empty(), "{:#?}", outcome.stuck);
    println!("{} states", outcome.states);
}

fn holds(scenario: Scenario) {
    holds_but(scenario, &[]);
}

#[test]
fn while_producers_append_to_one_session() {
    holds(scenarios::appends_to_one_session());
}

#[test]
fn while_a_head_fails_beside_another_session() {
    holds(scenarios::appends_to_two_sessions());
}

#[test]
fn while_transactions_append_several_events() {
    holds(scenarios::bulk_appends());
}

#[test]
fn while_producers_read_old_snapshots() {
    holds(scenarios::old_snapshots());
}

#[test]
fn while_lanes_get_in_flight_records_are_released_and_yield() {
    holds(scenarios::held_and_handed_on());
}

#[test]
fn while_a_worker_is_killed() {
    holds(scenarios::killed());
}

#[test]
fn while_a_worker_with_two_lanes_of_one_session_is_killed() {
    holds(scenarios::killed_with_two_subscriptions());
}

#[test]
fn while_a_lane_connection_is_cut() {
    holds(scenarios::cut());
}

#[test]
fn while_a_worker_is_frozen_and_thawed() {
    holds(scenarios::frozen());
}

#[test]
fn while_the_server_fails_over() {
    holds(scenarios::failed_over());
}

#[test]
fn while_an_event_is_exhausted_and_its_worker_killed() {
    holds(scenarios::exhausted_and_killed());
}

#[test]
fn while_operators_unpark_and_skip() {
    holds(scenarios::parked_and_operated());
}

#[test]
fn while_dead_letters_are_requeued() {
    holds(scenarios::requeued());
}

#[test]
fn while_a_dead_letter_is_requeued_and_a_worker_killed() {
    holds(scenarios::requeued_and_killed());
}

#[test]
fn while_a_dead_letter_is_requeued_and_the_server_fails_over() {
    holds(scenarios::requeued_and_failed_over());
}

#[test]
fn while_idle_workers_wait_for_the_doorbell() {
    holds(scenarios::doorbell());
}

#[test]
fn while_walks_start_at_bounds() {
    holds(scenarios::bounds());
}

/// Two may deliver then, and a stretch may be mixed with another; what is settled stays in order.
#[test]
fn while_a_lost_connection_is_noticed_late_only_duplicates_come_of_it() {
    holds_but(scenarios::trust_broken(), &[ONE_HOLDER, CONTIGUOUS]);
}

#[test]
fn while_an_exhausted_event_is_flushed_before_its_successor_a_failover_keeps_its_outcome() {
    holds(scenarios::exhausted_and_failed_over());
}

#[test]
fn while_messages_wait_for_acknowledgements_that_may_be_late() {
    holds(scenarios::acknowledged());
}

#[test]
fn while_a_worker_is_killed_between_a_send_and_its_mark() {
    holds(scenarios::acknowledged_and_killed());
}

#[test]
fn while_a_session_is_closed() {
    holds(scenarios::closed());
}

#[test]
fn while_a_session_is_closed_and_a_worker_killed() {
    holds(scenarios::closed_and_killed());
}

#[test]
fn while_a_session_is_interrupted() {
    holds(scenarios::interrupted());
}

#[test]
fn while_a_session_is_interrupted_and_a_worker_killed() {
    holds(scenarios::interrupted_and_killed());
}

#[test]
fn while_a_barrier_waits_for_a_delivery() {
    holds(scenarios::held_back());
}

#[test]
fn while_a_session_is_interrupted_that_waits_for_an_acknowledgement() {
    holds(scenarios::acknowledged_and_interrupted());
}

/// Two checkers, one of them not ours, see the same system.
#[test]
fn while_stateright_looks_too() {
    let scenario = scenarios::bulk_appends();
    let checker = scenario.clone().checker().spawn_bfs().join();
    checker.assert_properties();
    assert_eq!(
        checker.unique_state_count(),
        recovery::check(&scenario).states
    );
}
