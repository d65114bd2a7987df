//! What cannot be replayed is refused, in words and with nothing started.

use lanekeeper_postgres::replay::{self, Plan};

use super::{FAST, all, at, delivered, ended, of, refusal, replayed, start};
use crate::engine::bed::Bed;

async fn nothing_was_started(bed: &Bed) {
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.replay").await, 0);
    let marked = "SELECT count(*) FROM lanekeeper.progress WHERE requeued_after IS NOT NULL";
    assert_eq!(bed.count(marked).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_and_what_makes_no_range_is_refused_in_words() {
    let bed = delivered(2, 5).await;
    let unknown = replay::Range {
        subscription: "nobody".to_owned(),
        ..all()
    };
    let (code, says) = refusal(&bed, &unknown).await;
    assert!(
        code == "LK006" && says.contains("no subscription 'nobody'"),
        "{says}"
    );
    let (code, says) = refusal(&bed, &of("s9")).await;
    assert!(
        code == "LK010" && says.contains("no session 's9'"),
        "{says}"
    );
    let mut many = of("s*");
    many.from_seq = Some(2);
    let (code, says) = refusal(&bed, &many).await;
    assert!(
        code == "LK006" && says.contains("needs one session"),
        "{says}"
    );
    let mut backwards = of("s1");
    (backwards.from_seq, backwards.to_seq) = (Some(3), Some(2));
    let (code, says) = refusal(&bed, &backwards).await;
    assert!(
        code == "LK006" && says.contains("ends before it begins"),
        "{says}"
    );
    let mut ahead = of("s1");
    ahead.from_seq = Some(6);
    let (code, says) = refusal(&bed, &ahead).await;
    assert!(
        code == "LK006" && says.contains("no event that was delivered"),
        "{says}"
    );
    nothing_was_started(&bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_delivered_yet_is_no_part_of_it() {
    let bed = delivered(1, 3).await;
    bed.enqueue_bulk(1, 4).await;
    let plan = replay::plan(&bed.client, &all()).await.unwrap();
    let bytes = "SELECT sum(size)::bigint FROM lanekeeper.event WHERE seq <= 3";
    let expected = Plan {
        sessions: 1,
        events: 3,
        bytes: bed.count(bytes).await,
        longest: 3,
    };
    assert_eq!(plan, expected);
    nothing_was_started(&bed).await;
    let id = start(&bed, &all(), &FAST).await;
    let worker = bed.worker().await;
    ended(&bed, id).await;
    bed.drained().await;
    assert_eq!(bed.accepted()["s1"], [1, 2, 3, 1, 2, 3, 4, 5, 6, 7]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_in_one_replay_at_a_time() {
    let bed = delivered(2, 50).await;
    let first = start(&bed, &of("s1"), &at(20)).await;
    for range in [of("s1"), all()] {
        let (code, says) = refusal(&bed, &range).await;
        assert_eq!(code, "LK011");
        let named = says.contains(&format!(
            "'s1' is being replayed to out already, by replay {first}"
        ));
        assert!(named && says.contains("nothing was started"), "{says}");
    }
    let second = start(&bed, &of("s2"), &FAST).await;
    let worker = bed.worker().await;
    ended(&bed, second).await;
    assert_eq!(replayed(&bed, "s2").len(), 50);
    ended(&bed, first).await;
    // And after it has ended, the next one.
    let third = start(&bed, &all(), &FAST).await;
    ended(&bed, third).await;
    assert_eq!(replayed(&bed, "s1").len(), 100);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_start_at_once_for_the_same_session_are_one() {
    let bed = delivered(1, 5).await;
    let other = bed.db.connect().await;
    let (ours, range) = (of("s1"), of("s1"));
    let (one, two) = tokio::join!(
        replay::start(&bed.client, &ours, &FAST, replay::By::default()),
        replay::start(&other, &range, &FAST, replay::By::default()),
    );
    let refused = [one, two].into_iter().filter_map(Result::err);
    let codes: Vec<_> = refused
        .map(|error| error.sqlstate().unwrap().to_owned())
        .collect();
    assert_eq!(codes, ["LK011"]);
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.replay").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_days_were_dropped_the_first_seq_that_there_is_is_named() {
    let bed = delivered(1, 6).await;
    let drop = "DELETE FROM lanekeeper.event WHERE seq <= 4";
    bed.client.execute(drop, &[]).await.unwrap();
    let mut range = of("s1");
    range.from_seq = Some(2);
    let (code, says) = refusal(&bed, &range).await;
    assert_eq!(code, "LK006");
    assert!(
        says.contains("begins with seq 5") && says.contains("from seq 5 on"),
        "{says}"
    );
    nothing_was_started(&bed).await;
    // Without a seq, what there is is replayed.
    let id = start(&bed, &of("s1"), &FAST).await;
    let worker = bed.worker().await;
    ended(&bed, id).await;
    assert_eq!(replayed(&bed, "s1"), [5, 6]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_that_have_not_ended_are_enough() {
    let bed = delivered(101, 1).await;
    for session in 1..=100 {
        start(&bed, &of(&format!("s{session}")), &FAST).await;
    }
    let (code, says) = refusal(&bed, &of("s101")).await;
    assert!(code == "LK006" && says.contains("100 replays"), "{says}");
}
