//! Streams that are deleted, expire, are created again, or whose beginning is gone.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{JSON, append, ask, create, header, site};
use crate::api::site::Answer;
use crate::process::plant::LIMIT;
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_used_again_begins_behind_what_was_there_and_old_offsets_are_gone() {
    let site = site().await;
    create(&site, "runs/r1").await;
    let first = append(&site, "runs/r1", "[1,2]").await;
    let delete = ask(&site, Method::DELETE, "runs/r1", &[], "").await;
    assert_eq!(delete.status(), 204);
    assert_eq!(
        ask(&site, Method::DELETE, "runs/r1", &[], "")
            .await
            .status(),
        404
    );
    assert_eq!(
        ask(&site, Method::POST, "runs/r1", &[JSON], "3")
            .await
            .status(),
        404
    );
    create(&site, "runs/r1").await;
    let second = append(&site, "runs/r1", "3").await;
    assert!(second > first);
    let read: Value = super::json(ask(&site, Method::GET, "runs/r1", &[], "").await).await;
    assert_eq!(read, json!([3]));
    let old = ask(
        &site,
        Method::GET,
        "runs/r1?offset=0000000000000000001",
        &[],
        "",
    )
    .await;
    Answer::of(old).await.assert_problem(410, "gone");
    let ahead = ask(
        &site,
        Method::GET,
        "runs/r1?offset=0000000000000000009",
        &[],
        "",
    )
    .await;
    Answer::of(ahead).await.assert_problem(400, "bad_request");
    // What was appended before the deletion was promised to its subscriptions.
    site.plant.settled().await;
    assert_eq!(site.plant.assert_complete(1, 3), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_an_operator_closed_is_not_opened_by_creating_its_stream() {
    let site = site().await;
    create(&site, "runs/r1").await;
    let close = site.request(Method::POST, "/v1/sessions/runs/r1/close");
    assert_eq!(close.send().await.unwrap().status(), 200);
    assert_eq!(
        ask(&site, Method::PUT, "runs/r1", &[JSON], "")
            .await
            .status(),
        409
    );
    assert_eq!(
        ask(&site, Method::DELETE, "runs/r1", &[], "")
            .await
            .status(),
        204
    );
    assert_eq!(
        ask(&site, Method::PUT, "runs/r1", &[JSON], "")
            .await
            .status(),
        409
    );
    let closed =
        "SELECT count(*) FROM lanekeeper.session WHERE name = 'r1' AND closed_at IS NOT NULL";
    assert_eq!(site.plant.count(closed).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_stream_that_is_deleted_are_not_told_that_it_ended_and_of_a_closed_one_are() {
    let site = site().await;
    for (name, method, headers, says) in [
        ("runs/deleted", Method::DELETE, vec![], false),
        (
            "runs/closed",
            Method::POST,
            vec![("stream-closed", "true")],
            true,
        ),
    ] {
        create(&site, name).await;
        append(&site, name, "1").await;
        let sse = ask(
            &site,
            Method::GET,
            &format!("{name}?offset=-1&live=sse"),
            &[],
            "",
        )
        .await;
        assert_eq!(sse.status(), 200);
        let path = format!("{name}?offset=now&live=long-poll");
        let poll = ask(&site, Method::GET, &path, &[], "");
        let end = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(ask(&site, method, name, &headers, "").await.status(), 204);
        };
        let (poll, ()) = tokio::join!(poll, end);
        assert_eq!(poll.status(), 204);
        assert_eq!(header(&poll, "stream-closed") == "true", says, "{name}");
        let text = tokio::time::timeout(LIMIT, sse.text())
            .await
            .unwrap()
            .unwrap();
        assert!(text.contains("data:[1]"), "{text}");
        assert_eq!(text.contains("streamClosed"), says, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_first_days_were_dropped_is_read_from_its_first_kept_event_or_answered_with_410()
 {
    let site = site().await;
    create(&site, "runs/r1").await;
    append(&site, "runs/r1", "[1,2,3]").await;
    site.plant.settled().await;
    // As retention drops a day: here its events go one by one.
    site.plant
        .client
        .batch_execute("DELETE FROM lanekeeper.event WHERE seq < 3")
        .await
        .unwrap();
    let read: Value = super::json(ask(&site, Method::GET, "runs/r1", &[], "").await).await;
    assert_eq!(read, json!([3]));
    for live in ["", "&live=long-poll", "&live=sse"] {
        let path = format!("runs/r1?offset=0000000000000000001{live}");
        let gone = ask(&site, Method::GET, &path, &[], "").await;
        Answer::of(gone).await.assert_problem(410, "gone");
    }
    let sse = ask(&site, Method::GET, "runs/r1?offset=-1&live=sse", &[], "").await;
    let mut sse = sse;
    let mut text = String::new();
    wait_until(LIMIT, "what is kept comes", async || {
        if let Ok(Ok(Some(chunk))) = tokio::time::timeout(Duration::from_secs(1), sse.chunk()).await
        {
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
        text.contains("upToDate")
    })
    .await;
    assert!(text.contains("data:[3]"), "{text}");
}
