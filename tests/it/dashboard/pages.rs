//! What pages show, of names and payloads that are hard to show.

use super::desk::Desk;
use crate::process::plant::LIMIT;
use crate::support::wait_until;

const NAMES: [&str; 6] = [
    "<script>alert(1)</script>",
    "../..",
    "..",
    "a b&name=\"x\" #?",
    "\u{202e}txt.exe",
    " leading blank",
];

#[tokio::test(flavor = "multi_thread")]
async fn names_that_look_like_markup_or_paths_are_text() {
    let desk = Desk::open(&[]).await;
    for name in NAMES {
        desk.append(name, "<b>type</b>", "{\"html\":\"<i>no</i>\"}")
            .await;
    }
    let mut reader = desk.visitor(&["read", "operate"]).await;
    for path in ["/sessions", "/lanes?show=all", "/"] {
        let page = reader.get(path).await;
        assert_eq!(page.status, 200);
        assert!(
            !page.has("<script>alert") && !page.has("\u{202e}"),
            "{path}"
        );
    }
    for name in NAMES {
        let query = url::form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>();
        let found = reader.get(&format!("/find?q={query}")).await;
        // A blank at the beginning is taken for an accident.
        if !name.starts_with(' ') {
            assert_eq!(found.status, 303, "{name:?}: {}", found.body);
            assert_eq!(
                found.location.as_deref(),
                Some(&*format!("/session?stream=runs&name={query}"))
            );
        }
        let page = reader
            .get(&format!("/session?stream=runs&name={query}"))
            .await;
        page.assert_page(200, "&lt;b&gt;type&lt;/b&gt;");
        assert!(
            !page.has("<script>alert") && !page.has("<b>type"),
            "{name:?}"
        );
        let payload = reader
            .get(&format!("/payload?stream=runs&name={query}&seq=1"))
            .await;
        payload.assert_page(200, "&lt;i&gt;no&lt;/i&gt;");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeline_says_what_became_of_each_event_and_links_its_trace() {
    let variables = [(
        "LANEKEEPER_DASHBOARD__TRACE_URL",
        "https://traces.example/{trace_id}?a=1",
    )];
    let desk = Desk::open(&variables).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    desk.plant
        .client
        .execute(
            "SELECT lanekeeper.enqueue('runs', 's', 'started', '{}', headers => jsonb_build_object('traceparent', $1::text))",
            &[&format!("00-{trace}-b7ad6b7169203331-01")],
        )
        .await
        .unwrap();
    desk.plant.settled().await;
    let lane = desk.block("s", 2).await;
    desk.plant
        .client
        .execute("SELECT lanekeeper.change_lane($1, 'skip', 'bad')", &[&lane])
        .await
        .unwrap();
    let mut reader = desk.visitor(&["read"]).await;
    let page = reader.get("/session?stream=runs&name=s").await;
    page.assert_page(200, &format!("href=\"https://traces.example/{trace}?a=1\""));
    let states: Vec<&str> = page
        .body
        .split("class=\"word\">")
        .skip(1)
        .map(|rest| rest.split('<').next().unwrap())
        .collect();
    assert_eq!(states.len(), 3, "{states:?}");
    assert_eq!(&states[1..], ["skipped", "delivered"], "the newest first");
    assert!(
        page.has("seq-3") && page.has("answered 500"),
        "{}",
        page.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_of_eight_mebibytes_is_shown_in_part_and_hidden_where_payloads_are() {
    let desk = Desk::open(&[]).await;
    let raise = "UPDATE lanekeeper.stream SET max_payload_bytes = 16777216 WHERE name = 'runs'";
    desk.plant.client.execute(raise, &[]).await.unwrap();
    let payload = format!("{{\"secret\":\"{}\"}}", "ä<".repeat((8 << 20) / 3));
    desk.append("s", "big", &payload).await;
    let mut reader = desk.visitor(&["read"]).await;
    let page = reader.get("/session?stream=runs&name=s").await;
    page.assert_page(200, "8.0 MiB");
    let page = reader.get("/payload?stream=runs&name=s&seq=1").await;
    page.assert_page(200, "of 8.0 MiB. All of it:");
    assert!(page.body.len() < 1 << 20, "{} bytes", page.body.len());
    assert!(page.has("lanekeeper tail runs s --from 1"));

    let hiding = desk
        .plant
        .worker(&[("LANEKEEPER_DASHBOARD__PAYLOADS", "false")])
        .await;
    let mut elsewhere = super::desk::Browser::at(&hiding);
    elsewhere.cookies = reader.cookies.clone();
    let page = elsewhere.get("/session?stream=runs&name=s").await;
    assert_eq!(page.status, 200);
    assert!(!page.has("/payload?"), "nothing leads there");
    let refused = elsewhere.get("/payload?stream=runs&name=s&seq=1").await;
    assert_eq!(refused.status, 403);
    assert!(!refused.has("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_hidden_where_payloads_are() {
    let desk = Desk::open(&[("LANEKEEPER_DASHBOARD__PAYLOADS", "false")]).await;
    desk.append("s", "step", "{}").await;
    desk.plant
        .client
        .batch_execute(
            "INSERT INTO lanekeeper.agent_session (session_id, seq, native_session_id, cli, host, last_activity, last_activity_at,
                                                   last_prompt, last_notification, turn_state, turn)
             SELECT n.session_id, 1, 's', 'codex', 'host-1', 'user_prompt_submit', now(), 'my secret prompt', 'my secret note', 'idle', 1
             FROM lanekeeper.session AS n WHERE n.name = 's'",
        )
        .await
        .unwrap();
    let shown = desk.plant.worker(&[]).await;
    let mut reader = desk.visitor(&["read"]).await;
    for path in ["/agents", "/session?stream=runs&name=s"] {
        let page = reader.get(path).await;
        page.assert_page(200, "codex");
        assert!(!page.has("my secret"), "{path}");
    }
    let mut elsewhere = super::desk::Browser::at(&shown);
    elsewhere.cookies = reader.cookies.clone();
    elsewhere
        .get("/agents")
        .await
        .assert_page(200, "my secret prompt");
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_end_there_is_nothing_and_what_makes_no_sense_is_told() {
    let desk = Desk::open(&[]).await;
    for n in 1..=45 {
        desk.append("long", "step", &n.to_string()).await;
    }
    desk.plant.settled().await;
    let mut reader = desk.visitor(&["read"]).await;
    let page = reader.get("/session?stream=runs&name=long").await;
    assert!(page.has("id=\"seq-45\"") && !page.has("id=\"seq-5\""));
    let older = page
        .between(
            "class=\"older\" aria-label=\"More\"><a class=\"button\" href=\"",
            "\"",
        )
        .replace("&amp;", "&");
    let page = reader.get(&older).await;
    assert!(page.has("id=\"seq-5\"") && page.has("id=\"seq-1\"") && !page.has("class=\"older\""));
    for (path, says) in [
        (
            "/session?stream=runs&name=long&before=1",
            "There are no more.",
        ),
        ("/lanes?after=253402300799000000.1", "There are no more."),
        ("/dead?before=1", "There are no more."),
        ("/dead?before=-9223372036854775808", "There are no more."),
        ("/sessions?before=1", "There is no session."),
        ("/agents?before=1", "None."),
    ] {
        let page = reader.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert!(
            page.has(says) || page.has("None among these"),
            "{path}: {}",
            page.body
        );
    }
    for (path, status) in [
        ("/session?stream=runs", 400),
        ("/session?stream=runs&name=long&before=x", 400),
        ("/session?stream=runs&name=none", 404),
        ("/session?stream=none&name=long", 404),
        ("/session?stream=runs&name=%00", 400),
        ("/payload?stream=runs&name=long&seq=46", 404),
        (
            "/payload?stream=runs&name=long&seq=9223372036854775808",
            400,
        ),
        ("/lanes?after=1", 400),
        ("/lanes?subscription=none", 404),
        ("/agents?turn=none", 400),
        ("/subscription?name=none", 404),
        ("/dead/letter?id=1", 404),
        ("/dead/review?action=none", 400),
        ("/find?q=%00", 400),
    ] {
        let answer = reader.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.has("<html"), "{path}: it is a page");
    }
    let too_long = format!("/find?q={}", "x".repeat(600));
    assert_eq!(reader.get(&too_long).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_found_by_the_id_that_its_producer_gave_it() {
    let desk = Desk::open(&[]).await;
    let id = "0195f7a6-0000-7000-8000-000000000001";
    desk.plant
        .client
        .execute(
            "SELECT lanekeeper.enqueue('runs', 's', 'step', '{}', message_id => $1::text::uuid)",
            &[&id],
        )
        .await
        .unwrap();
    let mut reader = desk.visitor(&["read"]).await;
    let found = reader.get(&format!("/find?q={id}")).await;
    assert_eq!(
        found.location.as_deref(),
        Some("/session?stream=runs&name=s&before=2#seq-1")
    );
    let unknown = reader
        .get("/find?q=0195f7a6-0000-7000-8000-000000000002")
        .await;
    unknown.assert_page(200, "no index by message id");
    for name in ["s-1", "s-2"] {
        desk.append(name, "step", "{}").await;
    }
    let many = reader.get("/find?q=s-").await;
    assert!(
        many.has("name=s-1\"") && many.has("name=s-2\""),
        "{}",
        many.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_says_what_needs_somebody_and_that_nothing_does() {
    let desk = Desk::open(&[]).await;
    let mut reader = desk.visitor(&["read"]).await;
    // A worker reports what it delivers soon after it serves.
    wait_until(LIMIT, "the worker has reported", async || {
        reader.get("/").await.has("Nothing needs you")
    })
    .await;
    let calm = reader.get("/").await;
    calm.assert_page(200, "Nothing needs you");
    desk.dead_letters("old", 3).await;
    desk.block("s", 2).await;
    let page = reader.get("/").await;
    for text in [
        "3 dead letters of out wait for a decision",
        "1 session to out is blocked by a failing event",
        "answered 500",
        "seq 1",
    ] {
        page.assert_page(200, text);
    }
    let pause = "SELECT lanekeeper.pause_subscription('out', 'the endpoint moves')";
    desk.plant.client.execute(pause, &[]).await.unwrap();
    let paused = reader.get("/").await;
    paused.assert_page(200, "out is paused");
    paused.assert_page(200, "the endpoint moves");
}
