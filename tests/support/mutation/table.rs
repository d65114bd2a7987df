//! All mutations, by invariant. docs/testing.md has the same table.

use lanekeeper_fault::Mutation;

use super::Change::{Rust, Sql};
use super::Row;

/// The look at the log of a settlement that would let its lane go idle.
const LOOK: &str = "EXISTS (
            SELECT FROM lanekeeper.recent_event AS e
            WHERE e.session_id = p_sessions[i] AND e.seq > p_cursors[i] AND e.day >= coalesce(v_day, p_days[i]))";
/// The same where more is to be said of some lane of the group.
const LOOK_OF_ANY: &str = "v_requeued[n] OR EXISTS (
                                   SELECT FROM lanekeeper.recent_event AS e
                                   WHERE e.session_id = p_sessions[v_ords[n]] AND e.seq > p_cursors[v_ords[n]]
                                     AND e.day >= p_days[v_ords[n]])";
/// Nothing is its usual case.
const ALL_BY_KEY: (&str, &str) = (
    "AND cardinality(p_progress_ctids) > 0 AND cardinality(p_sents) = 0 THEN",
    "AND false THEN",
);

pub const ROWS: &[Row] = &[
    Row {
        name: "AppendLockShared",
        invariant: 1,
        without: "an append takes its session's lock for itself",
        change: Sql(
            "enqueue",
            &[(
                "WHEN pg_advisory_xact_lock(lanekeeper.append_lock(",
                "WHEN pg_advisory_xact_lock_shared(lanekeeper.append_lock(",
            )],
        ),
        test: "engine::appending::a_producer_waits_for_another_of_the_same_session",
    },
    Row {
        name: "BulkAppendLockShared",
        invariant: 1,
        without: "a bulk append takes its sessions' locks for itself",
        change: Sql(
            "enqueue_many",
            &[(
                "PERFORM pg_advisory_xact_lock(lanekeeper.append_lock(",
                "PERFORM pg_advisory_xact_lock_shared(lanekeeper.append_lock(",
            )],
        ),
        test: "engine::appending::a_producer_waits_for_another_of_the_same_session",
    },
    Row {
        name: "StaleSnapshotTaken",
        invariant: 1,
        without: "a snapshot that is older than the append lock is refused",
        change: Sql(
            "enqueue",
            &[(
                "PERFORM lanekeeper.refuse_stale_snapshot(v_session_id, seq, v_day, v_today);",
                "",
            )],
        ),
        test: "engine::appending::a_stale_snapshot_is_a_serialization_failure_and_never_a_gap_or_a_duplicate",
    },
    Row {
        name: "DayGoesBeforeItsCopies",
        invariant: 1,
        without: "a day goes when every snapshot sees what was kept of it",
        change: Sql(
            "drop_event_partition",
            &[("OR v_tails > 0 OR v_kept > 0 THEN", "OR v_tails > 0 THEN")],
        ),
        test: "aggregates::kept::a_day_stays_until_every_snapshot_of_a_transaction_sees_the_copies",
    },
    Row {
        name: "SnapshotOfAnotherFold",
        invariant: 1,
        without: "a fold begins with a snapshot of its own schema version",
        change: Sql(
            "find_snapshot",
            &[(
                "AND a.schema_version = find_snapshot.schema_version",
                "AND find_snapshot.schema_version IS NOT NULL",
            )],
        ),
        test: "aggregates::snapshots::a_changed_fold_finds_no_snapshot_of_the_one_before_and_both_run_side_by_side",
    },
    Row {
        name: "TerminalEventLeavesOpen",
        invariant: 1,
        without: "an event of a terminal type closes its session",
        change: Sql(
            "enqueue",
            &[("IF enqueue.event_type = ANY (v_terminal) THEN", "IF false THEN")],
        ),
        test: "engine::ending::a_terminal_event_is_the_last_of_its_session_whichever_way_it_is_appended",
    },
    Row {
        name: "BulkTerminalEventLeavesOpen",
        invariant: 1,
        without: "and so does one of a bulk append",
        change: Sql(
            "enqueue_many",
            &[("IF v_terminal IS NOT NULL THEN", "IF false THEN")],
        ),
        test: "engine::ending::an_array_with_anything_behind_a_terminal_event_appends_nothing",
    },
    Row {
        name: "LaneLockNotTaken",
        invariant: 2,
        without: "a claim takes the locks of its lanes",
        change: Sql(
            "claim",
            &[(
                "WHERE pg_try_advisory_lock(lanekeeper.lane_lock(w.lane_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))",
                "WHERE true",
            )],
        ),
        test: "engine::ordering::two_workers_deliver_every_session_in_order_and_once",
    },
    Row {
        name: "HeldLanesWalked",
        invariant: 2,
        without: "a claim passes over what its worker holds",
        change: Sql(
            "claim",
            &[(
                "AND h.lanes[width_bucket(r.lane_id, h.lanes)] IS DISTINCT FROM r.lane_id",
                "",
            )],
        ),
        test: "engine::failures::a_spare_ready_entry_of_a_lane_with_a_long_delivery_does_not_claim_it_again",
    },
    Row {
        name: "ProgressReadBeforeLock",
        invariant: 2,
        without: "progress is read in a statement after the lane's lock",
        change: Sql(
            "claim",
            &[
                (
                    "    v_kept        int[];\n",
                    "    v_kept        int[];
                     v_read        lanekeeper.progress[];
                     v_all_read    lanekeeper.progress[] := '{}';\n",
                ),
                (
                    "array_agg(t.ready_ctid), array_agg(t.id), array_agg(t.day),",
                    "array_agg(t.ready_ctid), array_agg(t.id), array_agg(t.read), array_agg(t.day),",
                ),
                (
                    "v_ready_ctids, v_ready_ids, v_ready_days,",
                    "v_ready_ctids, v_ready_ids, v_read, v_ready_days,",
                ),
                ("w.ready_ctid, w.id, w.due_at,", "w.ready_ctid, w.id, w.read, w.due_at,"),
                (
                    "r.ctid AS ready_ctid, r.id, r.due_at,",
                    "r.ctid AS ready_ctid, r.id, (
                         SELECT p FROM lanekeeper.progress AS p WHERE p.lane_id = r.lane_id
                         ORDER BY p.version DESC LIMIT 1) AS read, r.due_at,",
                ),
                (
                    "lane_ids := lane_ids || v_lane_ids;",
                    "lane_ids := lane_ids || v_lane_ids; v_all_read := v_all_read || v_read;",
                ),
                (
                    "array_agg(p.ctid), count(*), sum(hashint8extended(p.lane_id, 0)),",
                    "v_all, count(*), sum(hashint8extended(p.lane_id, 0)),",
                ),
                (
                    "FROM lanekeeper.progress AS p WHERE p.ctid = ANY (v_all);",
                    "FROM unnest(v_all_read) AS p;",
                ),
            ],
        ),
        test: "statements::entries::progress_is_read_when_the_lane_is_locked",
    },
    Row {
        name: "MovedWhileHeld",
        invariant: 2,
        without: "a lane that is held stays on its host",
        change: Sql(
            "finish_moving",
            &[(
                "IF NOT v_locked OR NOT pg_try_advisory_xact_lock(lanekeeper.append_lock(",
                "IF NOT pg_try_advisory_xact_lock(lanekeeper.append_lock(",
            )],
        ),
        test: "inbound::hosts::a_lane_that_is_being_delivered_is_moved_when_its_holder_lets_it_go",
    },
    Row {
        name: "ReplayOfAHeldLane",
        invariant: 2,
        without: "a replay begins where nobody holds the lane",
        change: Sql(
            "feed_replays",
            &[(
                "IF pg_try_advisory_xact_lock(lanekeeper.lane_lock(v_lane.lane_id)) THEN
                    v_begun",
                "IF true THEN
                    v_begun",
            )],
        ),
        test: "engine::replaying::ends::a_lane_that_is_held_when_it_starts_has_its_turn_behind_the_delivery_under_way",
    },
    Row {
        name: "BackoffWhileHeld",
        invariant: 3,
        without: "a lane is let go while its head is in backoff",
        change: Rust(Mutation::BackoffWhileHeld),
        test: "engine::poison::a_poisoned_session_and_a_thousand_blocked_lanes_cost_the_others_nothing",
    },
    Row {
        name: "SentPastAFailure",
        invariant: 3,
        without: "what is behind an event that failed inside the window is not sent before it",
        change: Rust(Mutation::SentPastAFailure),
        test: "engine::batches::an_event_that_fails_ahead_of_the_head_holds_back_what_is_behind_it",
    },
    Row {
        name: "RecentPartNotChecked",
        invariant: 4,
        without: "a fetch of the recent part is refused where a lane begins before it",
        change: Sql("require_recent", &[("IF NOT EXISTS", "IF false AND NOT EXISTS")]),
        test: "statements::recent::a_fetch_sees_what_is_before_the_recent_part_also_when_that_moves",
    },
    Row {
        name: "DayOfBusyLanes",
        invariant: 4,
        without: "a token has the day of its event only where the lane was idle",
        change: Sql(
            "enqueue",
            &[("CASE WHEN p.settled >= enqueue.seq - 1 THEN v_day END", "v_day")],
        ),
        test: "statements::recent::a_lane_with_an_old_backlog_is_claimed_from_its_own_day",
    },
    Row {
        name: "CursorBeforeDelivery",
        invariant: 4,
        without: "the cursor moves after the delivery",
        change: Rust(Mutation::CursorBeforeDelivery),
        test: "engine::failures::a_cut_lane_connection_cancels_its_deliveries_and_settles_nothing",
    },
    Row {
        name: "BatchPassedWhole",
        invariant: 4,
        without: "of a batch, the cursor passes what its destination accepted",
        change: Rust(Mutation::BatchPassedWhole),
        test: "engine::batches::of_a_batch_that_fails_in_its_middle_the_accepted_prefix_is_settled_and_one_attempt_counted",
    },
    Row {
        name: "OutcomeNotWritten",
        invariant: 4,
        without: "a dropped event has an outcome",
        change: Sql(
            "settle",
            &[(
                "d.error
        FROM due AS d",
                "d.error
        FROM due AS d WHERE d.kind <> 'dropped'",
            )],
        ),
        test: "engine::exhaustion::a_dropped_event_leaves_an_outcome_and_no_dead_letter",
    },
    Row {
        name: "ChargedForALostConnection",
        invariant: 4,
        without: "nothing is charged while its worker lives: the outcome would tell of deaths that were none",
        change: Sql(
            "take_over",
            &[("v_charge := false;", "v_charge := true;")],
        ),
        test: "statements::charges::a_worker_that_lives_wakes_its_own_lanes_and_charges_nothing",
    },
    Row {
        name: "FrozenPeerCharged",
        invariant: 4,
        without: "nor while it is frozen",
        change: Sql(
            "take_over",
            &[(
                "v_charge := pg_try_advisory_xact_lock(lanekeeper.worker_lock(v_worker.worker_id));",
                "v_charge := true;",
            )],
        ),
        test: "statements::charges::a_frozen_workers_lanes_are_woken_and_nothing_is_charged",
    },
    Row {
        name: "ChargedForARestart",
        invariant: 4,
        without: "nor where the server died",
        change: Sql(
            "take_over",
            &[(
                "v_charge := v_charge AND v_worker.opened_at > pg_postmaster_start_time()
                AND coalesce(v_worker.same_epoch, false);",
                "",
            )],
        ),
        test: "process::restart::workers_recover_from_immediate_restarts_of_postgres_and_are_not_charged_for_them",
    },
    Row {
        name: "ExpiredWithoutOutcome",
        invariant: 4,
        without: "what expires with its session has an outcome",
        change: Sql(
            "expire_lane",
            &[(
                "VALUES (p_lane_id, first_seq, nullif(p_seq, first_seq), p_kind, p_reason)",
                "SELECT p_lane_id, first_seq, nullif(p_seq, first_seq), p_kind, p_reason WHERE false",
            )],
        ),
        test: "engine::closing::a_closed_session_takes_no_event_and_what_is_left_of_it_expires",
    },
    Row {
        name: "RangeWithoutItsEnd",
        invariant: 4,
        without: "what a lane leaves out has an outcome up to its last event",
        change: Sql(
            "settle",
            &[("THEN nullif(d.replaced_by, d.seq) END", "THEN NULL::bigint END")],
        ),
        test: "engine::surplus::what_is_too_old_when_its_turn_comes_expires_with_one_outcome",
    },
    Row {
        name: "CloseNotSeen",
        invariant: 4,
        without: "an append that waited for a close sees it: its event would be delivered to a closed session",
        change: Sql(
            "enqueue",
            &[("EXISTS (SELECT FROM lanekeeper.session AS s WHERE s.ctid = v_session_ctid)", "true")],
        ),
        test: "engine::closing::an_append_that_waited_for_a_close_is_refused_in_every_isolation_level",
    },
    Row {
        name: "BulkCloseNotSeen",
        invariant: 4,
        without: "so does a bulk append",
        change: Sql(
            "enqueue_many",
            &[("(v_stale OR NOT v_unchanged)", "v_stale")],
        ),
        test: "engine::closing::an_append_that_waited_for_a_close_is_refused_in_every_isolation_level",
    },
    Row {
        name: "CloseNotSeenInOldSnapshots",
        invariant: 4,
        without: "and one with a snapshot from before it",
        change: Sql(
            "refuse_stale_snapshot",
            &[("VALUES (p_session_id) ON CONFLICT DO NOTHING;", "SELECT p_session_id WHERE false;")],
        ),
        test: "engine::closing::an_append_that_waited_for_a_close_is_refused_in_every_isolation_level",
    },
    Row {
        name: "FailedMessageKept",
        invariant: 4,
        without: "a message that failed can not be acknowledged: its outcome says that it failed",
        change: Sql(
            "forget_sent",
            &[("AND x.acked_at IS NULL", "AND x.acked_at IS NULL AND false")],
        ),
        test: "engine::acknowledging::an_event_that_is_not_acknowledged_is_sent_again_and_is_dead_lettered_in_the_end",
    },
    Row {
        name: "CancelledWithoutMark",
        invariant: 4,
        without: "a cancelled event is marked: whoever fetches it passes it",
        change: Sql(
            "cancel",
            &[(
                "AND NOT lanekeeper.is_cancelled(e.headers);",
                "AND false;",
            )],
        ),
        test: "engine::cancelling::a_waiting_message_is_passed_with_its_outcome_when_its_turn_comes",
    },
    Row {
        name: "InterruptUnparks",
        invariant: 4,
        without: "a parked lane stays parked, whatever interrupts its session",
        change: Sql(
            "expire_lane",
            &[(
                "IF p_kind = 'expired' THEN
        v_progress.parked_at",
                "IF true THEN
        v_progress.parked_at",
            )],
        ),
        test: "engine::superseding::an_interrupt_ends_a_retry_and_a_pause_leaves_it_the_first_and_a_parked_lane_stays_parked",
    },
    Row {
        name: "DayOfAReplayDropped",
        invariant: 4,
        without: "a day stays as long as a replay needs it",
        change: Sql(
            "day_is_needed",
            &[("WHERE r.state IN ('waiting', 'active')", "WHERE false")],
        ),
        test: "engine::replaying::ends::a_day_stays_while_a_replay_needs_it",
    },
    Row {
        name: "RestoredDayOfAReplayDropped",
        invariant: 4,
        without: "a restored day stays as long as a replay needs it",
        change: Sql(
            "drop_restored_days",
            &[("WHERE r.state IN ('waiting', 'active'))", "WHERE false)")],
        ),
        test: "housekeeping::restoring::kept::a_restored_day_goes_after_its_time_unless_a_replay_needs_it",
    },
    Row {
        name: "RestoredEventWithoutDeadLetter",
        invariant: 4,
        without: "an exhausted event of a restored day is copied to the dead letters",
        change: Sql(
            "dead_letter_restored",
            &[("WHERE o.kind = 'dead_lettered' AND p_hit[o.ord]", "WHERE false")],
        ),
        test: "housekeeping::restoring::replayed::a_restored_event_that_is_refused_becomes_a_dead_letter",
    },
    Row {
        name: "RestoredLanesWait",
        invariant: 4,
        without: "a lane that a restored session gets back begins behind what is gone from the log",
        change: Sql(
            "restore_lanes",
            &[("WHERE p.lane_id = a.lane_id AND p.version = 0 AND p.cursor < a.newest", "WHERE false")],
        ),
        test: "housekeeping::restoring::replayed::sessions_that_became_dormant_have_their_lanes_again_and_are_replayed",
    },
    Row {
        name: "ClosedLaneKeepsItsVersion",
        invariant: 5,
        without: "a holder settles nothing of a lane that was closed under it",
        change: Sql(
            "expire_lane",
            &[("SET version = p.version + 16, step = 0,", "SET version = p.version, step = p.step,")],
        ),
        test: "engine::closing::without_a_notification_the_holders_settlement_is_refused_and_the_rest_is_not_delivered",
    },
    Row {
        name: "InterruptTakesHeldLanes",
        invariant: 5,
        without: "an interrupt leaves held lanes to workers: its transaction may stay open",
        change: Sql(
            "interrupt",
            &[(
                "NOT v_is_holder AND pg_try_advisory_xact_lock(lanekeeper.lane_lock(l.lane_id)) AS locked",
                "true AS locked",
            )],
        ),
        test: "engine::interrupting::a_holder_settles_while_the_interrupt_of_its_session_is_not_committed",
    },
    Row {
        name: "BarrierCutsIn",
        invariant: 5,
        without: "what waits before a barrier is passed when its holder has let go",
        change: Sql(
            "finish_closing",
            &[(
                "IF NOT v_lane.cuts AND p_lane_id IS NULL AND",
                "IF false AND",
            )],
        ),
        test: "engine::interrupting::a_barrier_lets_the_delivery_end_that_is_under_way_and_is_the_next_event",
    },
    Row {
        name: "SettledWithoutCompare",
        invariant: 5,
        without: "a settlement asks for the version that was read",
        change: Sql(
            "settle",
            &[(
                "WHERE p_changed[i] AND p.lane_id = p_lanes[i] AND p.version + p.step = p_versions[i]
              AND p.version BETWEEN p_versions[i] - 15 AND p_versions[i]",
                "WHERE p_changed[i] AND p.lane_id = p_lanes[i]",
            )],
        ),
        test: "engine::failures::a_stale_version_settles_nothing",
    },
    Row {
        name: "ReplayMovedWithoutCompare",
        invariant: 5,
        without: "a replay moves with a settlement that hit, and with no other",
        change: Sql(
            "settle_replayed",
            &[("CONTINUE WHEN NOT p_hit[p_ords[i]] OR p_kinds[i]", "CONTINUE WHEN p_kinds[i]")],
        ),
        test: "engine::replaying::ends::a_holder_that_lost_its_lane_moves_no_replay",
    },
    Row {
        name: "FinishedWithoutCompare",
        invariant: 5,
        without: "where progress is at its place, too",
        change: Sql("finish", &[(" AND p.version + p.step = p_versions[i]\n", "\n")]),
        test: "statements::finish::a_stale_version_at_the_right_ctid_settles_nothing",
    },
    Row {
        name: "SettledElsewhere",
        invariant: 5,
        without: "a settlement goes over the connection that holds the lock",
        change: Rust(Mutation::SettledElsewhere),
        test: "engine::claims::what_a_hanging_connection_held_is_settled_over_no_other_and_delivered_again",
    },
    Row {
        name: "TrustWithoutEnd",
        invariant: 5,
        without: "trust ends with its window",
        change: Rust(Mutation::TrustWithoutEnd),
        test: "engine::claims::what_a_hanging_connection_held_is_settled_over_no_other_and_delivered_again",
    },
    Row {
        name: "EffectCommittedFirst",
        invariant: 5,
        without: "a handler's effect commits with its settlement",
        change: Rust(Mutation::EffectCommittedFirst),
        test: "registry::crash_points::at_every_place_of_a_handler_a_worker_may_end_and_each_event_is_entered_once",
    },
    Row {
        name: "PermitNotAsked",
        invariant: 5,
        without: "a projection's transaction settles with a permit of the lane's holder",
        change: Sql(
            "settle_projection",
            &[("sha256(p_permit) IS DISTINCT FROM sha256(v_fitting)", "false")],
        ),
        test: "projections::hostile::a_permit_is_good_for_one_role_and_one_settlement",
    },
    Row {
        name: "SwitchedWhileFed",
        invariant: 4,
        without: "a projection is not fed while it is switched to its rebuilt tables",
        change: Sql(
            "begin_projection",
            &[("PERFORM pg_advisory_xact_lock_shared(lanekeeper.projection_lock(p_subscription_id));", "")],
        ),
        test: "projections::rebuilt::a_transaction_that_feeds_the_projection_is_waited_for_by_the_switch",
    },
    Row {
        name: "TakenOverWhileHeld",
        invariant: 5,
        without: "survivors take the lock of a lane before they change its version",
        change: Sql(
            "take_over",
            &[(
                "pg_try_advisory_xact_lock(lanekeeper.lane_lock(h.lane_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))) AS locked",
                "true AS locked",
            )],
        ),
        test: "statements::charges::a_lane_that_was_claimed_before_the_takeover_is_its_holders",
    },
    Row {
        name: "BackoffNotLookedAt",
        invariant: 6,
        without: "a claim asks Postgres' clock whether the head is due",
        change: Sql(
            "claim",
            &[(
                "array_agg(CASE WHEN p.retry_at > v_now THEN",
                "array_agg(CASE WHEN false THEN",
            )],
        ),
        test: "engine::claims::a_spare_ready_entry_of_a_head_in_backoff_costs_no_attempt",
    },
    Row {
        name: "HeartbeatsNeverExpire",
        invariant: 6,
        without: "a heartbeat expires by Postgres' clock",
        change: Sql(
            "terminate_frozen",
            &[(
                "WHERE w.beat_at < clock_timestamp() - p_after_ms * interval '1 ms'",
                "WHERE false",
            )],
        ),
        test: "engine::failures::a_worker_without_heartbeat_is_ended_by_a_peer",
    },
    Row {
        name: "PooledConnectionHeld",
        invariant: 7,
        without: "no pooled connection is held during a delivery",
        change: Rust(Mutation::PooledConnectionHeld),
        test: "engine::claims::while_deliveries_run_no_transaction_and_no_pooled_connection_is_held",
    },
    Row {
        name: "TransactionHeld",
        invariant: 7,
        without: "no transaction is open during a delivery",
        change: Rust(Mutation::TransactionHeld),
        test: "engine::claims::while_deliveries_run_no_transaction_and_no_pooled_connection_is_held",
    },
    Row {
        name: "NoPolls",
        invariant: 8,
        without: "an idle connection looks by itself",
        change: Rust(Mutation::NoPolls),
        test: "engine::waking::without_notifications_everything_works_at_the_poll_floor",
    },
    Row {
        name: "DoorbellKept",
        invariant: 8,
        without: "a worker gives up the doorbell when it was told, or finds events anyway",
        change: Rust(Mutation::DoorbellKept),
        test: "engine::waking::a_notified_worker_releases_the_doorbell_until_its_quiet_period_has_passed",
    },
    Row {
        name: "DoorbellLeftBehind",
        invariant: 8,
        without: "who leaves the queue for the doorbell gives back what its session has",
        change: Rust(Mutation::DoorbellLeftBehind),
        test: "process::stopped_backends::a_doorbell_that_is_granted_while_its_wait_is_cancelled_is_released",
    },
    Row {
        name: "NobodyRings",
        invariant: 8,
        without: "a producer notifies while a worker waits for the doorbell",
        change: Sql("enqueue", &[("PERFORM pg_notify('lanekeeper', '');", "NULL;")]),
        test: "engine::waking::a_producer_notifies_only_while_a_worker_waits_for_the_doorbell",
    },
    Row {
        name: "FollowersNotWoken",
        invariant: 8,
        without: "an append to a followed stream notifies its followers",
        change: Sql(
            "enqueue",
            &[(
                "PERFORM lanekeeper.wake_followers(v_stream_id, ARRAY[v_session_id]);",
                "NULL;",
            )],
        ),
        test: "live::stream::a_follower_of_a_stream_gets_every_session_in_order_from_now_on",
    },
    Row {
        name: "EarlyTransactionsNotAwaited",
        invariant: 8,
        without: "followers scan once more when every transaction from before their registration is over",
        change: Sql(
            "follow_is_complete",
            &[(
                "IF v_barrier::text::bigint <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint THEN",
                "IF true THEN",
            )],
        ),
        test: "live::stream::a_transaction_that_began_before_the_first_follower_does_not_escape_it",
    },
    Row {
        name: "SilentAppendsForgotten",
        invariant: 8,
        without: "an append that does not notify leaves a row for followers",
        change: Sql(
            "wake_followers",
            &[(
                "FROM unnest(p_session_ids) AS u (session_id)",
                "FROM unnest(p_session_ids) AS u (session_id) WHERE false",
            )],
        ),
        test: "live::stream::an_append_that_does_not_notify_is_not_passed_by_the_cursor",
    },
    Row {
        name: "NoBound",
        invariant: 9,
        without: "a worker gives its walks the bounds that the ones before came to",
        change: Rust(Mutation::NoBound),
        test: "engine::bounds::deleted_ready_entries_that_a_snapshot_keeps_are_scanned_when_a_worker_starts_and_not_again",
    },
    Row {
        name: "ClaimsFromTheStart",
        invariant: 9,
        without: "a walk starts at its bound",
        change: Sql(
            "claim",
            &[("AND (r.due_at, r.id) > (v_first_at, v_first_id) ", "")],
        ),
        test: "statements::entries::a_scan_that_reached_its_limit_continues_after_the_last_entry_it_took",
    },
    Row {
        name: "TokensNotLookedAtAgain",
        invariant: 9,
        without: "a claim looks whether the token is still there: spare ones would multiply",
        change: Sql(
            "claim",
            &[(
                "IF v_left <> cardinality(lane_ids) OR ",
                "IF ",
            )],
        ),
        test: "statements::entries::a_ready_entry_that_was_replaced_during_the_scan_is_not_taken",
    },
    Row {
        name: "FutureTokensRead",
        invariant: 9,
        without: "the first due token is the first of its index",
        change: Sql(
            "claim",
            &[(
                "AND r.due_at <= v_now
                    ORDER BY r.due_at, r.id LIMIT 1;",
                "AND r.due_at <= v_now + interval '2 h'
                    ORDER BY r.due_at > v_now, r.due_at, r.id LIMIT 1;",
            )],
        ),
        test: "statements::loaded::hot_statements_cost_the_same_whatever_has_piled_up",
    },
    Row {
        name: "LookBackWithoutBound",
        invariant: 9,
        without: "the look back over filtered events is bounded",
        change: Sql("filter_look_back", &[("64", "1000000")]),
        test: "engine::filters::a_filtered_event_inserts_no_ready_entry_but_a_long_run_of_them_wakes_the_lane_once",
    },
    Row {
        name: "TurnNotAwaited",
        invariant: 10,
        without: "a lane waits for its turn",
        change: Rust(Mutation::TurnNotAwaited),
        test: "limit::shared::four_processes_share_one_limit_and_every_session_keeps_its_order",
    },
    Row {
        name: "WholeLimitAlone",
        invariant: 10,
        without: "a process on its own keeps to its share",
        change: Rust(Mutation::WholeLimitAlone),
        test: "limit::alone::without_a_configured_redis_each_worker_keeps_to_its_share_and_says_so",
    },
    Row {
        name: "AllowanceWithoutBound",
        invariant: 11,
        without: "large payloads wait for memory",
        change: Rust(Mutation::AllowanceWithoutBound),
        test: "engine::memory::no_more_large_payloads_are_in_memory_than_prefetch_bytes_allows",
    },
    Row {
        name: "BudgetWithoutBound",
        invariant: 11,
        without: "nothing is claimed while what was fetched ahead takes all its memory",
        change: Rust(Mutation::BudgetWithoutBound),
        test: "engine::memory::nothing_is_claimed_while_what_was_fetched_ahead_fills_its_bound",
    },
    Row {
        name: "CriticalEventsMerged",
        invariant: 12,
        without: "critical events are never merged",
        change: Rust(Mutation::CriticalEventsMerged),
        test: "engine::filters::bursty_events_are_coalesced_between_critical_ones_and_say_so",
    },
    Row {
        name: "SegmentsRunOn",
        invariant: 12,
        without: "a critical event ends the stretch in which others are merged",
        change: Rust(Mutation::SegmentsRunOn),
        test: "engine::filters::bursty_events_are_coalesced_between_critical_ones_and_say_so",
    },
    Row {
        name: "IdleWithoutAppendLock",
        invariant: 13,
        without: "a lane goes idle under its session's append lock",
        change: Sql(
            "finish",
            &[(
                "SELECT bool_and(pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(s.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))),",
                "SELECT true,",
            )],
        ),
        test: "engine::idle::a_lane_does_not_go_idle_while_an_append_is_uncommitted",
    },
    Row {
        name: "LookBeforeAppendLock",
        invariant: 13,
        without: "the look at the log comes in a statement after that lock",
        change: Sql(
            "finish",
            &[
                ("    v_all       boolean;\n", "    v_all       boolean;\n    v_looked    boolean[];\n"),
                (
                    "    INTO v_all, v_since\n    FROM unnest(p_sessions) AS s (session_id);",
                    "  , array_agg(EXISTS (
                         SELECT FROM lanekeeper.event AS e
                         WHERE e.session_id = s.session_id AND e.seq > p_cursors[s.i]) ORDER BY s.i)
                     INTO v_all, v_since, v_looked
                     FROM unnest(p_sessions) WITH ORDINALITY AS s (session_id, i);",
                ),
                (LOOK, "v_looked[i]"),
            ],
        ),
        test: "statements::entries::the_log_is_looked_at_when_the_append_lock_is_taken",
    },
    Row {
        name: "IdleWithoutALook",
        invariant: 13,
        without: "a lane goes idle only where the log has nothing newer",
        change: Sql("finish", &[(LOOK, "false")]),
        test: "engine::idle::a_committed_event_does_not_wait_for_an_append_that_is_open",
    },
    Row {
        name: "AnyIdleWithoutAppendLock",
        invariant: 13,
        without: "also where more is to be said of a lane of its group",
        change: Sql(
            "settle",
            &[(
                "THEN pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(p_sessions[i], (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))",
                "THEN true",
            )],
        ),
        test: "statements::finish::each_lane_of_a_group_comes_to_its_own",
    },
    Row {
        name: "AnyLookBeforeAppendLock",
        invariant: 13,
        without: "the look at the log comes after that lock there, too",
        change: Sql(
            "settle",
            &[
                ALL_BY_KEY,
                ("    v_hit    boolean[];\n", "    v_hit    boolean[];\n    v_more   boolean[];\n"),
                (
                    "    INTO v_locked, v_plain, v_old\n",
                    "  , array_agg(EXISTS (
                         SELECT FROM lanekeeper.event AS e
                         WHERE e.session_id = p_sessions[i] AND e.seq > p_cursors[i] AND e.day >= p_days[i]))
                     INTO v_locked, v_plain, v_old, v_more\n",
                ),
                (LOOK_OF_ANY, "v_requeued[n] OR v_more[v_ords[n]]"),
            ],
        ),
        test: "statements::entries::the_log_is_looked_at_when_the_append_lock_is_taken",
    },
    Row {
        name: "AnyIdleWithoutALook",
        invariant: 13,
        without: "and the log has nothing newer there, too",
        change: Sql("settle", &[ALL_BY_KEY, (LOOK_OF_ANY, "v_requeued[n]")]),
        test: "statements::finish::each_lane_of_a_group_comes_to_its_own",
    },
    Row {
        name: "AnyOldBacklogForgotten",
        invariant: 13,
        without: "of lanes with an old backlog the whole log is asked",
        change: Sql("settle", &[("IF v_old THEN", "IF false THEN")]),
        test: "statements::recent::a_lane_is_not_idle_while_it_has_events_from_before_the_recent_part",
    },
    Row {
        name: "OldBacklogForgotten",
        invariant: 13,
        without: "where a lane's day is before the recent part, the whole log is asked",
        change: Sql("finish", &[("\n          AND coalesce(v_day, p_days[i]) >= v_since", "")]),
        test: "statements::recent::a_lane_is_not_idle_while_it_has_events_from_before_the_recent_part",
    },
    Row {
        name: "NoLookBehind",
        invariant: 13,
        without: "a worker looks behind the bounds of its walks",
        change: Rust(Mutation::NoLookBehind),
        test: "engine::waking::a_ready_entry_whose_producer_committed_late_is_found_before_the_scan_start",
    },
    Row {
        name: "OpenTransactionsForgotten",
        invariant: 13,
        without: "looks behind them start under what an open transaction may yet insert",
        change: Rust(Mutation::OpenTransactionsForgotten),
        test: "engine::waking::a_ready_entry_whose_producer_committed_late_is_found_before_the_scan_start",
    },
    Row {
        name: "SurvivorsWakeNobody",
        invariant: 13,
        without: "survivors insert tokens for what a dead worker held",
        change: Sql(
            "take_over",
            &[(
                "JOIN lanekeeper.lane AS l ON l.lane_id = u.lane_id;",
                "JOIN lanekeeper.lane AS l ON l.lane_id = u.lane_id AND false;",
            )],
        ),
        test: "engine::failures::survivors_deliver_what_a_dead_worker_held",
    },
    Row {
        name: "DeathsNotCounted",
        invariant: 13,
        without: "a head is charged for the worker that died of it: else it would kill for ever",
        change: Sql(
            "take_over",
            &[(
                "h.attempts, h.crashes + 1, h.retry_at",
                "h.attempts, h.crashes, h.retry_at",
            )],
        ),
        test: "statements::charges::any_number_of_deaths_among_others_makes_a_head_suspected_poison_and_no_more",
    },
    Row {
        name: "DyingWorkerTakesOver",
        invariant: 13,
        without: "what a dying worker asked for last does not hide its death",
        change: Sql(
            "take_over",
            &[("WHERE c.connection_id <> ALL (p_own_live)", "")],
        ),
        test: "statements::charges::the_last_takeover_of_a_dying_worker_does_not_hide_its_death",
    },
    Row {
        name: "ClosedLaneNotWoken",
        invariant: 13,
        without: "a lane that was closed under its holder gets a ready entry",
        change: Sql(
            "finish_closing",
            &[("WHERE l.lane_id = v_lane.lane_id;", "WHERE false;")],
        ),
        test: "engine::closing::a_lane_goes_on_at_once_when_its_holder_has_not_heard_of_the_close_before_its_delivery_ends",
    },
    Row {
        name: "InterruptWakesNobody",
        invariant: 13,
        without: "an interrupt gives a lane that nobody holds a ready entry",
        change: Sql(
            "interrupt",
            &[(
                "IF NOT v_progress.parked AND NOT v_lane.removed THEN",
                "IF false THEN",
            )],
        ),
        test: "engine::superseding::an_interrupt_ends_a_retry_and_a_pause_leaves_it_the_first_and_a_parked_lane_stays_parked",
    },
    Row {
        name: "AckWakesNobody",
        invariant: 13,
        without: "an acknowledgement gives its lane a ready entry",
        change: Sql(
            "ack_many",
            &[("JOIN lanekeeper.lane AS l ON l.lane_id = u.lane_id;", "JOIN lanekeeper.lane AS l ON false;")],
        ),
        test: "engine::acknowledging::the_next_event_is_sent_when_the_one_before_it_is_acknowledged",
    },
    Row {
        name: "WaitWithoutEntry",
        invariant: 13,
        without: "a lane that waits for acknowledgements has an entry due at its time-out",
        change: Sql("settle", &[("WHERE p_operations[o.i] IN (3, 5, 8);", "WHERE p_operations[o.i] IN (3, 5);")]),
        test: "engine::acknowledging::an_event_that_is_not_acknowledged_is_sent_again_and_is_dead_lettered_in_the_end",
    },
    Row {
        name: "EntriesLeftBehind",
        invariant: 13,
        without: "the ready entries of a lane go to its new host with it",
        change: Sql(
            "finish_moving",
            &[("ON u.lane_id = g.lane_id;", "ON u.lane_id = g.lane_id AND false;")],
        ),
        test: "inbound::hosts::a_lane_that_waits_for_its_retry_keeps_its_time_and_its_priority_when_it_is_moved",
    },
    Row {
        name: "OldRouteUsed",
        invariant: 13,
        without: "who makes a ready entry knows the lane's present route",
        change: Sql("lock_route", &[(" FOR SHARE", "")]),
        test: "inbound::hosts::whoever_has_a_snapshot_from_before_a_move_makes_no_entry_on_the_old_route",
    },
];
