//! How a claim takes ready entries: each once, skipping none and duplicating none (I9, I13).

use lanekeeper_postgres::claim::ScanStart;
use lanekeeper_postgres::settle::{Operation, Settled, Settlement};

use super::connection::{Connection, ids, settlement};
use crate::engine::bed::{Bed, LIMIT};
use crate::support::wait_until;

const LANES: i64 = 30;

/// Lanes with one entry each, all due at one instant, further in the past than the scan start stays behind.
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
async fn a_scan_that_reached_its_limit_continues_after_the_last_entry_it_took() {
    let bed = bed().await;
    let mut connection = Connection::open(&bed).await;
    let mut start = ScanStart::START;
    let mut taken = Vec::new();
    for _ in 0..3 {
        let claimed = connection.claim(start, 10).await;
        start = claimed.routes[0].start;
        taken.extend(ids(&claimed.lanes));
    }
    // Session locks are re-entrant: a scan from the beginning would have taken the same ten three times.
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), LANES as usize);
    assert!(connection.claim(start, 10).await.lanes.is_empty());
}

#[tokio::test]
async fn a_scan_that_saw_all_entries_is_followed_by_one_from_the_first_entry() {
    let bed = bed().await;
    let mut lost = Connection::open(&bed).await;
    let held = lost.claim(ScanStart::START, 10).await;
    let mut survivor = Connection::open(&bed).await;
    let others = survivor.claim(ScanStart::START, 100).await;
    assert_eq!(others.lanes.len(), 20);
    survivor.unlock(&ids(&others.lanes)).await;
    drop(lost);
    // Retry until the server has noticed the dead connection: no scan start is past the entries that were skipped.
    let start = others.routes[0].start;
    let mut found = Vec::new();
    let deadline = tokio::time::Instant::now() + LIMIT;
    while found.len() < LANES as usize {
        assert!(tokio::time::Instant::now() < deadline, "{}", found.len());
        found.extend(ids(&survivor.claim(start, 100).await.lanes));
        found.sort_unstable();
        found.dedup();
    }
    assert!(ids(&held.lanes).iter().all(|lane| found.contains(lane)));
}

/// What a look between a statement's snapshot and a lock would see wrong: whoever has asked for it waits
/// there, for the advisory lock 1.
async fn waits_before(bed: &Bed, lock: &str) {
    bed.client
        .batch_execute(&format!(
            "ALTER FUNCTION lanekeeper.{lock}(bigint, uuid) RENAME TO {lock}_itself;
             CREATE FUNCTION lanekeeper.{lock}(id bigint, secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
             LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
             BEGIN
                 IF current_setting('test.waits', true) = 'on' THEN
                     PERFORM pg_advisory_xact_lock_shared(1);
                 END IF;
                 RETURN lanekeeper.{lock}_itself(id, secret);
             END $$"
        ))
        .await
        .unwrap();
}

impl Connection {
    /// Does `first` of this connection up to where it waits, then `between`, then the rest.
    async fn interrupted<T>(
        &mut self,
        bed: &Bed,
        first: impl AsyncFnOnce(&mut Self) -> T,
        between: impl Future<Output = ()>,
    ) -> T {
        self.client
            .batch_execute("SET test.waits = on")
            .await
            .unwrap();
        bed.client
            .batch_execute("SELECT pg_advisory_lock(1)")
            .await
            .unwrap();
        let meanwhile = async {
            let waiting =
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            wait_until(LIMIT, "it waits for the lock", async || {
                bed.count(waiting).await == 1
            })
            .await;
            between.await;
            bed.client
                .batch_execute("SELECT pg_advisory_unlock(1)")
                .await
                .unwrap();
        };
        tokio::join!(first(self), meanwhile).0
    }
}

/// A scan sees an entry; its holder replaces it and releases the lane; only then the scan tries the lane's
/// lock. If the claim took the lane by the deleted entry, the lane would get one entry more each time. The claim
/// checks the ctids of its entries: while it runs, not even VACUUM gives the ctid of a deleted entry to another one.
#[tokio::test]
async fn a_ready_entry_that_was_replaced_during_the_scan_is_not_taken() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 1).await;
    waits_before(&bed, "lane_lock").await;
    let mut holder = Connection::open(&bed).await;
    let held = holder.claim(ScanStart::START, 1).await.lanes;
    assert_eq!(held.len(), 1);
    let mut walker = Connection::open(&bed).await;
    let claim = async |walker: &mut Connection| walker.claim(ScanStart::START, 1).await;
    let replaced = async {
        assert_eq!(holder.yield_all(&held).await, [Settled::Done]);
        holder.unlock(&ids(&held)).await;
        let vacuumed = bed.client.batch_execute("VACUUM lanekeeper.ready").await;
        vacuumed.unwrap();
        bed.enqueue("another", "step").await;
    };
    let claimed = walker.interrupted(&bed, claim, replaced).await;
    assert!(claimed.lanes.is_empty(), "{:?}", claimed.lanes);
    // And the lane was given back, with its one entry.
    assert_eq!(holder.claim(ScanStart::START, 3).await.lanes.len(), 2);
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.ready").await, 2);
}

/// As above, but the holder settles an event and keeps the entry. A worker that relies on what its scan saw delivers
/// that event once more, and is refused.
#[tokio::test]
async fn progress_is_read_when_the_lane_is_locked() {
    let bed = Bed::new().await;
    bed.enqueue_bulk(1, 2).await;
    waits_before(&bed, "lane_lock").await;
    let mut holder = Connection::open(&bed).await;
    let held = holder.claim(ScanStart::START, 1).await.lanes;
    let mut walker = Connection::open(&bed).await;
    let claim = async |walker: &mut Connection| walker.claim(ScanStart::START, 1).await;
    let settled = async {
        let settled = holder.pass_one(&held[0], Operation::Release).await;
        assert_eq!(settled, [Settled::Done]);
        holder.unlock(&ids(&held)).await;
    };
    let claimed = walker.interrupted(&bed, claim, settled).await.lanes;
    assert_eq!((claimed[0].version, claimed[0].cursor), (1, 1));
    let finished = walker.pass_one(&claimed[0], Operation::Finish).await;
    assert_eq!(finished, [Settled::Idle]);
}

/// A producer commits when a settlement has its snapshot and not yet the append lock. It saw a busy lane
/// and wrote no entry: a lane that goes idle by that snapshot leaves the event for ever.
#[tokio::test]
async fn the_log_is_looked_at_when_the_append_lock_is_taken() {
    for history_from in [None, Some(1)] {
        looked_at_under_the_lock(history_from).await;
    }
}

/// With a history more is to be said of the lane.
async fn looked_at_under_the_lock(history_from: Option<i64>) {
    let bed = Bed::new().await;
    bed.enqueue("s1", "step").await;
    waits_before(&bed, "append_lock").await;
    let mut holder = Connection::open(&bed).await;
    let held = holder.claim(ScanStart::START, 1).await.lanes;
    let finish = async |holder: &mut Connection| {
        let finished = Settlement {
            changed: true,
            cursor: held[0].cursor + 1,
            history_from,
            ..settlement(&held[0], Operation::Finish)
        };
        holder.settle(&[(finished, held[0].entry)]).await
    };
    let appended = async {
        bed.enqueue("s1", "step").await;
    };
    let settled = holder.interrupted(&bed, finish, appended).await;
    assert_eq!(settled, [Settled::More]);
    assert_eq!(bed.count("SELECT count(*) FROM lanekeeper.ready").await, 1);
}
