//! C11: requeued dead letters, at their place and at the end, under faults.

use std::collections::BTreeSet;

use lanekeeper_core::adapter::Verdict;
use lanekeeper_postgres::maintenance::{Keep, expire_sessions, forget_records};

use super::bed::{Bed, LIMIT, Sub};
use super::failures::Doomed;
use crate::support::wait_until;

fn rejected() -> Verdict {
    Verdict::Rejected {
        error: "no".to_owned(),
    }
}

fn failed(error: &str) -> Verdict {
    Verdict::Retry {
        error: error.to_owned(),
        after: None,
    }
}

/// The dead letter of this event; its lane's only one.
async fn letter(bed: &Bed, session: &str, seq: i64) -> i64 {
    let query = "SELECT dead_id FROM lanekeeper.dead_letter WHERE session = $1 AND seq = $2";
    let row = bed.client.query_one(query, &[&session, &seq]).await;
    row.unwrap().get(0)
}

/// What came of each letter, in their order; or the refusal.
async fn requeue(bed: &Bed, letters: &[i64], at_end: bool) -> Result<Vec<String>, String> {
    let query = "SELECT result FROM lanekeeper.requeue_dead_letters($1, $2) ORDER BY dead_id";
    match bed.client.query(query, &[&letters, &at_end]).await {
        Ok(rows) => Ok(rows.iter().map(|row| row.get(0)).collect()),
        Err(error) => Err(error.as_db_error().unwrap().message().to_owned()),
    }
}

async fn text(bed: &Bed, query: &str) -> String {
    bed.client.query_one(query, &[]).await.unwrap().get(0)
}

/// A session `s1` of so many events whose events `dead` were refused, and no worker.
async fn bed_with_dead(events: i64, dead: &[i64], sub: &Sub) -> Bed {
    let bed = Bed::with(sub).await;
    for seq in dead {
        bed.fake.script("s1", *seq, [rejected()]);
    }
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, events).await;
    bed.drained().await;
    worker.stop().await;
    bed
}

#[tokio::test(flavor = "multi_thread")]
async fn at_its_place_it_comes_before_everything_that_is_not_delivered_yet() {
    let bed = bed_with_dead(3, &[1], &Sub::default()).await;
    bed.enqueue_bulk(1, 2).await;
    let dead = letter(&bed, "s1", 1).await;
    assert_eq!(requeue(&bed, &[dead], false).await.unwrap(), ["requeued"]);
    let waiting = "SELECT state FROM lanekeeper.message WHERE seq = 1";
    assert_eq!(text(&bed, waiting).await, "requeued");
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [2, 3, 1, 4, 5]);
    let seen = bed.fake.seen();
    let of_first: Vec<_> = seen
        .deliveries
        .iter()
        .filter(|it| it.event.seq == 1)
        .collect();
    assert_eq!(of_first.len(), 2);
    assert_eq!(of_first[0].event.message_id, of_first[1].event.message_id);
    assert_eq!(of_first[0].event.payload, of_first[1].event.payload);
    assert_eq!((of_first[0].requeued, of_first[1].requeued), (false, true));
    assert_eq!(of_first[1].attempt, 1);
    assert!(seen.deliveries.iter().filter(|it| it.requeued).count() == 1);
    assert_eq!(text(&bed, waiting).await, "delivered");
    let resolution = "SELECT resolution FROM lanekeeper.dead_letter WHERE resolved_at IS NOT NULL";
    assert_eq!(text(&bed, resolution).await, "requeued");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_it_comes_behind_what_is_committed_and_before_what_is_not() {
    let bed = bed_with_dead(3, &[1], &Sub::default()).await;
    bed.enqueue_bulk(1, 150).await;
    let dead = letter(&bed, "s1", 1).await;
    requeue(&bed, &[dead], true).await.unwrap();
    bed.enqueue_bulk(1, 150).await;
    let worker = bed.worker().await;
    bed.drained().await;
    let expected: Vec<i64> = (2..=153).chain([1]).chain(154..=303).collect();
    assert_eq!(bed.accepted()["s1"], expected);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_of_a_lane_come_in_the_order_of_their_events() {
    let all: Vec<i64> = (1..=40).collect();
    let bed = bed_with_dead(40, &all, &Sub::default()).await;
    bed.enqueue_bulk(1, 1).await;
    let mut dead = Vec::new();
    for seq in &all {
        dead.push(letter(&bed, "s1", *seq).await);
    }
    // In two calls, the later ones first; the very last one at the end.
    requeue(&bed, &dead[20..39], false).await.unwrap();
    requeue(&bed, &dead[39..], true).await.unwrap();
    requeue(&bed, &dead[..20], false).await.unwrap();
    let worker = bed.worker().await;
    bed.drained().await;
    let expected: Vec<i64> = (1..=39).chain([41, 40]).collect();
    assert_eq!(bed.accepted()["s1"], expected);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_delivers_it_without_another_event() {
    let bed = Bed::new().await;
    bed.fake.script("s1", 1, [rejected()]);
    let worker = bed.worker().await;
    bed.enqueue("s1", "step").await;
    bed.drained().await;
    let dead = letter(&bed, "s1", 1).await;
    requeue(&bed, &[dead], true).await.unwrap();
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_blocks_its_lane_while_it_fails_and_is_dead_again_when_exhausted() {
    for on_exhausted in ["dead_letter", "park", "drop"] {
        let bed = bed_with_dead(
            2,
            &[1],
            &Sub {
                max_attempts: 3,
                ..Sub::default()
            },
        )
        .await;
        bed.client
            .execute(
                "UPDATE lanekeeper.subscription SET on_exhausted = $1",
                &[&on_exhausted],
            )
            .await
            .unwrap();
        bed.enqueue_bulk(1, 1).await;
        bed.fake.script("s1", 1, ["a", "b", "c"].map(failed));
        let dead = letter(&bed, "s1", 1).await;
        requeue(&bed, &[dead], false).await.unwrap();
        let worker = bed.worker().await;
        bed.drained().await;
        let seen = bed.fake.seen();
        let tried: Vec<_> = seen
            .deliveries
            .iter()
            .map(|it| (it.event.seq, it.attempt))
            .collect();
        assert_eq!(tried, [(1, 1), (2, 1), (1, 1), (1, 2), (1, 3), (3, 1)]);
        let row = "SELECT concat_ws(' ', error, attempts, resolution IS NULL, requeued_at IS NULL)
                   FROM lanekeeper.dead_letter";
        assert_eq!(text(&bed, row).await, "c 3 t t", "{on_exhausted}");
        let message = "SELECT state || ' ' || error FROM lanekeeper.message WHERE seq = 1";
        assert_eq!(text(&bed, message).await, "failed c");
        // And once more, which is accepted.
        requeue(&bed, &[dead], false).await.unwrap();
        bed.drained().await;
        assert_eq!(bed.accepted()["s1"], [2, 3, 1]);
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_failures_are_not_shown_as_those_of_the_event_behind_it() {
    let sub = Sub {
        schedule_ms: vec![60_000],
        ..Sub::default()
    };
    let bed = bed_with_dead(1, &[1], &sub).await;
    bed.enqueue_bulk(1, 1).await;
    bed.fake.script("s1", 1, ["a"].map(failed));
    let dead = letter(&bed, "s1", 1).await;
    requeue(&bed, &[dead], false).await.unwrap();
    let worker = bed.worker().await;
    let waits = "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'blocked'";
    wait_until(LIMIT, "it has failed", async || bed.count(waits).await == 1).await;
    let next =
        "SELECT concat_ws(' ', state, attempts, error) FROM lanekeeper.message WHERE seq = 2";
    assert_eq!(text(&bed, next).await, "pending");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_a_head_in_backoff_which_begins_anew_and_at_the_end_it_does_not() {
    let bed = bed_with_dead(
        2,
        &[1, 2],
        &Sub {
            schedule_ms: vec![3_600_000],
            ..Sub::default()
        },
    )
    .await;
    bed.fake
        .script("s1", 3, [failed("not now"), failed("nor now")]);
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 1).await;
    let blocked = "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'blocked' AND head_seq = 3 AND attempts = 1";
    let is_blocked = async || bed.count(blocked).await == 1;
    wait_until(LIMIT, "the third is in backoff", is_blocked).await;
    let last = letter(&bed, "s1", 2).await;
    requeue(&bed, &[last], true).await.unwrap();
    assert!(is_blocked().await, "its turn has not come");
    let first = letter(&bed, "s1", 1).await;
    requeue(&bed, &[first], false).await.unwrap();
    wait_until(
        LIMIT,
        "the first was accepted, the third tried again",
        is_blocked,
    )
    .await;
    assert_eq!(bed.accepted()["s1"], [1]);
    let lane = "SELECT lane_id FROM lanekeeper.lane";
    let retry = format!("SELECT count(lanekeeper.change_lane(({lane}), 'retry'))");
    bed.count(&retry).await;
    // The entries of the backoffs are due in an hour: spare ones by now.
    wait_until(
        LIMIT,
        "the third was accepted, then the second",
        async || bed.accepted()["s1"] == [1, 3, 2],
    )
    .await;
    let seen = bed.fake.seen();
    let thirds: Vec<_> = (seen.deliveries.iter())
        .filter(|it| it.event.seq == 3)
        .map(|it| it.attempt)
        .collect();
    assert_eq!(thirds, [1, 1, 1]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_came_meanwhile_does_not_keep_it() {
    let bed = bed_with_dead(1, &[1], &Sub::default()).await;
    bed.client
        .batch_execute("UPDATE lanekeeper.subscription SET events = '{other}'")
        .await
        .unwrap();
    // Behind the cursor, and filtered: no reason to wait.
    bed.enqueue_bulk(1, 3).await;
    let dead = letter(&bed, "s1", 1).await;
    requeue(&bed, &[dead], true).await.unwrap();
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_delivered_though_the_log_has_lost_what_it_was_to_come_behind() {
    let bed = bed_with_dead(1, &[1], &Sub::default()).await;
    bed.enqueue_bulk(1, 2).await;
    let dead = letter(&bed, "s1", 1).await;
    requeue(&bed, &[dead], true).await.unwrap();
    bed.client
        .batch_execute("DELETE FROM lanekeeper.event")
        .await
        .unwrap();
    let worker = bed.worker().await;
    wait_until(LIMIT, "it was accepted", async || {
        bed.accepted().contains_key("s1")
    })
    .await;
    assert_eq!(bed.accepted()["s1"], [1]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_at_it_is_charged_and_a_survivor_delivers_it() {
    let bed = bed_with_dead(1, &[1], &Sub::default()).await;
    let dead = letter(&bed, "s1", 1).await;
    requeue(&bed, &[dead], false).await.unwrap();
    bed.fake.hold("s1");
    for round in 1..=2 {
        let doomed = Doomed::start(&bed).await;
        wait_until(LIMIT, "it is being delivered", async || {
            bed.fake.seen().deliveries.len() == 1 + round
        })
        .await;
        doomed.kill(&bed).await;
    }
    bed.fake.release("s1");
    let survivor = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1]);
    let resolved = "SELECT count(*) FROM lanekeeper.dead WHERE resolution = 'requeued'";
    assert_eq!(bed.count(resolved).await, 1);

    // The third death exhausts it.
    bed.fake.script("s1", 2, [rejected()]);
    bed.enqueue("s1", "step").await;
    bed.drained().await;
    survivor.stop().await;
    let poison = letter(&bed, "s1", 2).await;
    requeue(&bed, &[poison], false).await.unwrap();
    bed.fake.hold("s1");
    for round in 1..=3 {
        let before = bed.fake.seen().deliveries.len();
        let doomed = Doomed::start(&bed).await;
        wait_until(LIMIT, "it is being delivered", async || {
            bed.fake.seen().deliveries.len() > before
        })
        .await;
        doomed.kill(&bed).await;
        let charged = "SELECT max(crashes)::bigint FROM lanekeeper.progress";
        assert_eq!(bed.count(charged).await, round - 1);
    }
    let survivor = bed.worker().await;
    bed.drained().await;
    let crashes =
        "SELECT crashes::bigint FROM lanekeeper.dead_letter WHERE seq = 2 AND requeued_at IS NULL";
    assert_eq!(bed.count(crashes).await, 3);
    survivor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_cut_connections_each_is_delivered_and_the_order_of_the_lane_holds() {
    const SESSIONS: i64 = 8;
    let bed = Bed::new().await;
    for session in 1..=SESSIONS {
        for seq in (5..=30).step_by(5) {
            bed.fake.script(&format!("s{session}"), seq, [rejected()]);
        }
    }
    let workers = [bed.worker().await, bed.worker().await];
    bed.enqueue_bulk(SESSIONS, 30).await;
    bed.drained().await;
    let dead: Vec<i64> = (bed
        .client
        .query("SELECT dead_id FROM lanekeeper.dead ORDER BY dead_id", &[])
        .await)
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(dead.len(), 6 * SESSIONS as usize);
    let before = bed.fake.seen().deliveries.len();
    bed.fake.hold("s3");
    bed.enqueue_bulk(SESSIONS, 20).await;
    for letters in dead.chunks(7) {
        // A lane that is busy for long is refused, and asked again.
        wait_until(LIMIT, "they are requeued", async || {
            let asked = requeue(&bed, letters, false).await;
            bed.fake.release("s3");
            asked.is_ok()
        })
        .await;
        bed.count(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(backend_pid)) FROM lanekeeper.lane_connection",
        )
        .await;
    }
    bed.drained().await;
    let unresolved =
        "SELECT count(*) FROM lanekeeper.dead WHERE resolution IS DISTINCT FROM 'requeued'";
    assert_eq!(bed.count(unresolved).await, 0);
    for (session, seqs) in bed.accepted() {
        let all: BTreeSet<i64> = seqs.iter().copied().collect();
        assert_eq!(all, (1..=50).collect(), "session {session}");
    }
    // Of the letters and of the events, first acceptances come in order: a repeat repeats.
    for requeued in [true, false] {
        for session in 1..=SESSIONS {
            let session = format!("s{session}");
            let mut firsts: Vec<i64> = Vec::new();
            for it in &bed.fake.seen().deliveries[before..] {
                if *it.event.session == session
                    && it.requeued == requeued
                    && it.verdict == Some(Verdict::Accepted)
                    && !firsts.contains(&it.event.seq)
                {
                    firsts.push(it.event.seq);
                }
            }
            assert!(firsts.is_sorted(), "{session}: {firsts:?}");
        }
    }
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_requeued_is_refused_in_words_and_changes_nothing() {
    let bed = bed_with_dead(3, &[1, 2, 3], &Sub::default()).await;
    let [one, two, three] = [
        letter(&bed, "s1", 1).await,
        letter(&bed, "s1", 2).await,
        letter(&bed, "s1", 3).await,
    ];
    let refused = requeue(&bed, &[one, 77, 78], false).await.unwrap_err();
    assert_eq!(
        refused,
        "there is no dead letter 77, 78: nothing was changed"
    );
    let lane = bed.count("SELECT lane_id FROM lanekeeper.lane").await;
    let change = |action: &str| format!("SELECT count(lanekeeper.change_lane({lane}, '{action}'))");
    bed.count(&change("park")).await;
    let refused = requeue(&bed, &[one], false).await.unwrap_err();
    assert!(refused.contains("is parked"), "{refused}");
    bed.count(&change("unpark")).await;
    let removed = "UPDATE lanekeeper.subscription SET removed_at = now()";
    bed.client.batch_execute(removed).await.unwrap();
    let refused = requeue(&bed, &[one], false).await.unwrap_err();
    assert!(refused.contains("out was removed"), "{refused}");
    let back = "UPDATE lanekeeper.subscription SET removed_at = NULL";
    bed.client.batch_execute(back).await.unwrap();
    let untouched = "SELECT count(*) FROM lanekeeper.dead WHERE requeued_at IS NULL";
    assert_eq!(bed.count(untouched).await, 3);

    let holder = bed.db.connect().await;
    let hold = format!("SELECT pg_advisory_lock(lanekeeper.lane_lock({lane}))");
    holder.batch_execute(&hold).await.unwrap();
    let refused = requeue(&bed, &[one], false).await.unwrap_err();
    assert!(refused.contains("is being delivered"), "{refused}");
    drop(holder);

    let drop_two =
        format!("SELECT count(*) FILTER (WHERE lanekeeper.drop_dead_letter({two}, 'test'))");
    assert_eq!(bed.count(&drop_two).await, 1);
    assert_eq!(requeue(&bed, &[one], false).await.unwrap(), ["requeued"]);
    assert_eq!(
        requeue(&bed, &[one, two, three], false).await.unwrap(),
        ["requeued_before", "resolved", "requeued"]
    );
    let recorded = "SELECT count(*) FROM lanekeeper.operation WHERE action = 'requeue_dead_letter'";
    assert_eq!(bed.count(recorded).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_dropped_or_skipped_meanwhile_is_not_delivered() {
    let bed = bed_with_dead(3, &[1, 2, 3], &Sub::default()).await;
    for seq in 1..=3 {
        let dead = letter(&bed, "s1", seq).await;
        requeue(&bed, &[dead], false).await.unwrap();
    }
    let first = letter(&bed, "s1", 1).await;
    let dropped =
        format!("SELECT count(*) FILTER (WHERE lanekeeper.drop_dead_letter({first}, NULL))");
    assert_eq!(bed.count(&dropped).await, 1);
    let head = "SELECT head_seq FROM lanekeeper.lane_status WHERE state = 'ready' AND head_dead_id IS NOT NULL";
    assert_eq!(bed.count(head).await, 2);
    let skip =
        "SELECT count(lanekeeper.change_lane(lane_id, 'skip', NULL, 2)) FROM lanekeeper.lane";
    assert_eq!(bed.count(skip).await, 1);
    assert_eq!(bed.count(head).await, 3);
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [3]);
    let states = "SELECT string_agg(coalesce(resolution, 'waits'), ' ' ORDER BY seq) FROM lanekeeper.dead_letter";
    assert_eq!(text(&bed, states).await, "dropped waits requeued");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_keeps_it_until_it_is_delivered() {
    let bed = bed_with_dead(1, &[1], &Sub::default()).await;
    let dead = letter(&bed, "s1", 1).await;
    requeue(&bed, &[dead], false).await.unwrap();
    bed.client
        .batch_execute(
            "UPDATE lanekeeper.dead SET died_at = died_at - interval '1 year', requeued_at = requeued_at - interval '1 year';
             DELETE FROM lanekeeper.event; DELETE FROM lanekeeper.outcome;
             UPDATE lanekeeper.progress SET changed_at = changed_at - interval '1 year'",
        )
        .await
        .unwrap();
    let keep = Keep {
        outcome_days: 1,
        history_days: 1,
        dead_letter_days: 1,
        operation_days: 1,
    };
    forget_records(&bed.client, keep, 100).await.unwrap();
    for _ in 0..3 {
        expire_sessions(&bed.client, 30, 100).await.unwrap();
    }
    let worker = bed.worker().await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1]);
    worker.stop().await;
}
