//! What another site makes a visitor's browser send.

use super::desk::Desk;

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_is_not_from_a_page_of_the_visitor_does_nothing() {
    let desk = Desk::open(&[]).await;
    let lane = desk.block("s", 1).await.to_string();
    let mut operator = desk.visitor(&["read", "operate"]).await;
    let own = operator.form().await;
    let token = desk
        .token(&["other", "--scope", "read", "--scope", "operate"])
        .await;
    let mut other = desk.browser();
    other.sign_in(&token).await;
    let of_another = other.form().await;
    assert_ne!(own, of_another);

    let fields = |form: &str| {
        [
            ("lane", lane.clone()),
            ("action", "park".to_owned()),
            ("form", form.to_owned()),
        ]
    };
    let empty = String::new();
    for form in [&empty, &of_another] {
        let fields = fields(form);
        let fields: Vec<(&str, &str)> = fields
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        let answer = operator.post("/action/lane", &fields).await;
        answer.assert_page(403, "Nothing was done");
    }
    let good = fields(&own);
    let good: Vec<(&str, &str)> = good.iter().map(|(name, value)| (*name, &**value)).collect();
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
    ] {
        operator.headers = vec![(name, value.to_owned())];
        let answer = operator.post("/action/lane", &good).await;
        answer.assert_page(403, "Nothing was done");
        let ended = operator.post("/sign-out", &[("form", &own)]).await;
        assert_eq!(ended.status, 403, "{name}: {value}");
        let signed_in = operator.sign_in(&token).await;
        assert_eq!(signed_in.status, 403, "{name}: {value}");
    }
    assert_eq!(desk.lane_text("s", "state").await, "blocked");
    operator.headers.clear();
    assert_eq!(operator.post("/action/lane", &good).await.status, 303);
    assert_eq!(desk.lane_text("s", "state").await, "parked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_is_told_to_load_nothing_from_elsewhere_and_to_frame_nothing() {
    let desk = Desk::open(&[]).await;
    let mut reader = desk.visitor(&["read"]).await;
    for path in [
        "/",
        "/sign-in",
        "/nowhere/..",
        "/session?stream=x&name=y",
        "/assets/dashboard.js",
        "/assets/dashboard.css",
    ] {
        let answer = reader.get(path).await;
        let policy = answer.header("content-security-policy");
        if answer.header("content-type") == "application/problem+json" {
            continue;
        }
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"),
            "{path}: {policy}"
        );
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{path}"
        );
        assert_eq!(answer.header("x-frame-options"), "DENY", "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        let has_inline = [" style=", "<style", " onclick", "javascript:"];
        assert!(
            !path.starts_with("/assets") || !answer.has("@import"),
            "{path}"
        );
        if answer.header("content-type").starts_with("text/html") {
            assert_eq!(answer.header("cache-control"), "no-store", "{path}");
            assert!(has_inline.iter().all(|text| !answer.has(text)), "{path}");
            assert!(
                !answer.has("src=\"http") && !answer.has("href=\"http"),
                "{path}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_leads_back_to_a_page_of_this_server_only() {
    let desk = Desk::open(&[]).await;
    let mut operator = desk.visitor(&["read", "operate"]).await;
    for (back, expected) in [
        ("//evil.example/x", "/"),
        ("/subscription?name=out", "/subscription?name=out"),
    ] {
        let answer = operator
            .act(
                "/action/subscription",
                &[("name", "out"), ("action", "resume"), ("back", back)],
            )
            .await;
        assert_eq!(answer.location.as_deref(), Some(expected));
    }
}
