//! E6: closing and reopening sessions over HTTP.

use reqwest::Method;
use serde_json::json;

use super::site::{Answer, Site};

async fn ask(site: &Site, path: &str, token: Option<&str>, body: &str) -> Answer {
    let mut request = site.request(Method::POST, path).body(body.to_owned());
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    Answer::of(request.send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_closes_and_reopens_a_session_and_nobody_else_does() {
    let site = Site::open(&[]).await;
    let event = r#"{"event_type":"a","payload":1}"#;
    site.post("s", event).await;
    let token = site.token(&["console", "--scope", "operate"]).await;
    let producer = site
        .token(&["ci", "--scope", "produce", "--scope", "read"])
        .await;
    let close = "/v1/sessions/runs/s/close";
    let reopen = "/v1/sessions/runs/s/reopen";
    for path in [close, reopen] {
        let refused = ask(&site, path, Some(&producer), "").await;
        refused.assert_problem(403, "forbidden");
        let refused = ask(&site, path, Some("lk_1_00"), "").await;
        refused.assert_problem(401, "unauthorized");
    }
    let operate = async |path: &str, body: &str| ask(&site, path, Some(&token), body).await;
    for bad in ["x", "[]", r#"{"reason":1}"#, r#"{"why":"x"}"#] {
        operate(close, bad).await.assert_problem(422, "invalid");
    }
    let long = json!({"reason": "x".repeat(2001)}).to_string();
    operate(close, &long).await.assert_problem(422, "invalid");
    let huge = json!({"reason": "x".repeat(100_000)}).to_string();
    operate(close, &huge)
        .await
        .assert_problem(413, "payload_too_large");
    operate("/v1/sessions/runs/other/close", "")
        .await
        .assert_problem(404, "not_found");

    let closed = operate(close, r#"{"reason":"it has ended"}"#).await;
    // It may have been delivered by now.
    assert!(
        closed.status == 200 && closed.body["expired"].is_i64(),
        "{:?}",
        closed.body
    );
    let again = operate(close, "").await;
    assert_eq!((again.status, &again.body), (200, &json!({"expired": 0})));
    let append = async || {
        let request = site
            .events(Method::POST, "runs", "s")
            .bearer_auth(&producer);
        Answer::of(request.body(event).send().await.unwrap()).await
    };
    let refused = append().await;
    refused.assert_problem(409, "session_closed");
    assert!(
        refused.body["detail"]
            .as_str()
            .unwrap()
            .contains("it has ended")
    );
    for reopened in [true, false] {
        let answer = operate(reopen, "").await;
        assert_eq!(
            (answer.status, &answer.body),
            (200, &json!({"reopened": reopened}))
        );
    }
    assert_eq!(append().await.status, 201);
    let wrong = site.request(Method::GET, close).bearer_auth(&token);
    Answer::of(wrong.send().await.unwrap())
        .await
        .assert_problem(405, "method_not_allowed");
}
