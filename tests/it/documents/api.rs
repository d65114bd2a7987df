//! `/v1/documents`.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::api::site::{Answer, Site};

/// Status, ETag and body.
async fn read(response: Response) -> (u16, Option<String>, Value) {
    let status = response.status().as_u16();
    let tag = response.headers().get("etag");
    let tag = tag.map(|tag| tag.to_str().unwrap().to_owned());
    let body = response.bytes().await.unwrap();
    (
        status,
        tag,
        serde_json::from_slice(&body).unwrap_or(Value::Null),
    )
}

async fn ask(
    site: &Site,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Option<String>, Value) {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = site.request(method, &format!("/v1/documents{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    read(request.body(body.to_owned()).send().await.unwrap()).await
}

const PATCH: (&str, &str) = ("content-type", "application/merge-patch+json");

#[tokio::test(flavor = "multi_thread")]
async fn a_document_lives_over_http_with_its_version_as_its_etag() {
    let site = Site::open(&[]).await;
    let path = "/commitment/a%2Fb%20%C3%BC";
    let tag = |version: i64| Some(format!("\"{version}\""));
    let (status, etag, written) = ask(
        &site,
        "PUT",
        path,
        &[("if-none-match", "*")],
        r#"{"text":"x","done":false}"#,
    )
    .await;
    assert_eq!((status, etag), (201, tag(1)), "{written}");
    assert_eq!(
        (&written["version"], &written["seq"]),
        (&json!(1), &json!(1))
    );
    let (status, etag, body) = ask(&site, "GET", path, &[], "").await;
    assert_eq!((status, etag), (200, tag(1)));
    assert_eq!(body, json!({"text": "x", "done": false}));
    let unchanged = ask(&site, "GET", path, &[("if-none-match", "W/\"1\"")], "").await;
    assert_eq!((unchanged.0, unchanged.1), (304, tag(1)));
    let patched = ask(
        &site,
        "PATCH",
        path,
        &[PATCH, ("if-match", "\"1\"")],
        r#"{"done":true,"text":null}"#,
    )
    .await;
    assert_eq!((patched.0, patched.1), (200, tag(2)));
    let put = ask(
        &site,
        "PUT",
        &format!("{path}?event_type=Own"),
        &[("if-match", "*")],
        "[1]",
    )
    .await;
    assert_eq!((put.0, put.1), (200, tag(3)));
    let old = ask(&site, "GET", &format!("{path}?version=2"), &[], "").await;
    assert_eq!((old.1, old.2), (tag(2), json!({"done": true})));
    let deleted = ask(&site, "DELETE", path, &[("if-match", "\"3\"")], "").await;
    assert_eq!((deleted.0, deleted.2["version"].as_i64()), (200, Some(4)));
    let gone = ask(&site, "GET", path, &[], "").await;
    assert_eq!((gone.0, &gone.2["code"]), (404, &json!("not_found")));
    assert!(
        gone.2["detail"]
            .as_str()
            .unwrap()
            .contains("deleted, as version 4"),
        "{}",
        gone.2
    );
    let (_, _, history) = ask(&site, "GET", &format!("{path}/history?limit=3"), &[], "").await;
    let types: Vec<_> = history["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["event_type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["DocumentDeleted", "Own", "DocumentUpdated"]);
    assert_eq!(history["next"], 2);
    let at = history["versions"][2]["changed_at"].as_str().unwrap();
    let then = ask(&site, "GET", &format!("{path}?at={at}"), &[], "").await;
    assert_eq!(then.2, json!({"done": true}));
    let sessions = "SELECT count(*) FROM lanekeeper.session WHERE name = 'commitment/a/b ü'";
    assert_eq!(site.plant.count(sessions).await, 1);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_not_expected_is_told_the_version_and_changes_nothing() {
    let site = Site::open(&[]).await;
    let path = "/k/c1";
    assert_eq!(
        ask(&site, "PUT", path, &[("if-match", "*")], "1").await.0,
        412
    );
    for _ in 0..2 {
        ask(&site, "PUT", path, &[], "1").await;
    }
    for (method, headers) in [
        ("PUT", &[("if-match", "\"1\"")][..]),
        ("PUT", &[("if-none-match", "*")]),
        ("DELETE", &[("if-match", "\"3\"")]),
        ("PATCH", &[PATCH, ("if-match", "\"1\"")]),
    ] {
        let body = if method == "DELETE" { "" } else { "{}" };
        let (status, etag, problem) = ask(&site, method, path, headers, body).await;
        assert_eq!(
            (status, &problem["code"]),
            (412, &json!("version_conflict")),
            "{method}"
        );
        assert_eq!(
            (&problem["version"], etag.as_deref()),
            (&json!(2), Some("\"2\""))
        );
    }
    for (method, path, headers, body, status) in [
        ("PUT", "/k/c1", &[("if-match", "2")][..], "1", 422),
        ("PUT", "/k/c1", &[("if-match", "\"1\", \"2\"")], "1", 422),
        ("PUT", "/k/c1", &[("if-none-match", "\"2\"")], "1", 422),
        ("PUT", "/k/c1", &[], "", 422),
        ("PUT", "/k/c1", &[], "{", 422),
        ("PUT", "/k/c1", &[], "\"\\u0000\"", 422),
        ("PUT", "/k/c1?event_type=DocumentDeleted", &[], "1", 422),
        ("PUT", "/k/c1?version=1", &[], "1", 422),
        ("PATCH", "/k/c1", &[], "{}", 415),
        ("PATCH", "/k/none", &[PATCH], "{}", 404),
        ("DELETE", "/k/none", &[], "", 404),
        ("DELETE", "/k/c1", &[], "{}", 422),
        ("GET", "/k/none", &[], "", 404),
        ("GET", "/k/c1?version=9", &[], "", 404),
        (
            "GET",
            "/k/c1?version=1&at=2026-01-01T00:00:00Z",
            &[],
            "",
            422,
        ),
        ("GET", "/k?limit=0", &[], "", 422),
        ("GET", "/k?limit=1001", &[], "", 422),
        ("PUT", "/a%2Fb/c1", &[], "1", 422),
        ("GET", "/k/%00", &[], "", 422),
        ("POST", "/k/c1", &[], "1", 405),
        ("POST", "", &[], "{}", 422),
        (
            "POST",
            "",
            &[],
            r#"[{"kind":"k","id":"n","body":1},{"kind":"k","id":"c1","body":1,"expected_version":1}]"#,
            412,
        ),
    ] {
        let answer = ask(&site, method, path, headers, body).await;
        assert_eq!(
            answer.0, status,
            "{method} {path} {headers:?} {body} {}",
            answer.2
        );
    }
    assert_eq!(site.logged_events().await, 2);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_changed_at_once_and_listed_by_the_page() {
    let site = Site::open(&[]).await;
    let documents: Vec<_> = (0..7)
        .map(|n| json!({"kind": "k", "id": format!("d{n}"), "body": n}))
        .collect();
    let (status, _, written) =
        ask(&site, "POST", "", &[], &Value::from(documents).to_string()).await;
    assert_eq!(
        (status, written.as_array().unwrap().len()),
        (200, 7),
        "{written}"
    );
    let (_, _, first) = ask(&site, "GET", "/k?limit=5", &[], "").await;
    assert_eq!(first["next"], "d4");
    let (_, _, second) = ask(&site, "GET", "/k?limit=5&after=d4", &[], "").await;
    let ids: Vec<_> = second["documents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(
        (ids, second.get("next")),
        (vec![&json!("d5"), &json!("d6")], None)
    );
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_reads_or_changes_documents_as_far_as_its_scope_and_stream_go() {
    let site = Site::open(&[]).await;
    let writer = site
        .token(&["writer", "--scope", "produce", "--stream", "documents"])
        .await;
    let reader = site
        .token(&["reader", "--scope", "read", "--stream", "documents"])
        .await;
    let other = site
        .token(&[
            "other", "--scope", "produce", "--scope", "read", "--stream", "runs",
        ])
        .await;
    let named = site.token(&["unnamed", "--scope", "produce"]).await;
    let asked = async |method: Method, path: &str, token: &str| {
        let request = site.request(method, path).bearer_auth(token);
        Answer::of(
            request
                .body("[]")
                .header(PATCH.0, PATCH.1)
                .send()
                .await
                .unwrap(),
        )
        .await
    };
    let one = "/v1/documents/k/c1";
    assert_eq!(asked(Method::PUT, one, &writer).await.status, 201);
    for path in [one, "/v1/documents/k", "/v1/documents/k/c1/history"] {
        assert_eq!(asked(Method::GET, path, &reader).await.status, 200);
        asked(Method::GET, path, &writer)
            .await
            .assert_problem(403, "forbidden");
        asked(Method::GET, path, &other)
            .await
            .assert_problem(403, "forbidden");
    }
    for token in [&reader, &other] {
        for method in [Method::PUT, Method::PATCH, Method::DELETE] {
            asked(method, one, token)
                .await
                .assert_problem(403, "forbidden");
        }
        asked(Method::POST, "/v1/documents", token)
            .await
            .assert_problem(403, "forbidden");
    }
    // A stream that names its producers means documents too.
    let set = "SELECT lanekeeper.set_producers('documents', '{token writer}')";
    site.plant.client.batch_execute(set).await.unwrap();
    assert_eq!(asked(Method::PUT, one, &writer).await.status, 200);
    asked(Method::PUT, one, &named)
        .await
        .assert_problem(403, "forbidden");
    asked(Method::PATCH, one, &named)
        .await
        .assert_problem(403, "forbidden");
    let bare = site.request(Method::GET, one).send().await.unwrap();
    assert_eq!(bare.status(), 401);
    assert!(site.worker.stop().await.success());
}

/// Each waits for a transaction that stays open; reads and other documents do not.
#[tokio::test(flavor = "multi_thread")]
async fn changes_that_wait_for_an_open_transaction_leave_readers_a_connection() {
    let site = Site::open(&[]).await;
    ask(&site, "PUT", "/k/c1", &[], "1").await;
    let open = crate::support::connect(&site.plant.url).await;
    open.batch_execute("BEGIN; SELECT lanekeeper.put_document('k', 'c1', '2')")
        .await
        .unwrap();
    let waiting = (0..6).map(|_| ask(&site, "PUT", "/k/c1", &[], "3"));
    let waiting = futures_util::future::join_all(waiting);
    let reading = async {
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        crate::support::wait_until(crate::process::plant::LIMIT, "they wait", async || {
            site.plant.count(waits).await == 3
        })
        .await;
        ask(&site, "GET", "/k/c1", &[], "").await
    };
    let (answers, read) = tokio::join!(waiting, reading);
    assert_eq!((read.0, read.2), (200, json!(1)));
    let busy = [429, 503];
    assert!(
        answers.iter().all(|(status, ..)| busy.contains(status)),
        "{answers:?}"
    );
    open.batch_execute("COMMIT").await.unwrap();
    assert_eq!(site.logged_events().await, 2);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requests_trace_goes_on_with_the_event() {
    let site = Site::open(&[]).await;
    let trace = (
        "traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    );
    assert_eq!(ask(&site, "PUT", "/k/c1", &[trace], "1").await.0, 201);
    assert_eq!(
        ask(&site, "PUT", "/k/c1", &[("traceparent", "no")], "1")
            .await
            .0,
        200
    );
    let traced = "SELECT count(*) FROM lanekeeper.event WHERE headers ->> 'traceparent' LIKE '00-0af7%' AND seq = 1";
    assert_eq!(site.plant.count(traced).await, 1);
    let untraced = "SELECT count(*) FROM lanekeeper.event WHERE headers IS NULL AND seq = 2";
    assert_eq!(site.plant.count(untraced).await, 1);
    assert!(site.worker.stop().await.success());
}
