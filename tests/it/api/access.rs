//! Tokens: their scopes and their rate limits.

use reqwest::Method;

use super::site::{Answer, Site};
use crate::command::run;
use crate::process::plant::LIMIT;
use crate::support::{RedisServer, wait_until};

const EVENT: &str = r#"{"event_type":"a","payload":1}"#;

async fn ask(site: &Site, method: Method, stream: &str, token: Option<&str>) -> Answer {
    let mut request = site.events(method.clone(), stream, "s");
    if method == Method::POST {
        request = request.body(EVENT);
    }
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    Answer::of(request.send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn once_there_is_a_token_every_request_needs_one_that_is_good_for_it() {
    let site = Site::open(&[]).await;
    let post = async |stream, token| ask(&site, Method::POST, stream, token).await;
    assert_eq!(
        post("runs", None).await.status,
        201,
        "a developer's machine"
    );
    for (name, value) in [("origin", "https://evil.example"), ("host", "evil.example")] {
        let page = site
            .events(Method::POST, "runs", "s")
            .header(name, value)
            .body(EVENT);
        let refused = Answer::of(page.send().await.unwrap()).await;
        refused.assert_problem(401, "unauthorized");
    }
    let producer = site
        .token(&["ci", "--scope", "produce", "--stream", "runs"])
        .await;
    let reader = site.token(&["board", "--scope", "read"]).await;
    wait_until(LIMIT, "it is noticed that there are tokens", async || {
        post("runs", None).await.status == 401
    })
    .await;
    let refused = post("runs", None).await;
    refused.assert_problem(401, "unauthorized");
    assert_eq!(
        refused.challenge.as_deref(),
        Some("Bearer realm=\"lanekeeper\"")
    );

    assert_eq!(post("runs", Some(&producer)).await.status, 201);
    post("hooks", Some(&producer))
        .await
        .assert_problem(403, "forbidden");
    post("runs", Some(&reader))
        .await
        .assert_problem(403, "forbidden");
    let read = async |token| ask(&site, Method::GET, "runs", Some(token)).await;
    assert_eq!(read(&*reader).await.status, 200);
    read(&producer).await.assert_problem(403, "forbidden");
    let last = if producer.ends_with('0') { "1" } else { "0" };
    let forged = format!("{}{last}", &producer[..producer.len() - 1]);
    let other_row = producer.replacen("lk_1_", "lk_2_", 1);
    let long = "x".repeat(5_000);
    for bad in ["", "x", &forged, &other_row, "lk_99_00", &long] {
        post("runs", Some(bad))
            .await
            .assert_problem(401, "unauthorized");
    }

    let ran = run(
        &["token", "revoke", "ci"],
        &[("DATABASE_URL", &site.plant.url)],
        "",
    )
    .await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    wait_until(LIMIT, "it is refused", async || {
        post("runs", Some(&producer)).await.status == 401
    })
    .await;
    // Whoever had tokens wants some: the last one's end opens nothing.
    let ran = run(
        &["token", "revoke", "board"],
        &[("DATABASE_URL", &site.plant.url)],
        "",
    )
    .await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    post("runs", None).await.assert_problem(401, "unauthorized");
    for secret in [&producer, &reader] {
        let (_, secret) = secret.rsplit_once('_').unwrap();
        assert!(!site.worker.log().contains(secret));
        let rows = "SELECT count(*) FROM lanekeeper.token AS t WHERE t::text LIKE '%' || $1 || '%'";
        let kept: i64 = site
            .plant
            .client
            .query_one(rows, &[&secret])
            .await
            .unwrap()
            .get(0);
        assert_eq!(kept, 0, "only a hash of it is kept");
    }
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_let_in_without_a_token_unless_a_setting_says_so() {
    let site = Site::open(&[("LANEKEEPER_HTTP__ALLOW_UNAUTHENTICATED", "false")]).await;
    ask(&site, Method::POST, "runs", None)
        .await
        .assert_problem(401, "unauthorized");
    ask(&site, Method::GET, "runs", None)
        .await
        .assert_problem(401, "unauthorized");
    let probe = reqwest::get(site.worker.http() + "/readyz").await.unwrap();
    assert_eq!(probe.status(), 200, "probes are for everybody");
    let token = site.token(&["ci", "--scope", "produce"]).await;
    assert_eq!(
        ask(&site, Method::POST, "runs", Some(&token)).await.status,
        201
    );
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn times_after_which_no_token_ends_are_refused() {
    let create = [
        "token",
        "create",
        "ci",
        "--scope",
        "produce",
        "--expires-in",
    ];
    for time in ["0s", "999ms", "90", "3651d", "d", ""] {
        let ran = run(&[&create[..], &[time]].concat(), &[], "").await;
        assert_eq!(ran.code, Some(2), "{time}");
        assert!(ran.stderr.contains("--expires-in"), "{}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_when_it_was_to_end_and_its_name_is_free_when_it_is_revoked() {
    let site = Site::open(&[]).await;
    let token = site
        .token(&["ci", "--scope", "produce", "--expires-in", "1d"])
        .await;
    assert_eq!(
        ask(&site, Method::POST, "runs", Some(&token)).await.status,
        201
    );
    site.plant
        .client
        .batch_execute("UPDATE lanekeeper.token SET expires_at = now() - interval '1 s'")
        .await
        .unwrap();
    wait_until(LIMIT, "it is over", async || {
        ask(&site, Method::POST, "runs", Some(&token)).await.status == 401
    })
    .await;
    let over = ask(&site, Method::POST, "runs", Some(&token)).await;
    over.assert_problem(401, "unauthorized");
    let detail = over.body["detail"].as_str().unwrap();
    assert!(detail.contains("\"ci\" has expired"), "{detail}");
    // Whoever has not got it learns nothing of it.
    let other = format!(
        "{}{}",
        &token[..token.len() - 1],
        if token.ends_with('0') { "1" } else { "0" }
    );
    let guessed = ask(&site, Method::POST, "runs", Some(&other)).await;
    let detail = guessed.body["detail"].as_str().unwrap();
    assert!(!detail.contains("expired"), "{detail}");
    let url = [("DATABASE_URL", site.plant.url.as_str())];
    let again = ["token", "create", "ci", "--scope", "produce"];
    let taken = run(&again, &url, "").await;
    assert_eq!(taken.code, Some(1));
    assert!(
        taken.stderr.contains("there is a token named \"ci\""),
        "{}",
        taken.stderr
    );
    assert_eq!(
        run(&["token", "revoke", "ci"], &url, "").await.code,
        Some(0)
    );
    assert_eq!(
        run(&["token", "revoke", "ci"], &url, "").await.code,
        Some(1)
    );
    assert_eq!(run(&again, &url, "").await.code, Some(0));
    let listed = run(&["token", "list", "--output", "json"], &url, "").await;
    let rows: Vec<serde_json::Value> = listed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 2);
    assert!(rows[0]["expires_at"].is_string() && rows[1]["expires_at"].is_null());
    assert!(rows[0]["revoked_at"].is_string() && rows[1]["revoked_at"].is_null());
    assert!(!listed.stdout.contains("hash"), "{}", listed.stdout);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_sends_no_faster_than_its_rate() {
    let redis = RedisServer::start();
    let site = Site::open(&[("REDIS_URL", &redis.url())]).await;
    wait_until(LIMIT, "limits are decided in Redis", async || {
        let metrics = reqwest::get(site.worker.http() + "/metrics").await.unwrap();
        let text = metrics.text().await.unwrap();
        text.lines()
            .any(|line| line.starts_with("lanekeeper_limit_shared") && line.ends_with(" 1"))
    })
    .await;
    let slow = site
        .token(&["slow", "--scope", "produce", "--rate", "2/h"])
        .await;
    let mut accepted = 0;
    for _ in 0..12 {
        let answer = ask(&site, Method::POST, "runs", Some(&slow)).await;
        if answer.status == 201 {
            accepted += 1;
            continue;
        }
        answer.assert_problem(429, "rate_limited");
        assert!(
            answer
                .retry_after
                .is_some_and(|after| (1..=3_600).contains(&after))
        );
    }
    // Of a Redis that was just started it is not known what went before.
    assert!(
        accepted <= 2,
        "an hour's worth at once at the most: {accepted}"
    );
    assert_eq!(site.logged_events().await, accepted);

    // One that is a little early waits, and is not refused.
    let fast = site
        .token(&["fast", "--scope", "produce", "--rate", "20/s"])
        .await;
    for _ in 0..10 {
        assert_eq!(
            ask(&site, Method::POST, "runs", Some(&fast)).await.status,
            201
        );
    }
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_whose_rate_is_none_sends_nothing() {
    let site = Site::open(&[]).await;
    let set = async |name: &str, rate: Option<&str>| {
        let sql = "UPDATE lanekeeper.token SET rate = $2 WHERE name = $1";
        let client = &site.plant.client;
        assert_eq!(client.execute(sql, &[&name, &rate]).await.unwrap(), 1);
    };
    for (i, rate) in ["0/s", "-1/s", "NaN", "", "5", "1e3/s"].iter().enumerate() {
        let name = format!("t{i}");
        let token = site
            .token(&[&name, "--scope", "produce", "--rate", "5/s"])
            .await;
        set(&name, Some(rate)).await;
        let answer = ask(&site, Method::POST, "runs", Some(&token)).await;
        answer.assert_problem(403, "forbidden");
    }
    assert_eq!(site.logged_events().await, 0);
    let token = site
        .token(&["free", "--scope", "produce", "--rate", "5/s"])
        .await;
    set("free", None).await;
    let answer = ask(&site, Method::POST, "runs", Some(&token)).await;
    assert_eq!(answer.status, 201);
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_good_for_the_engines_own_stream_or_for_another_ones_keys() {
    let site = Site::open(&[]).await;
    ask(&site, Method::POST, "lifecycle", None)
        .await
        .assert_problem(403, "forbidden");
    let arguments = [
        "token",
        "create",
        "x",
        "--scope",
        "produce",
        "--stream",
        "lifecycle",
    ];
    let ran = run(&arguments, &[("DATABASE_URL", &site.plant.url)], "").await;
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("lifecycle"), "{}", ran.stderr);

    let (one, other) = (
        site.token(&["one", "--scope", "produce"]).await,
        site.token(&["other", "--scope", "produce"]).await,
    );
    ask(&site, Method::POST, "lifecycle", Some(&one))
        .await
        .assert_problem(403, "forbidden");
    let event =
        |n: usize| format!(r#"{{"event_type":"a","payload":{n},"dedupe_key":"invoice {n}"}}"#);
    let array = |count: usize| format!("[{}]", (0..count).map(event).collect::<Vec<_>>().join(","));
    // Alone, among others, and as many as go by the bulk function.
    for (session, body) in [("a", event(99)), ("b", array(3)), ("c", array(20))] {
        let body = body.replace("invoice", session);
        let post = async |token: &str| {
            let request = site
                .events(Method::POST, "runs", session)
                .bearer_auth(token);
            request
                .body(body.clone())
                .send()
                .await
                .unwrap()
                .status()
                .as_u16()
        };
        assert_eq!(post(&one).await, 201, "{session}");
        assert_eq!(post(&one).await, 200, "{session}: its own keys");
        assert_eq!(post(&other).await, 201, "{session}: keys of another");
    }
    assert_eq!(site.logged_events().await, 2 * (1 + 3 + 20));

    // A stream that names its producers takes events of tokens that it names.
    let named = "SELECT lanekeeper.set_producers('runs', ARRAY['token one'])";
    site.plant.client.batch_execute(named).await.unwrap();
    let taken = ask(&site, Method::POST, "runs", Some(&one)).await;
    assert_eq!(taken.status, 201);
    ask(&site, Method::POST, "runs", Some(&other))
        .await
        .assert_problem(403, "forbidden");
    assert!(site.worker.stop().await.success());
}
