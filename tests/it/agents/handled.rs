//! C9: a stream that acknowledges `on_handled` acknowledges what its subscriptions have handled.

use lanekeeper_adapters::fake::Fake;
use lanekeeper_core::adapter::Verdict;
use lanekeeper_postgres::frames;
use serde_json::json;
use uuid::Uuid;

use super::inbox::{message, post};
use crate::api::site::Site;
use crate::command::run;
use crate::engine::bed::{Bed, LIMIT, Sub};
use crate::support::{Instead, wait_until};

async fn handled(bed: &Bed, session: &str, event_type: &str) -> Vec<i64> {
    let events: Vec<(i64, &str)> = (1..=3).map(|seq| (seq, event_type)).collect();
    frames::handled(&bed.client, "runs", session, &events)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_handles_or_a_handler_gave_up_is_not_handled() {
    let mut bed = Bed::bare().await;
    bed.enqueue("alone", "step").await;
    assert_eq!(
        handled(&bed, "alone", "step").await,
        [0; 0],
        "nobody gets it"
    );
    assert_eq!(handled(&bed, "none", "step").await, [0; 0]);
    for (name, events) in [("out", None), ("filtered", Some(vec!["other"]))] {
        bed.subscribe(&Sub {
            name,
            events,
            ..Sub::default()
        })
        .await;
    }
    bed.fake = Fake::answering(|delivery| match delivery.event.seq {
        2 => Verdict::Rejected {
            error: "no".to_owned(),
        },
        _ => Verdict::Accepted,
    });
    bed.fake.hold("s1");
    let worker = bed.worker().await;
    bed.enqueue_bulk(1, 3).await;
    bed.fake.wait_for(1).await;
    assert_eq!(
        handled(&bed, "s1", "step").await,
        [0; 0],
        "it is being handled"
    );
    bed.fake.release("s1");
    wait_until(LIMIT, "the first and the third are handled", async || {
        handled(&bed, "s1", "step").await == [1, 3]
    })
    .await;
    assert_eq!(
        handled(&bed, "s1", "nobody's").await,
        [1, 3],
        "of the one without a filter"
    );
    bed.client
        .batch_execute("UPDATE lanekeeper.subscription SET events = '{other}'")
        .await
        .unwrap();
    assert_eq!(handled(&bed, "s1", "step").await, [0; 0], "nobody gets it");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_comes_when_the_handler_has_succeeded() {
    let site = Site::open(&[]).await;
    let file = "[stream.runs]\nacknowledge = \"on_handled\"\nretry = { schedule = [\"100ms\"] }\n";
    let applied = run(
        &["apply", "-f", "-"],
        &[("DATABASE_URL", &site.plant.url)],
        file,
    )
    .await;
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    let token = site.token(&["alice", "--scope", "produce"]).await;
    site.plant.receiver.answer_once(Instead::Fail);
    let id = Uuid::now_v7();
    let frame = message(id, "s", &json!(1)).to_string();
    for _ in 0..2 {
        let answer = post(&site, "runs", &token, frame.clone()).await;
        assert_eq!((answer.status, &answer.body["ids"]), (200, &json!([id])));
        let seen = site.plant.receiver.seen();
        assert_eq!((seen.arrivals.len(), seen.turned_away.len()), (1, 1));
    }
    let wrong = "[stream.runs]\nacknowledge = \"sometimes\"\n";
    let refused = run(
        &["apply", "-f", "-"],
        &[("DATABASE_URL", &site.plant.url)],
        wrong,
    )
    .await;
    assert!(refused.stderr.contains("on_handled"), "{}", refused.stderr);
}
