//! Who may do what by the protocol, and with which streams.

use reqwest::Method;

use super::{JSON, ask, create, header, site};
use crate::api::site::{Answer, Site};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_by_the_protocol_unless_its_stream_is_listed() {
    let off = Site::open(&[]).await;
    assert_eq!(
        ask(&off, Method::PUT, "runs/r", &[JSON], "").await.status(),
        404
    );
    let site = site().await;
    let other = ask(&site, Method::PUT, "hooks/r", &[JSON], "").await;
    let other = Answer::of(other).await;
    other.assert_problem(404, "not_found");
    assert!(
        other.body["hint"]
            .as_str()
            .unwrap()
            .contains("durable_streams.streams")
    );
    create(&site, "runs/r").await;
    assert_eq!(
        site.plant
            .count("SELECT count(*) FROM lanekeeper.session WHERE name = 'r'")
            .await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_writing_and_deleting_need_their_scopes_and_the_tokens_sessions() {
    let site = site().await;
    // Not by a request without a token, which the worker would remember for a moment to do without.
    let enqueue = "SELECT lanekeeper.enqueue('runs', 'a/1', 'step', '1')";
    site.plant.client.batch_execute(enqueue).await.unwrap();
    let read = site.token(&["r", "--scope", "read"]).await;
    let produce = site
        .token(&["p", "--scope", "produce", "--session", "a/*"])
        .await;
    let operate = site.token(&["o", "--scope", "operate"]).await;
    let status = async |method: Method, path: &str, token: Option<&str>| {
        let request = site.request(method.clone(), &format!("/v1/ds/{path}"));
        let request = match method {
            Method::POST | Method::PUT => request.header(JSON.0, JSON.1).body("[1]"),
            _ => request,
        };
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        request.send().await.unwrap().status().as_u16()
    };
    for (method, path, token, expected) in [
        (Method::GET, "runs/a/1", None, 401),
        (Method::PUT, "runs/a/2", None, 401),
        (Method::GET, "runs/a/1", Some(&read), 200),
        (Method::HEAD, "runs/a/1", Some(&read), 200),
        (
            Method::GET,
            "runs/a/1?offset=-1&live=sse",
            Some(&produce),
            403,
        ),
        (Method::POST, "runs/a/1", Some(&read), 403),
        (Method::PUT, "runs/a/2", Some(&read), 403),
        (Method::DELETE, "runs/a/1", Some(&read), 403),
        (Method::POST, "runs/a/1", Some(&produce), 204),
        (Method::PUT, "runs/a/2", Some(&produce), 201),
        (Method::PUT, "runs/b/1", Some(&produce), 403),
        (Method::DELETE, "runs/a/1", Some(&produce), 403),
        (Method::DELETE, "runs/a/1", Some(&operate), 204),
        (Method::GET, "runs/a/1", Some(&read), 404),
    ] {
        let told = status(method.clone(), path, token.map(String::as_str)).await;
        assert_eq!(told, expected, "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_names_its_producers_takes_neither_events_nor_a_close_nor_a_creation_of_other_tokens()
 {
    let site = site().await;
    create(&site, "runs/r").await;
    let one = site.token(&["one", "--scope", "produce"]).await;
    let other = site.token(&["other", "--scope", "produce"]).await;
    let named = "SELECT lanekeeper.set_producers('runs', ARRAY['token one'])";
    site.plant.client.batch_execute(named).await.unwrap();
    let send = async |method: Method, path: &str, closes: bool, body: &'static str, token: &str| {
        let request = site.request(method, &format!("/v1/ds/runs/{path}"));
        let mut request = request.bearer_auth(token).header(JSON.0, JSON.1).body(body);
        if closes {
            request = request.header("stream-closed", "true");
        }
        Answer::of(request.send().await.unwrap()).await
    };
    for (method, path, closes, body) in [
        (Method::POST, "r", false, "[1]"),
        (Method::POST, "r", true, "[1]"),
        (Method::POST, "r", true, ""),
        (Method::PUT, "new", false, ""),
        (Method::PUT, "new", true, "[1]"),
    ] {
        let refused = send(method.clone(), path, closes, body, &other).await;
        refused.assert_problem(403, "forbidden");
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(
            detail.contains("token other"),
            "it is not the role that may not: {detail}"
        );
        assert_eq!(
            site.logged_events().await,
            0,
            "{method} {path} {closes} {body}"
        );
    }
    let sessions = "SELECT count(*) FROM lanekeeper.session AS s WHERE s.closed_at IS NOT NULL OR s.name = 'new'";
    assert_eq!(
        site.plant.count(sessions).await,
        0,
        "nothing was closed or created"
    );

    // The token that is named is let through, and subscribers of the engine's own stream learn of its close.
    let lifecycle = "INSERT INTO lanekeeper.subscription (stream_id, name, adapter, settings, retry_schedule_ms,
                         max_attempts, on_exhausted, coalesce, paused_at, pause_reason)
                     SELECT t.stream_id, 'feed', 'webhook', '{\"url\": \"http://127.0.0.1:9/\"}', '{1000}', 0,
                         'dead_letter', false, now(), 'a test'
                     FROM lanekeeper.stream AS t WHERE t.name = 'lifecycle'";
    site.plant.client.batch_execute(lifecycle).await.unwrap();
    for (method, path, closes, body, expected) in [
        (Method::PUT, "new", false, "[1]", 201),
        (Method::POST, "r", false, "[1]", 204),
        (Method::POST, "r", true, "", 204),
    ] {
        let request = site.request(method.clone(), &format!("/v1/ds/runs/{path}"));
        let mut request = request.bearer_auth(&one).header(JSON.0, JSON.1).body(body);
        if closes {
            request = request.header("stream-closed", "true");
        }
        let status = request.send().await.unwrap().status().as_u16();
        assert_eq!(status, expected, "{method} {path}");
    }
    let told = "SELECT count(*) FROM lanekeeper.session AS s WHERE s.name = 'session runs/r'";
    assert_eq!(site.plant.count(told).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_gets_the_answers_only_of_listed_origins_and_never_as_a_page() {
    let site = Site::open(&[
        ("LANEKEEPER_DURABLE_STREAMS__STREAMS", "runs"),
        ("LANEKEEPER_LIVE__CORS_ORIGINS", "https://app.example"),
    ])
    .await;
    let html = [("content-type", "text/html")];
    let created = ask(
        &site,
        Method::PUT,
        "runs/page",
        &html,
        "<script>alert(1)</script>",
    )
    .await;
    assert_eq!(created.status(), 201);
    for (origin, allowed) in [
        ("https://app.example", "https://app.example"),
        ("https://evil.example", ""),
    ] {
        let read = ask(&site, Method::GET, "runs/page", &[("origin", origin)], "").await;
        assert_eq!(header(&read, "access-control-allow-origin"), allowed);
        assert_eq!(header(&read, "x-content-type-options"), "nosniff");
        assert!(header(&read, "content-security-policy").contains("sandbox"));
        let preflight = ask(
            &site,
            Method::OPTIONS,
            "runs/page",
            &[("origin", origin)],
            "",
        )
        .await;
        assert_eq!(preflight.status(), 204);
        let methods = header(&preflight, "access-control-allow-methods");
        assert_eq!(methods.contains("PUT"), !allowed.is_empty(), "{methods}");
    }
}
