//! Without any one of its protecting details the protocol breaks, and the checker finds the way: what
//! these tests show is that the model can fail. Each prints the shortest way that was found.

use std::collections::BTreeSet;

use lanekeeper_model::property::*;
use lanekeeper_model::recovery::{self, Goal};
use lanekeeper_model::scenario::{Mutation, Scenario, Transaction, committed};
use lanekeeper_model::scenarios;
use stateright::{Checker, HasDiscoveries, Model};

/// The property has a counterexample once the detail is gone.
fn breaks(scenario: Scenario, mutation: Mutation, property: &'static str) {
    let checker = scenario
        .without(mutation)
        .checker()
        .finish_when(HasDiscoveries::AnyOf(BTreeSet::from([property])))
        .spawn_bfs()
        .join();
    let path = checker
        .discovery(property)
        .unwrap_or_else(|| panic!("{mutation:?} breaks nothing: {property} holds"));
    println!("{mutation:?} breaks {property:?}:");
    for step in path.into_actions() {
        println!("  {step:?}");
    }
}

/// The goal is out of reach of some state once the detail is gone.
fn strands(scenario: Scenario, mutation: Mutation, goal: Goal) {
    let outcome = recovery::check(&scenario.without(mutation));
    let stuck = outcome
        .stuck
        .iter()
        .find(|stuck| stuck.goal == goal)
        .unwrap_or_else(|| {
            panic!("without {mutation:?} {goal:?} is still reached from everywhere")
        });
    println!("{mutation:?} strands {goal:?}:");
    for step in &stuck.steps {
        println!("  {step:?}");
    }
}

/// The detail is a second line: nothing breaks while the first one stands.
fn is_covered(scenario: Scenario, mutation: Mutation) {
    let outcome = recovery::check(&scenario.without(mutation));
    assert!(
        outcome.broken.is_empty(),
        "{mutation:?} matters: {:#?}",
        outcome.broken
    );
    assert!(
        outcome.stuck.is_empty(),
        "{mutation:?} matters: {:#?}",
        outcome.stuck
    );
}

#[test]
fn appends_without_the_append_lock_collide() {
    breaks(
        scenarios::appends_to_one_session(),
        Mutation::AppendsWithoutLock,
        GAPLESS,
    );
}

#[test]
fn an_append_that_reads_before_its_lock_wakes_nobody() {
    breaks(
        scenarios::appends_to_one_session(),
        Mutation::AppendReadsBeforeLock,
        HAS_TOKEN,
    );
}

#[test]
fn an_old_snapshot_that_decides_about_tokens_wakes_nobody() {
    breaks(
        scenarios::old_snapshots(),
        Mutation::NoTokenAtRepeatableRead,
        HAS_TOKEN,
    );
}

#[test]
fn an_old_snapshot_that_is_not_refused_repeats_a_seq() {
    breaks(
        scenarios::old_snapshots(),
        Mutation::NoStaleSnapshotCheck,
        GAPLESS,
    );
}

#[test]
fn a_lane_that_goes_idle_without_the_append_lock_forgets_an_event() {
    breaks(
        scenarios::appends_to_one_session(),
        Mutation::IdleWithoutLock,
        HAS_TOKEN,
    );
}

#[test]
fn a_look_at_the_log_before_the_append_lock_forgets_an_event() {
    breaks(
        scenarios::appends_to_one_session(),
        Mutation::LookBeforeLock,
        HAS_TOKEN,
    );
}

#[test]
fn progress_of_the_walks_snapshot_is_delivered_twice() {
    breaks(
        scenarios::appends_to_two_sessions(),
        Mutation::ProgressOfWalkSnapshot,
        NO_DUPLICATE,
    );
}

#[test]
fn progress_of_the_walks_snapshot_is_not_settled() {
    breaks(
        scenarios::appends_to_two_sessions(),
        Mutation::ProgressOfWalkSnapshot,
        NOT_ROBBED,
    );
}

/// It forgets nothing: progress is read after the lane's lock. But what replaces a token that is gone
/// is a token more.
#[test]
fn a_claim_that_takes_tokens_that_are_gone_multiplies_them() {
    let scenario = scenarios::bulk_appends().with(|it| {
        it.budget.failures = 0;
        it.rollbacks = false;
    });
    breaks(scenario, Mutation::GoneTokensAreTaken, FEW_TOKENS);
}

#[test]
fn a_held_lane_that_is_walked_is_claimed_again() {
    breaks(
        scenarios::old_snapshots(),
        Mutation::HeldLanesAreWalked,
        ONE_HOLDER,
    );
}

#[test]
fn a_claim_that_deletes_its_token_leaves_an_event_without_one() {
    breaks(scenarios::killed(), Mutation::ClaimDeletesToken, HAS_TOKEN);
}

#[test]
fn claims_that_are_not_recorded_leave_lanes_with_in_flight_records_to_the_time_out() {
    strands(
        scenarios::killed(),
        Mutation::ClaimsAreNotRecorded,
        Goal::Delivered(0),
    );
}

#[test]
fn survivors_that_insert_no_ready_entry_leave_lanes_with_in_flight_records_to_the_time_out() {
    strands(
        scenarios::killed(),
        Mutation::NoTokenAtTakeover,
        Goal::Delivered(0),
    );
}

#[test]
fn survivors_that_forget_what_is_not_released_yet_leave_lanes_with_in_flight_records_to_the_time_out()
 {
    strands(
        scenarios::killed(),
        Mutation::TakeoverForgetsBusyLanes,
        Goal::Delivered(0),
    );
}

#[test]
fn survivors_that_do_not_try_the_lanes_lock_rob_its_holder() {
    breaks(
        scenarios::killed(),
        Mutation::TakeoverWithoutLaneLock,
        NOT_ROBBED,
    );
}

#[test]
fn survivors_that_charge_lost_connections_charge_the_living() {
    breaks(
        scenarios::cut(),
        Mutation::TakeoverChargesTheLiving,
        CHARGED,
    );
}

#[test]
fn survivors_that_ignore_the_epoch_charge_the_servers_death() {
    breaks(
        scenarios::failed_over(),
        Mutation::TakeoverIgnoresEpoch,
        CHARGED,
    );
}

#[test]
fn a_lane_that_is_released_with_its_in_flight_record_waits_for_the_time_out() {
    strands(
        scenarios::held_and_handed_on(),
        Mutation::ReleaseKeepsMark,
        Goal::Delivered(0),
    );
}

#[test]
fn a_lock_released_before_the_commit_delivers_twice() {
    breaks(
        scenarios::appends_to_two_sessions(),
        Mutation::UnlockBeforeCommit,
        NO_DUPLICATE,
    );
}

#[test]
fn events_settled_before_they_are_delivered_are_passed_by_the_cursor() {
    breaks(scenarios::killed(), Mutation::SettleBeforeDelivery, CURSOR);
}

#[test]
fn a_successor_that_does_not_wait_for_the_outcome_overtakes() {
    breaks(
        scenarios::exhausted_and_killed(),
        Mutation::SuccessorBeforeOutcome,
        IN_ORDER,
    );
}

#[test]
fn a_dead_letter_that_is_requeued_under_its_lanes_holder_robs_it() {
    breaks(
        scenarios::requeued(),
        Mutation::RequeueWithoutLaneLock,
        NOT_ROBBED,
    );
}

#[test]
fn a_dead_letter_that_is_requeued_without_a_ready_entry_waits_for_another_event() {
    breaks(
        scenarios::requeued(),
        Mutation::RequeueInsertsNoToken,
        HAS_TOKEN,
    );
}

#[test]
fn a_successor_that_does_not_wait_for_the_letters_settlement_overtakes() {
    breaks(
        scenarios::requeued_and_killed(),
        Mutation::SuccessorBeforeLetter,
        LETTERS,
    );
}

#[test]
fn a_dead_letter_that_fails_again_and_is_not_flushed_may_come_behind_its_successor() {
    breaks(
        scenarios::requeued_and_failed_over(),
        Mutation::OutcomesAreNotFlushed,
        LETTERS,
    );
}

#[test]
fn without_a_full_walk_a_late_commit_is_never_found() {
    strands(
        scenarios::bounds(),
        Mutation::NoFullWalk,
        Goal::Delivered(0),
    );
}

#[test]
fn without_polls_an_idle_worker_sleeps_on() {
    strands(scenarios::doorbell(), Mutation::NoPoll, Goal::Delivered(0));
}

/// Nothing fails and nothing is busy.
fn plain_doorbell(transactions: &[Transaction]) -> Scenario {
    scenarios::doorbell().with(|it| {
        it.transactions = transactions.to_vec();
        it.budget.failures = 0;
        it.gives_up = false;
    })
}

#[test]
fn without_polls_an_append_between_settlement_and_unlock_is_missed() {
    let scenario = plain_doorbell(&[committed(&[0]), committed(&[0])]);
    strands(scenario, Mutation::NoPoll, Goal::Quiet);
}

#[test]
fn without_polls_an_append_to_lanes_that_nobody_holds_is_noticed() {
    let scenario = plain_doorbell(&[committed(&[0]), committed(&[1])]);
    let outcome = recovery::check(&scenario.without(Mutation::NoPoll));
    assert!(outcome.broken.is_empty(), "{:#?}", outcome.broken);
    let quiet = outcome.stuck.iter().all(|it| it.goal != Goal::Quiet);
    assert!(quiet, "{:#?}", outcome.stuck);
}

#[test]
fn without_polls_and_the_look_after_the_doorbell_it_is_not() {
    let scenario = plain_doorbell(&[committed(&[0]), committed(&[1])]);
    strands(
        scenario.without(Mutation::NoPoll),
        Mutation::NoLookAfterGrant,
        Goal::Quiet,
    );
}

#[test]
fn without_notifications_everything_comes_by_polls() {
    is_covered(scenarios::doorbell(), Mutation::NoNotifications);
}

#[test]
fn without_a_look_after_the_doorbell_polls_find_what_was_committed_meanwhile() {
    is_covered(scenarios::doorbell(), Mutation::NoLookAfterGrant);
}

#[test]
fn a_settlement_over_another_connection_is_one_without_the_lock() {
    breaks(
        scenarios::trust_broken(),
        Mutation::SettleElsewhere,
        UNDER_LOCK,
    );
}

/// The compare-and-set is the second line behind the lane's lock: it is seen where the first fails.
#[test]
fn behind_a_lock_that_failed_the_compare_and_set_keeps_old_versions_out() {
    let outcome = recovery::check(&scenarios::trust_broken().without(Mutation::SettleElsewhere));
    for broken in &outcome.broken {
        let first_line = [UNDER_LOCK, ONE_HOLDER, CONTIGUOUS].contains(&broken.property);
        assert!(first_line || broken.property == NOT_ROBBED, "{broken:#?}");
    }
}

#[test]
fn a_plain_insert_takes_an_old_version() {
    let scenario = scenarios::trust_broken().without(Mutation::SettleElsewhere);
    breaks(scenario, Mutation::PlainInsert, NEWEST_VERSION);
}

#[test]
fn an_outcome_that_is_not_flushed_may_be_lost_with_the_server() {
    let scenario = scenarios::exhausted_and_failed_over();
    breaks(scenario, Mutation::OutcomesAreNotFlushed, OUTCOMES_STAY);
}

#[test]
fn and_its_event_may_be_accepted_behind_its_successor() {
    let scenario = scenarios::exhausted_and_failed_over();
    breaks(scenario, Mutation::OutcomesAreNotFlushed, IN_ORDER);
}

#[test]
fn a_message_that_counts_as_acknowledged_when_it_is_sent_is_lost() {
    breaks(
        scenarios::acknowledged(),
        Mutation::SentCountsAsAcknowledged,
        CURSOR,
    );
}

#[test]
fn a_lane_that_waits_without_a_token_is_forgotten() {
    breaks(
        scenarios::acknowledged(),
        Mutation::WaitInsertsNoToken,
        HAS_TOKEN,
    );
}

#[test]
fn an_acknowledgement_without_a_token_waits_for_the_time_out() {
    strands(
        scenarios::acknowledged(),
        Mutation::AckInsertsNoToken,
        Goal::Delivered(0),
    );
}

#[test]
fn a_message_that_is_marked_before_it_is_sent_is_not_sent_after_a_crash() {
    strands(
        scenarios::acknowledged_and_killed(),
        Mutation::MarkedBeforeSent,
        Goal::Delivered(0),
    );
}

#[test]
fn an_append_that_does_not_see_the_close_is_taken() {
    breaks(scenarios::closed(), Mutation::CloseNotSeen, CLOSED);
}

#[test]
fn a_close_without_outcomes_loses_events() {
    breaks(scenarios::closed(), Mutation::PassedWithoutOutcome, CURSOR);
}

#[test]
fn a_closed_lane_that_keeps_its_version_goes_back() {
    breaks(
        scenarios::closed(),
        Mutation::ClosedLaneKeepsItsVersion,
        NO_REVERT,
    );
}

#[test]
fn an_interrupt_that_wakes_nobody_forgets_a_lane_whose_wait_it_ended() {
    breaks(
        scenarios::acknowledged_and_interrupted(),
        Mutation::PassedLaneNotWoken,
        HAS_TOKEN,
    );
}

#[test]
fn a_barrier_that_does_not_wait_supersedes_what_was_accepted() {
    breaks(
        scenarios::held_back(),
        Mutation::BarrierDoesNotWait,
        BARRIER,
    );
}
