//! Commands: decided on the state at a version, and appended at that version or not at all.

use lanekeeper::aggregate::{self, AggregateError, CommandError};
use tokio_postgres::{Client, IsolationLevel};

use super::{Basket, IsPaid, Order, STREAM, bed, count};

const TEA: Order = Order::Add {
    item: "tea",
    count: 2,
};

async fn run(
    client: &mut Client,
    order: &Order,
) -> Result<aggregate::Executed<Basket>, CommandError<IsPaid>> {
    aggregate::run::<Basket>(client, STREAM, "b", order, 1).await
}

/// In a transaction of its own.
async fn expecting(
    client: &mut Client,
    order: &Order,
    version: i64,
) -> Result<aggregate::Executed<Basket>, CommandError<IsPaid>> {
    let transaction = client.transaction().await.unwrap();
    let executed =
        aggregate::execute::<Basket>(&transaction, STREAM, "b", order, Some(version)).await?;
    transaction.commit().await.unwrap();
    Ok(executed)
}

#[tokio::test]
async fn a_command_appends_what_it_decides_on_the_state_that_the_log_tells() {
    let (_db, mut client) = bed().await;
    let new = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!((new.version, &new.state), (0, &Basket::default()));
    let executed = run(&mut client, &Order::AddEach(3)).await.unwrap();
    let seqs: Vec<i64> = executed.events.iter().map(|event| event.seq).collect();
    assert_eq!((executed.version, seqs), (3, vec![1, 2, 3]));
    run(&mut client, &Order::Pay).await.unwrap();
    let refused = run(&mut client, &TEA).await.unwrap_err();
    assert!(
        matches!(refused, CommandError::Refused(IsPaid)),
        "{refused}"
    );
    let nothing = run(&mut client, &Order::Pay).await.unwrap();
    assert_eq!((nothing.version, nothing.events.len()), (4, 0));
    let now = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!(now.state, nothing.state);
    let paid = Basket {
        items: 3,
        paid: true,
    };
    assert_eq!((now.version, now.state), (4, paid));
    let then = aggregate::load_at::<Basket>(&client, STREAM, "b", 2)
        .await
        .unwrap();
    assert_eq!((then.version, then.state.items), (2, 2));
    let not_yet = aggregate::load_at::<Basket>(&client, STREAM, "b", 5).await;
    let not_yet = not_yet.unwrap_err().to_string();
    assert_eq!(
        not_yet,
        "session \"b\" is at event 4, and has no event 5 yet"
    );
    let foreign = aggregate::load::<Basket>(&client, "baskts", "b").await;
    let Err(AggregateError::Store(error)) = foreign else {
        panic!("there is no such stream");
    };
    assert_eq!(error.sqlstate(), Some("LK003"));
}

#[tokio::test]
async fn a_command_that_expects_another_version_changes_nothing_and_is_told_the_version() {
    let (db, mut client) = bed().await;
    expecting(&mut client, &Order::AddEach(2), 0).await.unwrap();
    for version in [0, 1, 3] {
        let refused = expecting(&mut client, &TEA, version).await.unwrap_err();
        assert!(
            matches!(refused, CommandError::Conflict { version: 2 }),
            "{refused}"
        );
    }
    // It sees the version that it expects, and somebody appends before it does.
    let mut other = db.connect().await;
    let transaction = client.transaction().await.unwrap();
    aggregate::execute::<Basket>(&transaction, STREAM, "b", &TEA, Some(2))
        .await
        .unwrap();
    let waits = tokio::spawn(async move {
        let refused = expecting(&mut other, &Order::AddEach(4), 2).await;
        refused.map(|executed| executed.version)
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let watcher = db.connect().await;
    crate::support::wait_until(std::time::Duration::from_secs(30), "it waits", async || {
        count(&watcher, waiting).await == 1
    })
    .await;
    transaction.commit().await.unwrap();
    let refused = waits.await.unwrap().unwrap_err();
    assert!(
        matches!(refused, CommandError::Conflict { version: 3 }),
        "{refused}"
    );
    let now = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!(
        (now.version, now.state.items),
        (3, 4),
        "none of its four events is there"
    );
}

#[tokio::test]
async fn at_repeatable_read_a_command_that_was_overtaken_fails_and_changes_nothing() {
    let (db, mut client) = bed().await;
    let mut other = db.connect().await;
    run(&mut client, &TEA).await.unwrap();
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .start()
        .await
        .unwrap();
    aggregate::load::<Basket>(&transaction, STREAM, "b")
        .await
        .unwrap();
    run(&mut other, &TEA).await.unwrap();
    let executed = aggregate::execute::<Basket>(&transaction, STREAM, "b", &TEA, None).await;
    let Err(CommandError::Append(error)) = executed else {
        panic!("its snapshot is from before");
    };
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        source.contains("40001") || format!("{error:?}").contains("40001"),
        "{error:?}"
    );
    transaction.rollback().await.unwrap();
    let now = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!(now.version, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_run_at_once_are_all_decided_on_what_the_one_before_left() {
    let (db, mut client) = bed().await;
    let mut running = Vec::new();
    for _ in 0..8 {
        let mut client = db.connect().await;
        running.push(tokio::spawn(async move {
            for _ in 0..10 {
                aggregate::run::<Basket>(&mut client, STREAM, "b", &TEA, 200)
                    .await
                    .unwrap();
            }
        }));
    }
    for one in running {
        one.await.unwrap();
    }
    let now = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!((now.version, now.state.items), (80, 160));
    let first = run(&mut client, &Order::Pay).await.unwrap();
    assert_eq!(first.version, 81);
}

#[tokio::test]
async fn a_fold_or_a_decision_that_panics_is_an_error_that_says_where_and_appends_nothing() {
    let (_db, mut client) = bed().await;
    run(&mut client, &TEA).await.unwrap();
    for (item, said) in [
        (
            "bomb",
            "basket panicked while it folded ItemAdded.v2 (session \"b\", event 2): it went off. Nothing was changed",
        ),
        (
            "riddle",
            "basket panicked while it decided (session \"b\", event 1): it has no answer. Nothing was changed",
        ),
    ] {
        let order = Order::Add { item, count: 1 };
        let panicked = run(&mut client, &order).await.unwrap_err();
        assert_eq!(panicked.to_string(), said);
        let now = aggregate::load::<Basket>(&client, STREAM, "b")
            .await
            .unwrap();
        assert_eq!(now.version, 1);
    }
    // One that is in the log already is found by each fold, and stays.
    client
        .execute(
            "SELECT lanekeeper.enqueue('baskets', 'b', 'ItemAdded', '{\"item\":\"bomb\"}')",
            &[],
        )
        .await
        .unwrap();
    let panicked = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap_err();
    assert!(
        matches!(panicked, AggregateError::Panicked { seq: 2, .. }),
        "{panicked}"
    );
    let before = aggregate::load_at::<Basket>(&client, STREAM, "b", 1)
        .await
        .unwrap();
    assert_eq!(before.state.items, 2);
}

#[tokio::test]
async fn a_command_of_a_transaction_that_is_rolled_back_leaves_neither_event_nor_snapshot() {
    let (_db, mut client) = bed().await;
    let transaction = client.transaction().await.unwrap();
    let order = Order::AddEach(25);
    aggregate::execute::<Basket>(&transaction, STREAM, "b", &order, None)
        .await
        .unwrap();
    let taken = "SELECT count(*) FROM lanekeeper.aggregate_snapshot";
    assert_eq!(
        transaction
            .query_one(taken, &[])
            .await
            .unwrap()
            .get::<_, i64>(0),
        1
    );
    transaction.rollback().await.unwrap();
    assert_eq!(count(&client, taken).await, 0);
    let now = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!(now.version, 0);
}
