//! Which tokens may see and do what: scopes, streams and sessions.

use serde_json::json;

use super::super::site::Site;
use super::{Operator, block, dead_letters, on_record};

#[tokio::test(flavor = "multi_thread")]
async fn to_see_needs_the_scope_read_and_to_act_the_scope_operate() {
    let site = Site::open(&[]).await;
    let lane = block(&site, "s", 1).await;
    let reader = Operator::with(&site, &["reader", "--scope", "read", "--scope", "produce"]).await;
    let actor = Operator::with(
        &site,
        &["actor", "--scope", "operate", "--scope", "produce"],
    )
    .await;
    for path in [
        "/v1/lanes".to_owned(),
        format!("/v1/lanes/{lane}"),
        "/v1/sessions".to_owned(),
        "/v1/sessions/runs/s".to_owned(),
        "/v1/sessions/runs/s/timeline".to_owned(),
        "/v1/subscriptions".to_owned(),
        "/v1/subscriptions/out".to_owned(),
        "/v1/dead-letters".to_owned(),
        "/v1/workers".to_owned(),
        "/v1/destinations".to_owned(),
    ] {
        assert_eq!(reader.get(&site, &path).await.status, 200, "{path}");
        actor
            .get(&site, &path)
            .await
            .assert_problem(403, "forbidden");
    }
    for (path, body) in [
        (format!("/v1/lanes/{lane}/park"), "{}"),
        ("/v1/sessions/runs/s/pause".to_owned(), "{}"),
        ("/v1/subscriptions/out/pause".to_owned(), "{}"),
        ("/v1/dead-letters/drop".to_owned(), r#"{"dead_ids":[1]}"#),
        (
            "/v1/destinations/reset".to_owned(),
            r#"{"destination":"x"}"#,
        ),
    ] {
        let refused = reader.post(&site, &path, body).await;
        refused.assert_problem(403, "forbidden");
    }
    assert_eq!(on_record(&site).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_other_streams_sees_nothing_of_this_one_and_changes_nothing() {
    let site = Site::open(&[]).await;
    let dead = dead_letters(&site, "s", 1).await[0];
    let lane = block(&site, "s", 1).await;
    let scopes = [
        "--scope", "read", "--scope", "operate", "--stream", "messages",
    ];
    let other = Operator::with(&site, &[&["other"], &scopes[..]].concat()).await;
    for (path, empty) in [
        ("/v1/lanes", json!({"lanes": []})),
        ("/v1/sessions", json!({"sessions": []})),
        ("/v1/subscriptions", json!({"subscriptions": []})),
        ("/v1/dead-letters", json!({"dead_letters": []})),
        (
            "/v1/destinations",
            json!({"destinations": [], "circuits": "workers"}),
        ),
    ] {
        assert_eq!(other.get(&site, path).await.body, empty, "{path}");
    }
    // As if there were none.
    for path in [
        format!("/v1/lanes/{lane}"),
        format!("/v1/dead-letters/{dead}"),
        "/v1/lanes?subscription=out".to_owned(),
        "/v1/subscriptions/out".to_owned(),
    ] {
        other
            .get(&site, &path)
            .await
            .assert_problem(404, "not_found");
    }
    // Named by their stream.
    for path in [
        "/v1/sessions?stream=runs",
        "/v1/sessions/runs/s",
        "/v1/sessions/runs/s/timeline",
        "/v1/dead-letters?stream=runs&session=s",
        "/v1/workers",
    ] {
        other
            .get(&site, path)
            .await
            .assert_problem(403, "forbidden");
    }
    let drop = json!({"dead_ids": [dead]}).to_string();
    for (path, body, status) in [
        (format!("/v1/lanes/{lane}/park"), "{}", 404),
        ("/v1/subscriptions/out/pause".to_owned(), "{}", 404),
        ("/v1/dead-letters/drop".to_owned(), &*drop, 404),
        ("/v1/dead-letters/requeue".to_owned(), &*drop, 404),
        ("/v1/sessions/runs/s/pause".to_owned(), "{}", 403),
    ] {
        assert_eq!(
            other.post(&site, &path, body).await.status,
            status,
            "{path}"
        );
    }
    assert_eq!(on_record(&site).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_one_session_sees_and_acts_on_that_one_alone() {
    let site = Site::open(&[]).await;
    let dead = [
        dead_letters(&site, "mine", 1).await[0],
        dead_letters(&site, "other", 1).await[0],
    ];
    let lanes = [
        block(&site, "mine", 1).await,
        block(&site, "other", 1).await,
    ];
    let scopes = [
        "--scope",
        "read",
        "--scope",
        "operate",
        "--stream",
        "runs",
        "--session",
        "mine",
    ];
    let bound = Operator::with(&site, &[&["bound"], &scopes[..]].concat()).await;
    for path in [
        "/v1/sessions/runs/mine".to_owned(),
        "/v1/sessions/runs/mine/timeline".to_owned(),
        format!("/v1/lanes/{}", lanes[0]),
        format!("/v1/dead-letters/{}", dead[0]),
        "/v1/dead-letters?stream=runs&session=mine".to_owned(),
    ] {
        assert_eq!(bound.get(&site, &path).await.status, 200, "{path}");
    }
    for (path, status) in [
        ("/v1/sessions/runs/other".to_owned(), 403),
        ("/v1/dead-letters?stream=runs&session=other".to_owned(), 403),
        (format!("/v1/lanes/{}", lanes[1]), 404),
        (format!("/v1/dead-letters/{}", dead[1]), 404),
        ("/v1/lanes".to_owned(), 403),
        ("/v1/sessions".to_owned(), 403),
        ("/v1/dead-letters".to_owned(), 403),
        ("/v1/subscriptions".to_owned(), 403),
        ("/v1/subscriptions/out".to_owned(), 403),
        ("/v1/destinations".to_owned(), 403),
        ("/v1/workers".to_owned(), 403),
    ] {
        assert_eq!(bound.get(&site, &path).await.status, status, "{path}");
    }
    // All or nothing: the other one stops both.
    let both = json!({"dead_ids": dead}).to_string();
    for (path, body, status) in [
        (format!("/v1/lanes/{}/park", lanes[1]), "{}", 404),
        ("/v1/dead-letters/drop".to_owned(), &*both, 404),
        ("/v1/sessions/runs/other/pause".to_owned(), "{}", 403),
        ("/v1/subscriptions/out/pause".to_owned(), "{}", 403),
        (
            "/v1/destinations/reset".to_owned(),
            r#"{"destination":"x"}"#,
            403,
        ),
    ] {
        assert_eq!(
            bound.post(&site, &path, body).await.status,
            status,
            "{path}"
        );
    }
    assert_eq!(on_record(&site).await, []);
    let park = format!("/v1/lanes/{}/park", lanes[0]);
    assert_eq!(bound.post(&site, &park, "").await.status, 200);
    let own = json!({"dead_ids": [dead[0]]}).to_string();
    assert_eq!(
        bound
            .post(&site, "/v1/dead-letters/drop", &own)
            .await
            .status,
        200
    );
}
