//! Without one of its protecting details a function of the schema is found out by the lists, within so many
//! of a fixed seed: what these tests show is that the comparison can fail. Each detail is taken out of the
//! function as the database has it; a text that is no longer there fails the test.

use proptest::test_runner::Config;

use crate::generated::{Simulation, fixed_rng, printed};

/// Lists that are run at the most; each is found in far fewer.
const CASES: u32 = 300;

struct Mutation {
    function: &'static str,
    /// Each stands in it once.
    texts: &'static [(&'static str, &'static str)],
    /// What the lists say, in part.
    says: &'static str,
}

impl Mutation {
    fn is_found(&self) {
        let simulation = Simulation::new();
        let definition: String = simulation.ask(&format!(
            "SELECT pg_get_functiondef('lanekeeper.{}'::regproc)",
            self.function
        ));
        let changed = self
            .texts
            .iter()
            .fold(definition, |definition, (text, instead)| {
                let times = definition.matches(text).count();
                assert_eq!(times, 1, "{} has changed:\n{definition}", self.function);
                definition.replace(text, instead)
            });
        simulation.prepare(&changed);
        let config = Config {
            cases: CASES,
            max_shrink_iters: 0,
            failure_persistence: None,
            ..Config::default()
        };
        let found = simulation.search(config, Some(fixed_rng(1)));
        let (reason, list) = found.expect_err("no list finds it");
        let lists = simulation.total.borrow().0;
        println!("after {lists} lists that did: {reason}\n{}", printed(&list));
        assert!(
            reason.contains(self.says),
            "found for another reason: {reason}\n{}",
            printed(&list)
        );
    }
}

#[test]
fn a_settlement_without_its_compare_and_set() {
    let mutation = Mutation {
        function: "settle",
        texts: &[
            (
                "AND cardinality(p_progress_ctids) > 0 AND cardinality(p_sents) = 0 THEN",
                "AND false THEN",
            ),
            (
                "WHERE p_changed[i] AND p.lane_id = p_lanes[i] AND p.version + p.step = p_versions[i]\n              AND p.version BETWEEN p_versions[i] - 15 AND p_versions[i]",
                "WHERE p_changed[i] AND p.lane_id = p_lanes[i]",
            ),
        ],
        says: "not Lost",
    };
    mutation.is_found();
}

#[test]
fn a_lane_that_goes_idle_without_a_look_at_the_log() {
    let mutation = Mutation {
        function: "finish",
        texts: &[(
            "EXISTS (
            SELECT FROM lanekeeper.recent_event AS e
            WHERE e.session_id = p_sessions[i] AND e.seq > p_cursors[i] AND e.day >= coalesce(v_day, p_days[i]))",
            "false",
        )],
        says: "not More",
    };
    mutation.is_found();
}

#[test]
fn a_lane_that_goes_idle_without_the_append_lock() {
    let mutation = Mutation {
        function: "finish",
        texts: &[(
            "bool_and(pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(s.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single))))",
            "true",
        )],
        says: "not Busy",
    };
    mutation.is_found();
}

#[test]
fn a_claim_that_does_not_ask_for_the_lanes_lock() {
    let mutation = Mutation {
        function: "claim",
        texts: &[(
            "WHERE pg_try_advisory_lock(lanekeeper.lane_lock(w.lane_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))",
            "WHERE w.lane_id > 0",
        )],
        says: "held by backends",
    };
    mutation.is_found();
}

#[test]
fn a_claim_that_takes_lanes_which_its_worker_holds() {
    let mutation = Mutation {
        function: "claim",
        texts: &[(
            "AND h.lanes[width_bucket(r.lane_id, h.lanes)] IS DISTINCT FROM r.lane_id",
            "",
        )],
        says: "was claimed while connection",
    };
    mutation.is_found();
}

#[test]
fn a_takeover_that_leaves_no_ready_entries() {
    let mutation = Mutation {
        function: "take_over",
        texts: &[(
            "FROM unnest(v_lanes) AS u (lane_id) JOIN lanekeeper.lane AS l ON l.lane_id = u.lane_id;",
            "FROM unnest(v_lanes) AS u (lane_id) JOIN lanekeeper.lane AS l ON l.lane_id = u.lane_id WHERE false;",
        )],
        says: "its first entry is due",
    };
    mutation.is_found();
}

#[test]
fn a_takeover_that_charges_for_what_was_settled() {
    let mutation = Mutation {
        function: "take_over",
        texts: &[(
            "AND p.version + p.step - u.version = 16 * (p.crashes - u.crashes)",
            "",
        )],
        says: "taken over",
    };
    mutation.is_found();
}

#[test]
fn a_requeued_dead_letter_without_its_place() {
    let mutation = Mutation {
        function: "requeue_dead_letters",
        texts: &[(
            "CASE WHEN p_at_end THEN v_newest ELSE v_dead.seq - 1 END",
            "v_newest",
        )],
        says: "lane 0 is at",
    };
    mutation.is_found();
}

#[test]
fn an_append_that_takes_filtered_events_for_a_busy_lane() {
    let mutation = Mutation {
        function: "enqueue",
        texts: &[(
            "OR NOT lanekeeper.has_matching(l.session_id, p.cursor, p.cursor_day, enqueue.seq - 1, s.events))",
            ")",
        )],
        says: "its first entry is due",
    };
    mutation.is_found();
}

#[test]
fn an_append_with_an_old_snapshot() {
    let mutation = Mutation {
        function: "refuse_stale_snapshot",
        texts: &[("WHILE v_day <= p_today LOOP", "WHILE false LOOP")],
        says: "the producer was told",
    };
    mutation.is_found();
}

#[test]
fn an_operator_who_does_not_ask_for_the_lanes_lock() {
    let mutation = Mutation {
        function: "lock_lane",
        texts: &[(
            "PERFORM pg_advisory_xact_lock(lanekeeper.lane_lock(p_lane_id));",
            "PERFORM 1;",
        )],
        says: "the operator was told",
    };
    mutation.is_found();
}
