//! A token that is bound to sessions (`--session`): what it may do with its own, and that it may do none of it with others.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::site::{Answer, Site};

const MINE: [&str; 2] = ["mine", "note/mine"];

/// A site with a token of all scopes that is bound to [`MINE`].
async fn site() -> (Site, String) {
    let site = Site::open(&[]).await;
    let scopes = [
        "--scope", "produce", "--scope", "operate", "--scope", "read",
    ];
    let sessions = MINE.map(|session| ["--session", session]).concat();
    let token = site
        .token(&[&["bound"], &scopes[..], &sessions].concat())
        .await;
    (site, token)
}

async fn ask(site: &Site, method: Method, path: &str, token: &str, body: &Value) -> Answer {
    let request = site.request(method, path).bearer_auth(token);
    let request = request.header("content-type", "application/json");
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    Answer::of(request.body(body).send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_interrupts_writes_to_and_binds_its_own_sessions_and_no_others() {
    let (site, token) = site().await;
    let interrupt = json!({"event_type": "stop", "payload": 1});
    let message = json!({"origin": "test", "content": "hi"});
    let bind = json!({"host": "laptop"});
    for (before, after, body, expected) in [
        ("/v1/streams/runs/sessions/", "/interrupt", interrupt, 201),
        ("/v1/inbound/", "", message, 201),
        ("/v1/sessions/runs/", "/bind", bind, 200),
    ] {
        for session in ["other", "mine2", "note%2Fmine2", "min"] {
            let path = format!("{before}{session}{after}");
            let refused = ask(&site, Method::POST, &path, &token, &body).await;
            refused.assert_problem(403, "forbidden");
        }
        let path = format!("{before}mine{after}");
        let done = ask(&site, Method::POST, &path, &token, &body).await;
        assert_eq!(done.status, expected, "{path}: {}", done.body);
    }
    let others = "SELECT count(*) FROM lanekeeper.session AS s WHERE s.name <> 'mine'";
    assert_eq!(site.plant.count(others).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_changes_and_reads_its_own_documents_and_no_others() {
    let (site, token) = site().await;
    let operator = site.token(&["all", "--scope", "produce"]).await;
    let put = json!({"a": 1});
    let other = "/v1/documents/note/other";
    let put_other = ask(&site, Method::PUT, other, &operator, &put).await;
    assert_eq!(put_other.status, 201);
    for (method, after, body, expected) in [
        (Method::PUT, "", put.clone(), 201),
        (Method::GET, "", Value::Null, 200),
        (Method::PATCH, "", json!({"a": 2}), 200),
        (Method::GET, "/history", Value::Null, 200),
        (Method::DELETE, "", Value::Null, 200),
    ] {
        let refused = ask(
            &site,
            method.clone(),
            &format!("{other}{after}"),
            &token,
            &body,
        )
        .await;
        refused.assert_problem(403, "forbidden");
        let path = format!("/v1/documents/note/mine{after}");
        let done = ask(&site, method.clone(), &path, &token, &body).await;
        assert_eq!(done.status, expected, "{method} {path}: {}", done.body);
    }
    let all = ask(
        &site,
        Method::GET,
        "/v1/documents/note",
        &token,
        &Value::Null,
    )
    .await;
    all.assert_problem(403, "forbidden");

    let document = |id: &str| json!({"kind": "note", "id": id, "body": 1});
    let mine = json!([document("mine")]);
    let done = ask(&site, Method::POST, "/v1/documents", &token, &mine).await;
    assert_eq!(done.status, 200, "{}", done.body);
    let both = json!([document("mine"), document("other")]);
    let refused = ask(&site, Method::POST, "/v1/documents", &token, &both).await;
    refused.assert_problem(403, "forbidden");
    for hidden in [
        // Postgres would take the last one.
        r#"[{"kind":"note","id":"mine","id":"other","body":1}]"#,
        r#"[{"kind":"note","id":["other"],"body":1}]"#,
        r#"{"kind":"note","id":"other","body":1}"#,
        "[1]",
    ] {
        let request = site
            .request(Method::POST, "/v1/documents")
            .bearer_auth(&token);
        let refused = Answer::of(request.body(hidden).send().await.unwrap()).await;
        refused.assert_problem(422, "invalid");
    }
    let versions = "SELECT count(*) FROM lanekeeper.document_version AS v
                    JOIN lanekeeper.session AS s ON s.session_id = v.session_id WHERE s.name = 'note/other'";
    assert_eq!(site.plant.count(versions).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_frames_are_for_its_own_sessions_or_none_of_the_request_is_appended() {
    let (site, token) = site().await;
    let frame = |session: &str| json!({"v": 1, "type": "EVENT", "id": Uuid::now_v7(), "session": session, "name": "note", "data": 1});
    let path = "/v1/agents/runs/frames";
    let refused = ask(&site, Method::POST, path, &token, &frame("other")).await;
    refused.assert_problem(403, "forbidden");
    let batch = json!({"v": 1, "type": "BATCH", "frames": [frame("other"), frame("other")]});
    let refused = ask(&site, Method::POST, path, &token, &batch).await;
    refused.assert_problem(403, "forbidden");
    assert_eq!(site.logged_events().await, 0);
    let taken = ask(&site, Method::POST, path, &token, &frame("mine")).await;
    assert_eq!(taken.status, 200, "{}", taken.body);
    assert_eq!(site.logged_events().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_cancels_messages_of_its_own_sessions_and_acknowledges_none() {
    let (site, token) = site().await;
    let mut ids = Vec::new();
    for session in ["mine", "other"] {
        let append = "SELECT message_id FROM lanekeeper.enqueue('runs', $1, 'a', '1')";
        let row = site
            .plant
            .client
            .query_one(append, &[&session])
            .await
            .unwrap();
        ids.push(row.get::<_, Uuid>(0));
    }
    let cancel = async |id: Uuid, place: &str| {
        let path = format!("/v1/messages/{id}/cancel{place}");
        ask(&site, Method::POST, &path, &token, &Value::Null).await
    };
    for place in ["", "?stream=runs&session=other"] {
        cancel(ids[1], place).await.assert_problem(403, "forbidden");
    }
    let hidden = cancel(ids[1], "?stream=runs&session=mine").await;
    assert_eq!(hidden.body["result"], "unknown", "{}", hidden.body);
    let done = cancel(ids[0], "?stream=runs&session=mine").await;
    // It may be under way, or delivered, by now.
    let result = done.body["result"].as_str().unwrap();
    assert!(
        ["cancelled", "running", "already_settled"].contains(&result),
        "{result}"
    );
    let marked = "SELECT count(*) FROM lanekeeper.event AS e JOIN lanekeeper.session AS s ON s.session_id = e.session_id
                  WHERE s.name = 'other' AND e.headers ? 'lanekeeper-cancelled'";
    assert_eq!(site.plant.count(marked).await, 0);

    // A message id says nothing of its session.
    let one = format!("/v1/acks/{}", ids[0]);
    for (path, body) in [(one.as_str(), Value::Null), ("/v1/acks", json!(ids))] {
        let refused = ask(&site, Method::POST, path, &token, &body).await;
        refused.assert_problem(403, "forbidden");
    }
}
