//! D4: who may follow: tokens of the scope `read`, restricted to streams and sessions; signed links; pages of listed origins.

use reqwest::Method;

use super::client::Follower;
use super::session::{append, live};
use crate::api::site::{Answer, Site};
use crate::command::run;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn status(site: &Site, path: &str, token: Option<&str>) -> u16 {
    let request = site.request(Method::GET, path);
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    request.send().await.unwrap().status().as_u16()
}

const R1: &str = "/v1/streams/runs/sessions/r1/events/live";

#[tokio::test(flavor = "multi_thread")]
async fn a_token_follows_the_streams_and_sessions_that_it_says_and_no_others() {
    let site = Site::open(&[]).await;
    for session in ["r1", "t7-a", "t8-a"] {
        append(&site, session, "step", 1).await;
    }
    let produce = site.token(&["p", "--scope", "produce"]).await;
    let all = site.token(&["a", "--scope", "read"]).await;
    let hooks = site
        .token(&["h", "--scope", "read", "--stream", "hooks"])
        .await;
    let some = [
        "s",
        "--scope",
        "read",
        "--scope",
        "produce",
        "--session",
        "r1",
        "--session",
        "t7-*",
    ];
    let some = site.token(&some).await;
    let t7 = R1.replace("r1", "t7-a");
    let t8 = R1.replace("r1", "t8-a");
    for (path, token, expected) in [
        (R1, None, 401),
        (R1, Some(&produce), 403),
        (R1, Some(&hooks), 403),
        (R1, Some(&all), 200),
        (R1, Some(&some), 200),
        (&t7, Some(&some), 200),
        (&t8, Some(&some), 403),
        ("/v1/streams/runs/live", Some(&all), 200),
        ("/v1/streams/runs/live", Some(&some), 403),
        ("/v1/streams/runs/live?session=r1,t7-a", Some(&some), 200),
        ("/v1/streams/runs/live?session=r1,t8-a", Some(&some), 403),
        ("/v1/streams/runs/live?session=r1,t8-a", Some(&all), 200),
        // The rest of the API keeps to it, too.
        ("/v1/streams/runs/sessions/t8-a/events", Some(&some), 403),
        ("/v1/streams/runs/sessions/t7-a/events", Some(&some), 200),
    ] {
        let told = status(&site, path, token.map(String::as_str)).await;
        assert_eq!(told, expected, "{path} {token:?}");
    }
    let event = r#"{"event_type":"a","payload":1}"#;
    for (session, expected) in [("t7-b", 201), ("t8-b", 403)] {
        let request = site
            .events(Method::POST, "runs", session)
            .bearer_auth(&some);
        let answer = request.body(event).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{session}");
    }
    let id = "/v1/acks/018f0000-0000-7000-8000-000000000001";
    let ack = site.request(Method::POST, id).bearer_auth(&some);
    assert_eq!(ack.send().await.unwrap().status(), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_is_ended_with_its_cursor_when_its_token_is_revoked_or_expires() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 2).await;
    let revoked = site.token(&["gone", "--scope", "read"]).await;
    let short = site
        .token(&["short", "--scope", "read", "--expires-in", "10s"])
        .await;
    let kept = site.token(&["kept", "--scope", "read"]).await;
    let mut followers = Vec::new();
    for token in [&revoked, &short, &kept] {
        let mut follower = Follower::open(live(&site, "r1", "").bearer_auth(token)).await;
        follower.seqs(2).await;
        followers.push(follower);
    }
    let [mut of_revoked, mut of_short, mut of_kept] =
        <[Follower; 3]>::try_from(followers).ok().unwrap();
    let url = [("DATABASE_URL", site.plant.url.as_str())];
    assert_eq!(
        run(&["token", "revoke", "gone"], &url, "").await.code,
        Some(0)
    );
    for (follower, reason) in [
        (&mut of_revoked, "access_ended"),
        (&mut of_short, "access_expired"),
    ] {
        let got = follower.got().await;
        assert_eq!(
            (got.name.as_str(), got.data["reason"].as_str()),
            ("disconnect", Some(reason))
        );
        assert_eq!(got.data["resume_from"], follower.id);
        assert_eq!(follower.next().await, None);
    }
    append(&site, "r1", "step", 1).await;
    assert_eq!(of_kept.seqs(1).await, [3]);
}

async fn link(arguments: &[&str]) -> String {
    let variables = [
        ("LANEKEEPER_LIVE__LINK_SECRETS", "LINKS"),
        ("LINKS", SECRET),
    ];
    let ran = run(&[&["link"], arguments].concat(), &variables, "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_link_follows_what_was_signed_until_it_expires() {
    let secrets = [
        ("LANEKEEPER_LIVE__LINK_SECRETS", "LINKS"),
        ("LINKS", SECRET),
    ];
    let site = Site::open(&secrets).await;
    // From here on nothing goes without a token.
    site.token(&["any", "--scope", "operate"]).await;
    append(&site, "r 1/ä", "step", 3).await;
    append(&site, "b", "step", 1).await;
    let one = link(&["runs", "r 1/ä", "--expires-in", "15s"]).await;
    let mut follower = Follower::open(site.request(Method::GET, &one)).await;
    assert_eq!(follower.seqs(3).await, [1, 2, 3]);
    let more = format!("{one}&from=3");
    assert_eq!(
        Follower::open(site.request(Method::GET, &more))
            .await
            .seqs(1)
            .await,
        [3]
    );
    let other = one.replace("/sessions/r%201%2F%C3%A4/", "/sessions/b/");
    assert_ne!(other, one);
    for (bad, expected) in [
        (other, 401),
        (one.replace("expires=", "expires=9"), 401),
        (format!("{one}x"), 401),
        (one.split("&signature").next().unwrap().to_owned(), 422),
        (one.split("?").next().unwrap().to_owned(), 401),
        // It opens nothing else.
        (one.replace("/events/live", "/events"), 422),
        (
            one.replace("/events/live", "/events")
                .split("?")
                .next()
                .unwrap()
                .to_owned(),
            401,
        ),
    ] {
        assert_eq!(status(&site, &bad, None).await, expected, "{bad}");
    }
    let set = link(&["runs", "r 1/ä", "b", "--type", "step", "--expires-in", "1h"]).await;
    let mut of_set = Follower::open(site.request(Method::GET, &set)).await;
    for _ in 0..4 {
        of_set.got().await;
    }
    assert_eq!(status(&site, &format!("{set}&session=c"), None).await, 422);
    let whole = link(&["runs", "--expires-in", "1h"]).await;
    assert_eq!(status(&site, &whole, None).await, 200);
    let got = follower.got().await;
    assert_eq!(got.data["reason"], "access_expired");
    let answer = Answer::of(site.request(Method::GET, &one).send().await.unwrap()).await;
    answer.assert_problem(401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_secrets_takes_no_link_and_one_with_a_guessable_secret_does_not_start() {
    let site = Site::open(&[]).await;
    append(&site, "r1", "step", 1).await;
    let signed = link(&["runs", "r1", "--expires-in", "1h"]).await;
    let answer = Answer::of(site.request(Method::GET, &signed).send().await.unwrap()).await;
    answer.assert_problem(401, "unauthorized");
    for (name, said) in [
        ("LINKS", "fewer than 16 bytes"),
        ("NONE", "neither NONE nor NONE_FILE is set"),
    ] {
        let variables = [
            ("DATABASE_URL", site.plant.url.as_str()),
            ("LANEKEEPER_HTTP__LISTEN", "127.0.0.1:0"),
            ("LANEKEEPER_LIVE__LINK_SECRETS", name),
            ("LINKS", "short"),
        ];
        let ran = run(&["worker"], &variables, "").await;
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_listed_origins_may_follow_and_those_of_others_may_not() {
    let origin = "https://app.example";
    let site = Site::open(&[("LANEKEEPER_LIVE__CORS_ORIGINS", origin)]).await;
    append(&site, "r1", "step", 1).await;
    let token = site.token(&["a", "--scope", "read"]).await;
    for (given, allowed) in [(origin, Some(origin)), ("https://app.example.evil", None)] {
        let preflight = site.request(Method::OPTIONS, R1).header("origin", given);
        let preflight = preflight.header("access-control-request-method", "GET");
        let preflight = preflight.send().await.unwrap();
        let follow = live(&site, "r1", "")
            .header("origin", given)
            .bearer_auth(&token);
        let follow = follow.send().await.unwrap();
        // A page may read why it is refused.
        let refused = live(&site, "r1", "")
            .header("origin", given)
            .send()
            .await
            .unwrap();
        for (answer, status) in [(preflight, 204), (follow, 200), (refused, 401)] {
            assert_eq!(answer.status(), status);
            let told = answer.headers().get("access-control-allow-origin");
            assert_eq!(told.map(|told| told.to_str().unwrap()), allowed, "{given}");
            assert_eq!(answer.headers()["vary"], "origin");
            assert!(
                !answer
                    .headers()
                    .contains_key("access-control-allow-credentials")
            );
        }
    }
    let other = site
        .request(Method::OPTIONS, "/v1/acks")
        .header("origin", origin);
    let other = other.send().await.unwrap();
    assert!(!other.headers().contains_key("access-control-allow-origin"));
}
