//! F5: state that is kept nowhere but in the log, folded by types of a program's own.

mod commands;
mod events;
mod kept;
mod snapshots;

use lanekeeper::aggregate::Aggregate;
use lanekeeper::subscription::{self, SubscriptionFile};
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use crate::support::TestDb;

const STREAM: &str = "baskets";

#[derive(Serialize, Deserialize)]
struct Added {
    item: String,
    count: u32,
}

/// Before it had a count.
#[derive(Deserialize)]
struct AddedV1 {
    item: String,
}

impl From<AddedV1> for Added {
    fn from(AddedV1 { item }: AddedV1) -> Self {
        Self { item, count: 1 }
    }
}

#[derive(Serialize, Deserialize)]
struct Paid {}

lanekeeper::aggregate::events! {
    enum Happened {
        Added(Added) = "ItemAdded.v2", "ItemAdded" => AddedV1;
        Paid(Paid) = "BasketPaid";
    }
}

/// Version 1 of the fold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Basket {
    items: u64,
    paid: bool,
}

enum Order {
    Add { item: &'static str, count: u32 },
    AddEach(u32),
    Pay,
}

#[derive(Debug, PartialEq, Eq)]
struct IsPaid;

impl std::fmt::Display for IsPaid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the basket is paid")
    }
}

impl std::error::Error for IsPaid {}

impl Aggregate for Basket {
    const NAME: &'static str = "basket";
    const SCHEMA_VERSION: i32 = 1;
    const SNAPSHOT_EVERY: u32 = 10;
    type Event = Happened;
    type Command = Order;
    type Error = IsPaid;

    fn apply(&mut self, event: &Happened) {
        match event {
            Happened::Added(Added { item, count }) => {
                assert!(item != "bomb", "it went off");
                self.items += u64::from(*count);
            }
            Happened::Paid(Paid {}) => self.paid = true,
        }
    }

    fn decide(&self, order: &Order) -> Result<Vec<Happened>, IsPaid> {
        let added = |item: &str, count| {
            let item = item.to_owned();
            Happened::Added(Added { item, count })
        };
        match order {
            Order::Pay if self.paid => Ok(Vec::new()),
            Order::Pay => Ok(vec![Happened::Paid(Paid {})]),
            _ if self.paid => Err(IsPaid),
            Order::Add { item: "riddle", .. } => panic!("it has no answer"),
            Order::Add { item, count } => Ok(vec![added(item, *count)]),
            Order::AddEach(count) => Ok((0..*count).map(|_| added("tea", 1)).collect()),
        }
    }
}

/// A database with the stream, whose events are kept.
async fn bed() -> (TestDb, Client) {
    let db = TestDb::new().await;
    let mut client = db.connect().await;
    // What a file does not say stays as it is.
    for text in ["[stream.baskets]\nkeep_events = true", "[stream.baskets]"] {
        let file = SubscriptionFile::parse(text, "baskets.toml").unwrap();
        subscription::apply(&mut client, false, |current| file.plan(current, false))
            .await
            .unwrap();
    }
    (db, client)
}

async fn count(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap().get(0)
}

/// Appends events as any producer does: so many, each with one item.
async fn append(client: &Client, session: &str, events: i64) {
    client
        .execute(
            "SELECT count(*) FROM lanekeeper.enqueue_many('baskets', (
                 SELECT jsonb_agg(jsonb_build_object('session', $1::text, 'event_type', 'ItemAdded.v2',
                     'payload', jsonb_build_object('item', 'tea', 'count', 1)))
                 FROM generate_series(1, $2::bigint)))",
            &[&session, &events],
        )
        .await
        .unwrap();
}
