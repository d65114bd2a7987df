//! Signing in and out: the cookie, several workers, and those who try.

use super::desk::{Browser, Desk};
use crate::process::plant::LIMIT;
use crate::support::{RedisServer, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_counts_at_every_worker_until_it_is_ended_at_one() {
    let desk = Desk::open(&[]).await;
    let other = desk.plant.worker(&[]).await;
    let mut visitor = desk.visitor(&["read"]).await;
    let mut elsewhere = Browser::at(&other);
    elsewhere.cookies = visitor.cookies.clone();
    assert_eq!(elsewhere.get("/").await.status, 200);
    let ended = visitor.act("/sign-out", &[]).await;
    assert_eq!(
        (ended.status, ended.location.as_deref()),
        (303, Some("/sign-in"))
    );
    assert!(!visitor.cookies.contains_key("lanekeeper"));
    assert_eq!(elsewhere.get("/").await.status, 401, "it ends everywhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cookie_is_kept_from_scripts_and_other_sites_and_is_not_the_token() {
    let desk = Desk::open(&[]).await;
    let token = desk.token(&["me", "--scope", "read"]).await;
    let mut browser = desk.browser();
    let answer = browser.sign_in(&token).await;
    let [cookie] = &answer.set_cookies[..] else {
        panic!("{:?}", answer.set_cookies);
    };
    assert!(
        cookie.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let id = browser.cookies["lanekeeper"].clone();
    let (_, secret) = token.rsplit_once('_').unwrap();
    assert!(id != secret && !cookie.contains(secret));
    for kept in [&*id, secret] {
        let rows =
            "SELECT count(*) FROM lanekeeper.sign_in AS s WHERE s::text LIKE '%' || $1 || '%'";
        let rows = desk.plant.client.query_one(rows, &[&kept]).await.unwrap();
        assert_eq!(rows.get::<_, i64>(0), 0, "only a hash of the id is kept");
        assert!(!desk.worker.log().contains(kept));
    }
    browser.headers = vec![("x-forwarded-proto", "https".to_owned())];
    let answer = browser.sign_in(&token).await;
    let cookie = &answer.set_cookies[0];
    assert!(
        cookie.starts_with("__Host-lanekeeper=") && cookie.ends_with("; Secure"),
        "{cookie}"
    );
    assert_eq!(browser.get("/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_ends_by_the_clock_of_postgres_and_old_ones_are_forgotten() {
    let desk = Desk::open(&[]).await;
    let token = desk.token(&["me", "--scope", "read"]).await;
    let mut browser = desk.browser();
    browser.sign_in(&token).await;
    let over = "UPDATE lanekeeper.sign_in SET expires_at = clock_timestamp() - interval '1 s'";
    desk.plant.client.execute(over, &[]).await.unwrap();
    assert_eq!(browser.get("/").await.status, 401);
    for _ in 0..60 {
        assert_eq!(browser.sign_in(&token).await.status, 303);
    }
    let kept = desk
        .plant
        .count("SELECT count(*) FROM lanekeeper.sign_in")
        .await;
    assert_eq!(kept, 50, "no token fills the table");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_limited_and_those_who_signed_in_are_not_concerned() {
    let desk = Desk::open(&[]).await;
    let token = desk.token(&["me", "--scope", "read"]).await;
    let mut inside = desk.browser();
    inside.sign_in(&token).await;
    let mut stranger = desk.browser();
    let last = if token.ends_with('0') { "1" } else { "0" };
    let forged = format!("{}{last}", &token[..token.len() - 1]);
    let long = "x".repeat(5_000);
    for bad in ["", "x", &forged, "lk_99_00", &long]
        .iter()
        .cycle()
        .take(10)
    {
        let answer = stranger.sign_in(bad).await;
        answer.assert_page(401, "not valid here");
        assert!(answer.set_cookies.is_empty() && !answer.has(&forged));
    }
    let answer = stranger.sign_in(&token).await;
    answer.assert_page(429, "Wait a minute");
    assert_eq!(inside.get("/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_leads_to_the_page_that_was_asked_for_and_to_no_other_server() {
    let desk = Desk::open(&[]).await;
    let token = desk.token(&["me", "--scope", "read"]).await;
    let mut browser = desk.browser();
    let asked = browser.get("/lanes?subscription=out&show=all").await;
    asked.assert_page(
        401,
        "name=\"next\" value=\"/lanes?subscription=out&amp;show=all\"",
    );
    for (next, expected) in [
        ("/lanes?subscription=out", "/lanes?subscription=out"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\r\nset-cookie: x=y", "/"),
    ] {
        let answer = browser
            .post("/sign-in", &[("token", &token), ("next", next)])
            .await;
        assert_eq!(answer.location.as_deref(), Some(expected), "{next:?}");
    }
    // A link in a chat: the browser keeps the strict cookie to itself until a page of ours asks.
    browser.headers = vec![("sec-fetch-site", "cross-site".to_owned())];
    browser.cookies.clear();
    let answer = browser
        .get("/session?stream=runs&name=%22%3E%3Cscript%3E")
        .await;
    answer.assert_page(401, "http-equiv=\"refresh\"");
    assert!(
        !answer.has("<script>") && !answer.has("Access token"),
        "{}",
        answer.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_reads_pages_no_faster_than_its_rate() {
    let redis = RedisServer::start();
    let desk = Desk::open(&[("REDIS_URL", &redis.url())]).await;
    wait_until(LIMIT, "limits are decided in Redis", async || {
        let metrics = desk.browser().get("/metrics").await;
        let mut lines = metrics.body.lines();
        lines.any(|line| line.starts_with("lanekeeper_limit_shared") && line.ends_with(" 1"))
    })
    .await;
    let token = desk
        .token(&["slow", "--scope", "read", "--rate", "2/h"])
        .await;
    let mut browser = desk.browser();
    assert_eq!(browser.sign_in(&token).await.status, 303);
    // The sign-in was one of the two.
    browser.get("/").await;
    let refused = browser.get("/").await;
    refused.assert_page(429, "may send 2/h");
}
