//! Typed events: old versions are read, unknown ones are named and lost nowhere.

use lanekeeper::aggregate::{self, TypedEvent};
use tokio_postgres::Client;

use super::{Basket, Happened, STREAM, bed};

async fn enqueue(client: &Client, event_type: &str, payload: &str) {
    let call = "SELECT lanekeeper.enqueue('baskets', 'b', $1, $2::text::jsonb)";
    client
        .execute(call, &[&event_type, &payload])
        .await
        .unwrap();
}

#[tokio::test]
async fn what_older_versions_wrote_is_folded_as_the_newest_would_say_it() {
    let (_db, client) = bed().await;
    enqueue(&client, "ItemAdded", r#"{"item":"tea"}"#).await;
    enqueue(&client, "ItemAdded.v2", r#"{"item":"milk","count":3}"#).await;
    let now = aggregate::load::<Basket>(&client, STREAM, "b")
        .await
        .unwrap();
    assert_eq!((now.version, now.state.items), (2, 4));
    assert_eq!(Happened::TYPES, ["ItemAdded.v2", "ItemAdded", "BasketPaid"]);
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_named_and_everything_before_it_still_is() {
    let (_db, client) = bed().await;
    enqueue(&client, "ItemAdded", r#"{"item":"tea"}"#).await;
    enqueue(&client, "ItemAdded.v3", r#"{"item":"tea","price":1}"#).await;
    let unknown = aggregate::load::<Basket>(&client, STREAM, "b").await;
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "event 2 of session \"b\" has the type \"ItemAdded.v3\", which this program does not know; it knows \
         ItemAdded.v2, ItemAdded, BasketPaid. Nothing was changed and the event stays as it is: run a release that knows it"
    );
    let before = aggregate::load_at::<Basket>(&client, STREAM, "b", 1)
        .await
        .unwrap();
    assert_eq!(before.state.items, 1);
    enqueue(&client, "ItemAdded.v2", r#"{"item":"milk"}"#).await;
    let read = Happened::read("ItemAdded.v2", r#"{"item":"milk"}"#)
        .err()
        .unwrap();
    assert_eq!(read.to_string(), "the payload is not of this event type");
    let events = "SELECT count(*) FROM lanekeeper.event";
    assert_eq!(super::count(&client, events).await, 3);
}
