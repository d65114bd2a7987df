//! Who sees what, and who may do what.

use super::desk::{Desk, token};
use crate::command::run;
use crate::process::plant::LIMIT;
use crate::support::wait_until;

const PAGES: [&str; 12] = [
    "/",
    "/lanes",
    "/lanes?show=all",
    "/sessions",
    "/agents",
    "/agents?turn=running",
    "/dead",
    "/workers",
    "/subscription?name=out",
    "/session?stream=runs&name=s",
    "/payload?stream=runs&name=s&seq=1",
    "/find?q=nothing",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_page_needs_a_sign_in_and_an_action_the_scope_operate() {
    let desk = Desk::open(&[]).await;
    let lane = desk.block("s", 2).await.to_string();
    let dead = desk
        .plant
        .count("SELECT count(*) FROM lanekeeper.operation")
        .await;
    assert_eq!(dead, 0);
    let actions: [(&str, Vec<(&str, &str)>); 4] = [
        ("/action/lane", vec![("lane", &lane), ("action", "park")]),
        (
            "/action/session",
            vec![("stream", "runs"), ("name", "s"), ("action", "close")],
        ),
        (
            "/action/subscription",
            vec![("name", "out"), ("action", "pause")],
        ),
        ("/action/dead", vec![("id", "1"), ("action", "drop")]),
    ];

    let mut nobody = desk.browser();
    for path in PAGES {
        let answer = nobody.get(path).await;
        answer.assert_page(401, "Access token");
        assert!(!answer.has("runs/"), "{path} says something");
    }
    for (path, fields) in &actions {
        assert_eq!(nobody.post(path, fields).await.status, 401, "{path}");
    }
    let producer = desk.token(&["ci", "--scope", "produce"]).await;
    let refused = nobody.sign_in(&producer).await;
    refused.assert_page(403, "has no scope read");
    let operator = desk.token(&["blind", "--scope", "operate"]).await;
    nobody
        .sign_in(&operator)
        .await
        .assert_page(403, "has no scope read");
    assert!(nobody.cookies.is_empty());

    let mut reader = desk.visitor(&["read"]).await;
    for path in PAGES {
        let answer = reader.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(!answer.has("/action/"), "{path} offers an action");
    }
    for (path, fields) in &actions {
        let answer = reader.act(path, fields).await;
        // There is no dead letter to be refused.
        let expected = if *path == "/action/dead" { 303 } else { 403 };
        assert_eq!(answer.status, expected, "{path}");
    }
    let done = desk
        .plant
        .count("SELECT count(*) FROM lanekeeper.operation")
        .await;
    assert_eq!(done, 0, "nothing was done by those who may not");

    let token = desk
        .token(&["op", "--scope", "read", "--scope", "operate"])
        .await;
    let mut operator = desk.browser();
    operator.sign_in(&token).await;
    let page = operator.get("/lanes").await;
    assert!(
        page.has("/action/lane") && page.has(&format!("lanekeeper lane skip {lane} --seq 1 --yes"))
    );
    let answer = operator
        .act("/action/lane", &[("lane", &lane), ("action", "park")])
        .await;
    assert_eq!(answer.status, 303);
    assert_eq!(desk.lane_text("s", "state").await, "parked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_one_stream_sees_and_does_nothing_in_another() {
    let desk = Desk::open(&[]).await;
    let lane = desk.block("s", 1).await.to_string();
    let dead = desk.plant.client;
    let id: i64 = dead
        .query_one(
            "INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, created_at, attempts, crashes, error)
             VALUES ($1::text::bigint, 1, gen_random_uuid(), 'step', '{}', now(), 1, 0, 'no') RETURNING dead_id",
            &[&lane],
        )
        .await
        .unwrap()
        .get(0);
    let id = id.to_string();
    let scopes = ["--scope", "read", "--scope", "operate", "--stream", "hooks"];
    let token = token(&desk.plant.url, &[&["other"], &scopes[..]].concat()).await;
    let mut other = super::desk::Browser::at(&desk.worker);
    assert_eq!(other.sign_in(&token).await.status, 303);
    for path in ["/", "/lanes", "/sessions", "/dead", "/find?q=s"] {
        let page = other.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        let says = page.has("name=s\"") || page.has("?name=out") || page.has("№");
        assert!(!says, "{path}: {}", page.body);
    }
    for path in [
        "/subscription?name=out",
        "/session?stream=runs&name=s",
        "/payload?stream=runs&name=s&seq=1",
        "/lanes?subscription=out",
        "/dead?subscription=out",
        &format!("/dead/letter?id={id}"),
    ] {
        let status = other.get(path).await.status;
        assert_eq!(status, 404, "{path}: as if there were none");
    }
    assert_eq!(other.get("/workers").await.status, 403);
    for (path, fields) in [
        ("/action/lane", vec![("lane", &*lane), ("action", "park")]),
        (
            "/action/session",
            vec![("stream", "runs"), ("name", "s"), ("action", "close")],
        ),
        (
            "/action/subscription",
            vec![("name", "out"), ("action", "pause")],
        ),
        ("/action/dead", vec![("id", &*id), ("action", "drop")]),
    ] {
        assert_eq!(other.act(path, &fields).await.status, 404, "{path}");
    }
    let done: i64 = dead
        .query_one("SELECT count(*) FROM lanekeeper.operation", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(done, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_dashboard_takes_no_action_and_one_that_is_off_has_no_page() {
    let desk = Desk::open(&[("LANEKEEPER_DASHBOARD__MODE", "read_only")]).await;
    let lane = desk.block("s", 1).await.to_string();
    let mut operator = desk.visitor(&["read", "operate"]).await;
    let page = operator.get("/lanes").await;
    page.assert_page(200, "read-only dashboard");
    assert!(!page.has("/action/"));
    let answer = operator
        .act("/action/lane", &[("lane", &lane), ("action", "park")])
        .await;
    answer.assert_page(403, "Nothing was done");
    assert_eq!(desk.lane_text("s", "state").await, "blocked");

    let off = desk
        .plant
        .worker(&[("LANEKEEPER_DASHBOARD__MODE", "off")])
        .await;
    let mut browser = super::desk::Browser::at(&off);
    for path in ["/", "/sign-in", "/assets/dashboard.css"] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.has("<html"), "{path}");
    }
    assert_eq!(browser.get("/livez").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_developers_machine_needs_no_token_until_there_is_one_and_other_sites_never_get_in() {
    let desk = Desk::open(&[("LANEKEEPER_HTTP__ALLOW_UNAUTHENTICATED", "true")]).await;
    let lane = desk.block("s", 1).await.to_string();
    let mut developer = desk.browser();
    developer.get("/").await.assert_page(200, "This machine");
    let form = developer.get("/lanes").await;
    let form = form.between("name=\"form\" value=\"", "\"").to_owned();
    let fields = [("lane", lane.as_str()), ("action", "park"), ("form", &form)];
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "http://localhost:3000"),
        ("host", "evil.example"),
        ("x-forwarded-for", "10.0.0.1"),
    ] {
        developer.headers = vec![(name, value.to_owned())];
        assert_eq!(developer.get("/").await.status, 401, "{name}: {value}");
        let answer = developer.post("/action/lane", &fields).await;
        assert_eq!(answer.status, 401, "{name}: {value}");
    }
    developer.headers = vec![("sec-fetch-site", "same-origin".to_owned())];
    assert_eq!(developer.post("/action/lane", &fields).await.status, 303);
    assert_eq!(desk.lane_text("s", "state").await, "parked");
    desk.token(&["first", "--scope", "read"]).await;
    wait_until(LIMIT, "it is noticed that there is a token", async || {
        developer.get("/").await.status == 401
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_its_sign_ins() {
    let desk = Desk::open(&[]).await;
    let mut visitor = desk.visitor(&["read"]).await;
    assert_eq!(visitor.get("/").await.status, 200);
    let ran = run(
        &["token", "revoke", "visitor"],
        &[("DATABASE_URL", &desk.plant.url)],
        "",
    )
    .await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    wait_until(LIMIT, "it is refused", async || {
        visitor.get("/").await.status == 401
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_some_sessions_only_does_not_sign_in() {
    let desk = Desk::open(&[]).await;
    let bound = [
        "bound",
        "--scope",
        "read",
        "--scope",
        "operate",
        "--stream",
        "runs",
        "--session",
        "r1",
    ];
    let token = desk.token(&bound).await;
    let mut browser = desk.browser();
    let answer = browser.sign_in(&token).await;
    answer.assert_page(403, "for some sessions only");
    assert!(browser.cookies.is_empty());
}
