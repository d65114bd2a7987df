//! A replay that is paused, resumed, cancelled, and what becomes of live events then.

use lanekeeper_core::adapter::Verdict;
use lanekeeper_postgres::replay::{self, Change};

use super::{FAST, all, arrived, at, delivered, ended, find, of, replayed, start};
use crate::engine::bed::{Bed, LIMIT, Sub};
use crate::support::wait_until;

async fn change(bed: &Bed, id: i64, change: Change) -> String {
    replay::change(&bed.client, id, change, Some("as the test asks"))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_is_paused_live_events_go_on_and_resumed_it_goes_on_where_it_was() {
    let bed = delivered(1, 100).await;
    let worker = bed.worker().await;
    let id = start(&bed, &of("s1"), &at(20)).await;
    wait_until(LIMIT, "some were delivered again", async || {
        replayed(&bed, "s1").len() >= 4
    })
    .await;
    assert_eq!(change(&bed, id, Change::Pause).await, "paused");
    assert_eq!(change(&bed, id, Change::Pause).await, "paused");
    bed.enqueue("s1", "step").await;
    bed.drained().await;
    let now = find(&bed, id).await;
    assert_eq!((now.state.as_str(), now.ended_at), ("paused", None));
    assert_eq!(arrived(&bed, "s1").last(), Some(&(101, false)));
    let so_far = replayed(&bed, "s1").len();
    assert!(so_far < 100, "it was not paused in the middle");
    assert_eq!(change(&bed, id, Change::Resume).await, "running");
    let done = ended(&bed, id).await;
    assert_eq!(
        (done.state.as_str(), done.progress.delivered),
        ("done", 100)
    );
    let seqs: Vec<i64> = (1..=100).collect();
    assert_eq!(
        replayed(&bed, "s1"),
        seqs,
        "nothing twice, nothing left out"
    );
    let (live, _) = *arrived(&bed, "s1")
        .iter()
        .rfind(|(_, again)| !again)
        .unwrap();
    assert_eq!(live, 101, "the range is what it was at the start");
    worker.stop().await;
}

/// The holder reads that its replay is paused, and settles that later. In between it is resumed.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_resumed_before_the_holder_has_let_go_of_it_goes_on() {
    let bed = delivered(1, 4).await;
    let worker = bed.worker().await;
    let id = start(&bed, &of("s1"), &at(2)).await;
    wait_until(LIMIT, "the first was delivered again", async || {
        !replayed(&bed, "s1").is_empty()
    })
    .await;
    // Holds the settlement up.
    let open = bed.db.connect().await;
    open.batch_execute("BEGIN; SELECT FROM lanekeeper.progress FOR UPDATE")
        .await
        .unwrap();
    assert_eq!(change(&bed, id, Change::Pause).await, "paused");
    let waiting = "SELECT count(*) FROM pg_catalog.pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%settle%'";
    wait_until(LIMIT, "the holder settles", async || {
        bed.count(waiting).await == 1
    })
    .await;
    assert_eq!(change(&bed, id, Change::Resume).await, "running");
    open.batch_execute("ROLLBACK").await.unwrap();
    let done = ended(&bed, id).await;
    assert_eq!((done.state.as_str(), done.progress.delivered), ("done", 4));
    assert_eq!(replayed(&bed, "s1"), [1, 2, 3, 4]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_in_backoff_holds_up_nothing_any_more_when_its_replay_is_cancelled() {
    let sub = Sub {
        schedule_ms: vec![3_600_000],
        ..Sub::default()
    };
    let bed = Bed::with(&sub).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    bed.drained().await;
    let failed = Verdict::Retry {
        error: "down".to_owned(),
        after: None,
    };
    bed.fake.script("s1", 2, [failed]);
    let id = start(&bed, &of("s1"), &FAST).await;
    let blocked =
        "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'blocked' AND head_seq = 2";
    wait_until(LIMIT, "the head fails", async || {
        bed.count(blocked).await == 1
    })
    .await;
    bed.enqueue("s1", "step").await;
    assert_eq!(change(&bed, id, Change::Cancel).await, "cancelled");
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 3, 1, 4]);
    let done = ended(&bed, id).await;
    assert_eq!(
        (done.state.as_str(), done.progress.delivered),
        ("cancelled", 1)
    );
    assert_eq!(done.end_reason.as_deref(), Some("as the test asks"));
    assert_eq!(
        bed.count("SELECT max(attempts)::bigint FROM lanekeeper.progress")
            .await,
        0
    );
    let again = replay::change(&bed.client, id, Change::Resume, None).await;
    let (code, says) = super::said(again.unwrap_err());
    assert!(
        code == "LK006" && says.contains("has ended (cancelled)"),
        "{says}"
    );
    assert_eq!(change(&bed, id, Change::Cancel).await, "cancelled");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_skips_its_head_and_it_goes_on_behind_it() {
    let sub = Sub {
        schedule_ms: vec![3_600_000],
        ..Sub::default()
    };
    let bed = Bed::with(&sub).await;
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    bed.drained().await;
    let failed = Verdict::Retry {
        error: "down".to_owned(),
        after: None,
    };
    bed.fake.script("s1", 2, [failed]);
    let id = start(&bed, &of("s1"), &FAST).await;
    let blocked =
        "SELECT count(*) FROM lanekeeper.lane_status WHERE state = 'blocked' AND head_seq = 2";
    wait_until(LIMIT, "the head fails", async || {
        bed.count(blocked).await == 1
    })
    .await;
    let skip =
        "SELECT lanekeeper.change_lane(lane_id, 'skip', 'not again', 2) FROM lanekeeper.lane";
    bed.client.query_one(skip, &[]).await.unwrap();
    ended(&bed, id).await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 3, 1, 3]);
    // The event was delivered once: no outcome says otherwise.
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.outcome").await,
        0
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_lane_waits_for_its_operator_and_the_others_do_not() {
    let bed = delivered(3, 2).await;
    let park = "SELECT lanekeeper.change_lane(lane_id, 'park', 'not now')
                FROM lanekeeper.lane_status WHERE session = 's2'";
    bed.client.query_one(park, &[]).await.unwrap();
    let worker = bed.worker().await;
    let id = start(&bed, &all(), &FAST).await;
    wait_until(LIMIT, "the others are done", async || {
        find(&bed, id).await.progress.sessions_done == 2
    })
    .await;
    assert_eq!(replayed(&bed, "s2"), [0; 0]);
    let unpark = "SELECT lanekeeper.change_lane(lane_id, 'unpark')
                  FROM lanekeeper.lane_status WHERE session = 's2'";
    bed.client.query_one(unpark, &[]).await.unwrap();
    ended(&bed, id).await;
    assert_eq!(replayed(&bed, "s2"), [1, 2]);
    worker.stop().await;
}
