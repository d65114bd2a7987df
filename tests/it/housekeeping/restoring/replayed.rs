//! A replay reads restored days and the log as one.

use lanekeeper_core::adapter::Verdict;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_day_is_replayed_in_order_with_what_the_log_has() {
    let archived = Archived::and_more().await;
    let bed = &archived.bed;
    // Without the day, there is the log.
    let worker = bed.worker().await;
    let id = start(bed, &all(), &FAST).await;
    assert_eq!(ended(bed, id).await.planned.events, 3 * NEW);
    let restored = archived.restore().await;
    assert_eq!(
        (
            restored.events,
            restored.sessions,
            restored.sessions_without_lanes
        ),
        (3 * OLD, 3, 0)
    );
    let before = bed.fake.seen().deliveries.len();
    let id = start(bed, &all(), &FAST).await;
    let done = ended(bed, id).await;
    assert_eq!(done.planned.events, 3 * (OLD + NEW));
    assert_eq!(
        (done.progress.delivered, done.progress.exhausted),
        (3 * (OLD + NEW), 0)
    );
    let seen = bed.fake.seen();
    for session in ["s1", "s2", "s3"] {
        let seqs: Vec<i64> = seen.deliveries[before..]
            .iter()
            .filter(|one| &*one.event.session == session)
            .map(|one| one.event.seq)
            .collect();
        assert_eq!(seqs, (1..=OLD + NEW).collect::<Vec<_>>(), "{session}");
    }
    assert!(seen.deliveries[before..].iter().all(|one| one.replayed));
    // Live events go on behind it.
    assert_eq!(bed.enqueue("s1", "step").await, OLD + NEW + 1);
    bed.drained().await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_restored_day_is_replayed_at_a_rate_as_it_was_stored() {
    let large = "SELECT lanekeeper.enqueue('runs', 's1', 'step', to_jsonb(repeat(md5('x') || E'\\\n', 20000)), headers => '{\"a\": \"b\"}')";
    let archived = Archived::with(large).await;
    let bed = &archived.bed;
    archived.restore().await;
    let range = Range {
        sessions: Some("s1".to_owned()),
        from_seq: Some(OLD - 3),
        ..all()
    };
    let pace = Pace {
        rate: Some(lanekeeper_core::bucket::Rate::new(50, Duration::from_secs(1)).unwrap()),
        ..FAST
    };
    let worker = bed.worker().await;
    let id = start(bed, &range, &pace).await;
    ended(bed, id).await;
    worker.stop().await;
    assert_eq!(replayed(bed, "s1"), (OLD - 3..=OLD + 1).collect::<Vec<_>>());
    assert!(replayed(bed, "s2").is_empty());
    let seen = bed.fake.seen();
    let of_large = |again: bool| {
        let one = seen
            .deliveries
            .iter()
            .find(|one| one.replayed == again && one.event.seq == OLD + 1)
            .unwrap();
        let event = &one.event;
        (
            event.message_id,
            event.created_at,
            event.payload.clone(),
            event.headers.clone(),
        )
    };
    assert!(of_large(true).2.len() > 500_000);
    assert!(of_large(true) == of_large(false), "the same event");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_event_that_is_refused_becomes_a_dead_letter() {
    let archived = Archived::with("").await;
    let bed = &archived.bed;
    archived.restore().await;
    let error = "no".to_owned();
    bed.fake.script("s2", 7, vec![Verdict::Rejected { error }]);
    let worker = bed.worker().await;
    let id = start(bed, &all(), &FAST).await;
    let done = ended(bed, id).await;
    worker.stop().await;
    assert_eq!(done.progress.exhausted, 1);
    let letters = bed
        .client
        .query(
            "SELECT session, seq, payload::text FROM lanekeeper.dead_letter",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(letters.len(), 1);
    let letter: (&str, i64, &str) = (letters[0].get(0), letters[0].get(1), letters[0].get(2));
    assert_eq!(letter, ("s2", 7, "7"));
}

/// Its lanes went with its last event, as those of any run that ended long ago.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_became_dormant_have_their_lanes_again_and_are_replayed() {
    let bed = Bed::new().await;
    let earliest = "INSERT INTO lanekeeper.subscription
            (stream_id, name, adapter, start_from, retry_schedule_ms, max_attempts, on_exhausted, coalesce)
        SELECT stream_id, 'all', 'fake', 'earliest', '{50}', 0, 'dead_letter', false
        FROM lanekeeper.stream WHERE name = 'runs';
        UPDATE lanekeeper.stream SET lanes_version = lanes_version + 1 WHERE name = 'runs'";
    bed.client.batch_execute(earliest).await.unwrap();
    bed.enqueue_bulk(3, OLD).await;
    let closed = "SELECT lanekeeper.close_session('runs', 's3', drain => true)";
    bed.client.batch_execute(closed).await.unwrap();
    let archived = Archived::of(bed).await;
    let bed = &archived.bed;
    let lanes = "SELECT count(*) FROM lanekeeper.lane";
    let old = "UPDATE lanekeeper.progress SET changed_at = changed_at - interval '31 days';
               UPDATE lanekeeper.session SET created_at = created_at - interval '31 days';
               DELETE FROM lanekeeper.outcome;
               UPDATE lanekeeper.session_round SET begun_at = '-infinity', scanned_to = 0";
    bed.client.batch_execute(old).await.unwrap();
    wait_until(LIMIT, "the sessions are dormant", async || {
        let turn = lanekeeper_postgres::maintenance::expire_sessions(&bed.client, 30, 100);
        turn.await.unwrap();
        bed.count(lanes).await == 0
    })
    .await;

    let restored = archived.restore().await;
    assert_eq!(restored.sessions_without_lanes, 3);
    assert_eq!(bed.count(lanes).await, 6);
    assert_eq!((bed.count(READY).await, bed.undelivered().await), (0, 0));
    let worker = bed.worker().await;
    let before = delivered(bed);
    let id = start(bed, &all(), &FAST).await;
    assert_eq!(ended(bed, id).await.progress.delivered, 3 * OLD);
    let earliest = Range {
        subscription: "all".to_owned(),
        ..Range::default()
    };
    let id = start(bed, &earliest, &FAST).await;
    assert_eq!(ended(bed, id).await.progress.delivered, 3 * OLD);
    assert_eq!(delivered(bed), before, "nothing but what was replayed");
    // While they are restored they stay; a closed session stays closed.
    bed.client.batch_execute(old).await.unwrap();
    for _ in 0..4 {
        let turn = lanekeeper_postgres::maintenance::expire_sessions(&bed.client, 30, 100);
        turn.await.unwrap();
    }
    assert_eq!(bed.count(lanes).await, 6);
    assert_eq!(bed.enqueue("s1", "step").await, OLD + 1);
    bed.drained().await;
    let refused = bed
        .client
        .query_one("SELECT lanekeeper.enqueue('runs', 's3', 'step', '1')", &[])
        .await;
    assert_eq!(refused.unwrap_err().code().unwrap().code(), "LK002");
    worker.stop().await;
}
