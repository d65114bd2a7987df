//! Snapshots save time and decide nothing.

use lanekeeper::aggregate::{self, Aggregate};
use serde::{Deserialize, Serialize};

use super::{Added, Basket, Happened, IsPaid, Order, STREAM, append, bed, count};
use crate::statements::role::Role;

/// The same baskets in a later release: it counts something else, and would take an older snapshot for its own.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Lines {
    lines: u64,
}

impl Aggregate for Lines {
    const NAME: &'static str = "basket";
    const SCHEMA_VERSION: i32 = 2;
    const SNAPSHOT_EVERY: u32 = 10;
    type Event = Happened;
    type Command = ();
    type Error = IsPaid;

    fn apply(&mut self, event: &Happened) {
        self.lines += u64::from(matches!(event, Happened::Added(Added { .. })));
    }

    fn decide(&self, (): &()) -> Result<Vec<Happened>, IsPaid> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_snapshot_is_taken_every_so_many_events_and_the_state_at_every_seq_is_the_same_without() {
    let (_db, mut client) = bed().await;
    for order in [
        Order::AddEach(7),
        Order::AddEach(7),
        Order::AddEach(7),
        Order::Pay,
    ] {
        aggregate::run::<Basket>(&mut client, STREAM, "b", &order, 1)
            .await
            .unwrap();
    }
    let taken = client
        .query(
            "SELECT a.seq FROM lanekeeper.aggregate_snapshot AS a ORDER BY 1",
            &[],
        )
        .await
        .unwrap();
    let taken: Vec<i64> = taken.iter().map(|row| row.get(0)).collect();
    assert_eq!(taken, [14, 21], "by the commands that passed 10 and 20");
    append(&client, "b", 20).await;
    assert_eq!(
        aggregate::take_snapshots::<Basket>(&client, STREAM, "b")
            .await
            .unwrap(),
        4
    );
    let mut with = Vec::new();
    for seq in 0..=42 {
        with.push(
            aggregate::load_at::<Basket>(&client, STREAM, "b", seq)
                .await
                .unwrap(),
        );
    }
    client
        .execute("DELETE FROM lanekeeper.aggregate_snapshot", &[])
        .await
        .unwrap();
    for (seq, with) in (0..).zip(with) {
        let without = aggregate::load_at::<Basket>(&client, STREAM, "b", seq)
            .await
            .unwrap();
        assert_eq!(without, with);
        assert_eq!(without.version, seq);
    }
}

#[tokio::test]
async fn a_changed_fold_finds_no_snapshot_of_the_one_before_and_both_run_side_by_side() {
    let (_db, mut client) = bed().await;
    let order = Order::Add {
        item: "tea",
        count: 5,
    };
    for _ in 0..12 {
        aggregate::run::<Basket>(&mut client, STREAM, "b", &order, 1)
            .await
            .unwrap();
    }
    let lines = aggregate::load::<Lines>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!((lines.version, lines.state.lines), (12, 12));
    assert_eq!(
        aggregate::take_snapshots::<Lines>(&client, STREAM, "b")
            .await
            .unwrap(),
        1
    );
    let versions = "SELECT count(DISTINCT schema_version) FROM lanekeeper.aggregate_snapshot";
    assert_eq!(count(&client, versions).await, 2);
    let basket = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!(basket.state.items, 60);
    // After a week nobody has the old release.
    client
        .execute(
            "UPDATE lanekeeper.aggregate_snapshot SET taken_at = now() - interval '8 days'",
            &[],
        )
        .await
        .unwrap();
    append(&client, "b", 8).await;
    aggregate::take_snapshots::<Lines>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!(count(&client, versions).await, 1);
}

#[tokio::test]
async fn a_snapshot_that_is_broken_or_too_large_costs_time_and_nothing_else() {
    let (_db, mut client) = bed().await;
    aggregate::run::<Basket>(&mut client, STREAM, "b", &Order::AddEach(15), 1)
        .await
        .unwrap();
    client
        .execute(
            "UPDATE lanekeeper.aggregate_snapshot SET state = '{\"items\":'",
            &[],
        )
        .await
        .unwrap();
    let now = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!((now.version, now.state.items), (15, 15));
    let take = |state: &str, seq: i64| {
        format!(
            "SELECT lanekeeper.take_snapshot('baskets', 'b', 'basket', 1, {seq}, {state})::int::bigint"
        )
    };
    assert_eq!(count(&client, &take("repeat('x', 1048577)", 12)).await, 0);
    assert_eq!(count(&client, &take("'{}'", 12)).await, 1);
    for (call, code) in [
        (take("'{}'", 16), "LK006"),
        (take("NULL", 12), "LK006"),
        (take("'{}'", 12).replace("'basket'", "''"), "LK006"),
        (take("'{}'", 12).replace("'baskets'", "'none'"), "LK003"),
        (
            "SELECT * FROM lanekeeper.session_events('baskets', 'b', max_rows => 1001)".to_owned(),
            "LK006",
        ),
        (
            "SELECT * FROM lanekeeper.session_events('none', 'b')".to_owned(),
            "LK003",
        ),
    ] {
        let refused = client.query(&call, &[]).await.unwrap_err();
        assert_eq!(refused.code().map(|code| code.code()), Some(code), "{call}");
    }
}

/// What docs/aggregates.md grants.
const GRANTS: &str = "GRANT USAGE ON SCHEMA lanekeeper TO {role};
    GRANT EXECUTE ON FUNCTION
        lanekeeper.enqueue_at(text, text, bigint, text, jsonb, uuid, text, smallint, jsonb),
        lanekeeper.find_snapshot(text, text, text, int, bigint),
        lanekeeper.session_events(text, text, bigint, bigint, int, date),
        lanekeeper.take_snapshot(text, text, text, int, bigint, text)
    TO {role};";

#[tokio::test]
async fn a_role_needs_the_documented_grants_and_cannot_keep_snapshots_of_a_stream_that_is_not_its_own()
 {
    let (db, owner) = bed().await;
    let (mine, other) = (
        Role::stranger(&db, "a").await,
        Role::stranger(&db, "b").await,
    );
    for role in [&mine, &other] {
        owner
            .batch_execute(&GRANTS.replace("{role}", &role.name))
            .await
            .unwrap();
    }
    let set = format!(
        "SELECT lanekeeper.set_producers('baskets', ARRAY['{}'])",
        mine.name
    );
    owner.batch_execute(&set).await.unwrap();
    let (mut allowed, foreign) = (mine.connect().await, other.connect().await);
    aggregate::run::<Basket>(&mut allowed, STREAM, "b", &Order::AddEach(10), 1)
        .await
        .unwrap();
    let read = aggregate::load::<Basket>(&foreign, STREAM, "b")
        .await
        .unwrap();
    assert_eq!(read.state.items, 10);
    for (call, code) in [
        (
            "SELECT lanekeeper.take_snapshot('baskets', 'b', 'basket', 1, 5, '{}')",
            "LK009",
        ),
        ("SELECT state FROM lanekeeper.aggregate_snapshot", "42501"),
        ("SELECT payload FROM lanekeeper.kept_event", "42501"),
        ("SELECT lanekeeper.keep_events(current_date, 1)", "42501"),
    ] {
        let refused = foreign.query(call, &[]).await.unwrap_err();
        assert_eq!(refused.code().map(|code| code.code()), Some(code), "{call}");
    }
    drop((allowed, foreign));
    mine.drop_role(&db).await;
    other.drop_role(&db).await;
}
