//! What a claim makes of tokens: each is taken once, none is passed over, none is made twice (I9, I13).

use lanekeeper::store::claim::Bound;
use lanekeeper::store::settle::Settled;

use super::connection::{Connection, ids};
use crate::engine::bed::{Bed, LIMIT};
use crate::support::wait_until;

const LANES: i64 = 30;

/// Lanes with a token each, all of one instant, and due for longer than the walk's bound stays behind.
async fn bed() -> Bed {
    let bed = Bed::new().await;
    bed.enqueue_bulk(LANES, 1).await;
    bed.client
        .batch_execute("UPDATE lanekeeper.ready SET due_at = due_at - interval '1 s'")
        .await
        .unwrap();
    bed
}

#[tokio::test]
async fn a_walk_that_came_to_its_limit_is_continued_behind_what_it_took() {
    let bed = bed().await;
    let mut connection = Connection::open(&bed).await;
    let mut bound = Bound::START;
    let mut taken = Vec::new();
    for _ in 0..3 {
        let claimed = connection.claim(bound, 10).await;
        bound = claimed.routes[0].bound;
        taken.extend(ids(&claimed.lanes));
    }
    // Session locks are re-entrant: a walk from the start would have taken the same ten three times.
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), LANES as usize);
    assert!(connection.claim(bound, 10).await.lanes.is_empty());
}

#[tokio::test]
async fn a_walk_that_saw_all_is_followed_by_one_from_the_first_token_that_is_there() {
    let bed = bed().await;
    let mut lost = Connection::open(&bed).await;
    let held = lost.claim(Bound::START, 10).await;
    let mut survivor = Connection::open(&bed).await;
    let others = survivor.claim(Bound::START, 100).await;
    assert_eq!(others.lanes.len(), 20);
    survivor.unlock(&ids(&others.lanes)).await;
    drop(lost);
    // As soon as the server has noticed: the tokens that were passed by are in front of no bound.
    let bound = others.routes[0].bound;
    let mut found = Vec::new();
    let deadline = tokio::time::Instant::now() + LIMIT;
    while found.len() < LANES as usize {
        assert!(tokio::time::Instant::now() < deadline, "{}", found.len());
        found.extend(ids(&survivor.claim(bound, 100).await.lanes));
        found.sort_unstable();
        found.dedup();
    }
    assert!(ids(&held.lanes).iter().all(|lane| found.contains(lane)));
}

/// A walk sees a token; its holder replaces it and lets the lane go; only then the walk tries the lane's
/// lock. Taken on the token that is gone, the lane would have one more with each such meeting.
#[tokio::test]
async fn a_token_that_was_replaced_during_the_walk_is_not_taken() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 1).await;
    // The walk of whoever asks for it waits between a token and its lock.
    bed.client
        .batch_execute(
            "CREATE OR REPLACE FUNCTION lanekeeper.lane_lock(lane_id bigint) RETURNS bigint
             LANGUAGE plpgsql SET search_path = '' AS $$
             BEGIN
                 IF current_setting('test.waits', true) = 'on' THEN
                     PERFORM pg_advisory_xact_lock_shared(1);
                 END IF;
                 RETURN 5497489969159077888 + lane_id;
             END $$",
        )
        .await
        .unwrap();
    let mut holder = Connection::open(&bed).await;
    let held = holder.claim(Bound::START, 1).await.lanes;
    assert_eq!(held.len(), 1);
    let mut walker = Connection::open(&bed).await;
    walker
        .client
        .batch_execute("SET test.waits = on")
        .await
        .unwrap();
    bed.client
        .batch_execute("SELECT pg_advisory_lock(1)")
        .await
        .unwrap();
    let replaced = async {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        wait_until(LIMIT, "the walk has seen the token", async || {
            bed.count(waiting).await == 1
        })
        .await;
        assert_eq!(holder.yield_all(&held).await, [Settled::Done]);
        holder.unlock(&ids(&held)).await;
        bed.client
            .batch_execute("SELECT pg_advisory_unlock(1)")
            .await
            .unwrap();
    };
    let (claimed, ()) = tokio::join!(walker.claim(Bound::START, 1), replaced);
    assert!(claimed.lanes.is_empty(), "{:?}", claimed.lanes);
    // And the lane was given back, with its one token.
    assert_eq!(holder.claim(Bound::START, 2).await.lanes.len(), 1);
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.ready").await, 1);
}
