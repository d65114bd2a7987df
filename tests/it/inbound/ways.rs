//! E1, E2: messages over HTTP and on the command line.

use reqwest::Method;
use serde_json::{Value, json};

use crate::api::site::{Answer, Site};
use crate::command::run;

async fn post(site: &Site, token: &str, session: &str, body: impl Into<Vec<u8>>) -> Answer {
    let path = format!("/v1/inbound/{session}");
    let request = site.request(Method::POST, &path).bearer_auth(token);
    Answer::of(request.body(body.into()).send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_posts_messages_and_repeats_them_safely() {
    let site = Site::open(&[]).await;
    let token = site
        .token(&["bot", "--scope", "produce", "--stream", "inbound"])
        .await;
    let reader = site.token(&["board", "--scope", "read"]).await;
    let other = site
        .token(&["other", "--scope", "produce", "--stream", "hooks"])
        .await;
    let message = json!({"origin": "telegram", "content": "héllo\u{1b}[201~\n", "actor_id": "77",
                         "payload": {"n": 1.50}, "source_message_id": "8812"});
    let message = message.to_string();
    for wrong in [&reader, &other] {
        let refused = post(&site, wrong, "s", message.as_str()).await;
        refused.assert_problem(403, "forbidden");
    }
    let first = post(&site, &token, "tg%2F5", message.as_str()).await;
    assert_eq!((first.status, &first.body["seq"]), (201, &json!(1)));
    let again = post(&site, &token, "tg%2F5", message.as_str()).await;
    assert_eq!(
        (again.status, &again.body["duplicate"]),
        (200, &json!(true))
    );
    assert_eq!(again.body["message_id"], first.body["message_id"]);
    let shown = "SELECT to_jsonb(m) FROM lanekeeper.inbound_message AS m";
    let client = crate::support::connect(&site.plant.url).await;
    let shown: Value = client.query_one(shown, &[]).await.unwrap().get(0);
    let expected = [
        "tg/5",
        "telegram",
        "text",
        "héllo\u{1b}[201~\n",
        "77",
        "8812",
    ];
    let columns = [
        "session",
        "origin",
        "message_type",
        "content",
        "actor_id",
        "source_message_id",
    ];
    assert_eq!(
        columns.map(|column| shown[column].as_str().unwrap()),
        expected
    );
    assert_eq!(shown["payload"], json!({"n": 1.5}));

    let large = json!({"origin": "telegram", "content": "\u{1b}".repeat(1 << 20)}).to_string();
    assert_eq!(post(&site, &token, "s", large).await.status, 201);
    let too_large = json!({"origin": "telegram", "content": "x".repeat((1 << 20) + 1)}).to_string();
    post(&site, &token, "s", too_large)
        .await
        .assert_problem(422, "invalid");
    for bad in [
        "",
        "[]",
        r#"["telegram","hi"]"#,
        r#"{"content":"hi"}"#,
        r#"{"origin":"telegram"}"#,
        r#"{"origin":"telegram","content":"hi","session":"s"}"#,
        r#"{"origin":"telegram","content":"nul \u0000"}"#,
    ] {
        post(&site, &token, "s", bad)
            .await
            .assert_problem(422, "invalid");
    }
    let not_json = r#"{"origin":"telegram","content":"hi","payload":{"a":"\u0000"}}"#;
    post(&site, &token, "s", not_json)
        .await
        .assert_problem(422, "nul_character");
    let get = site
        .request(Method::GET, "/v1/inbound/s")
        .bearer_auth(&token);
    let get = Answer::of(get.send().await.unwrap()).await;
    get.assert_problem(405, "method_not_allowed");
    assert_eq!(site.logged_events().await, 2);

    let closed = ["session", "close", "inbound", "s"];
    let database = [("DATABASE_URL", site.plant.url.as_str())];
    assert_eq!(run(&closed, &database, "").await.code, Some(0));
    let new = r#"{"origin":"telegram","content":"hi"}"#;
    post(&site, &token, "s", new)
        .await
        .assert_problem(409, "session_closed");
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_sends_to_an_agent_from_the_command_line_with_and_without_a_database() {
    let site = Site::open(&[]).await;
    let token = site.token(&["laptop", "--scope", "produce"]).await;
    let http = site.worker.http();
    let ways = [
        vec![("DATABASE_URL", site.plant.url.as_str())],
        vec![
            ("LANEKEEPER_URL", http.as_str()),
            ("LANEKEEPER_TOKEN", token.as_str()),
        ],
    ];
    for (at, way) in ways.iter().enumerate() {
        let session = format!("s{at}");
        let send = async |arguments: &[&str], input: &str| {
            run(
                &[&["session", "send", &session], arguments].concat(),
                way,
                input,
            )
            .await
        };
        let sent = send(&["-v are the tests green?"], "").await;
        assert_eq!(sent.code, Some(0), "{}", sent.stderr);
        assert!(
            sent.stdout.starts_with("enqueued as seq 1, "),
            "{}",
            sent.stdout
        );
        let named = [
            "--origin",
            "telegram",
            "--source-message-id",
            "9",
            "--actor-name",
            "Ada",
        ];
        let sent = send(
            &[&named[..], &["--output", "json"]].concat(),
            "two\nlines\n",
        )
        .await;
        let answer: Value = serde_json::from_str(&sent.stdout).unwrap();
        assert_eq!(
            (&answer["seq"], &answer["duplicate"]),
            (&json!(2), &json!(false))
        );
        let again = send(&named, "two\nlines\n").await;
        assert!(
            again.stdout.starts_with("duplicate of seq 2, "),
            "{}",
            again.stdout
        );
        let file = ["--type", "file", "--payload", r#"{"path":"/srv/a.pdf"}"#];
        assert_eq!(send(&file, "").await.code, Some(0));
        for (arguments, input, code, reason) in [
            (
                &["--type", "image", "x"][..],
                "",
                2,
                "possible values: text, voice, file",
            ),
            (&[], "", 1, "must have content"),
            (&["--type", "voice"], "", 1, "must have a payload"),
            (&["--payload", "nope", "x"], "", 1, "not JSON"),
            (&["--origin", "A B", "x"], "", 1, "an origin is"),
        ] {
            let refused = send(arguments, input).await;
            assert_eq!(refused.code, Some(code), "{reason}: {}", refused.stderr);
            assert!(
                refused.stderr.contains(reason),
                "{reason}: {}",
                refused.stderr
            );
        }
        let contents = "SELECT array_agg(content ORDER BY seq), array_agg(origin ORDER BY seq)
                        FROM lanekeeper.inbound_message WHERE session = $1";
        let client = crate::support::connect(&site.plant.url).await;
        let row = client.query_one(contents, &[&session]).await.unwrap();
        let contents: Vec<String> = row.get(0);
        assert_eq!(contents, ["-v are the tests green?", "two\nlines", ""]);
        let origins: Vec<String> = row.get(1);
        assert_eq!(origins, ["terminal", "telegram", "terminal"]);
    }
    assert!(site.worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_binds_a_session_to_a_host_by_command_and_over_http() {
    let site = Site::open(&[]).await;
    let operator = site.token(&["console", "--scope", "operate"]).await;
    let producer = site.token(&["ci", "--scope", "produce"]).await;
    let bind = async |token: &str, stream: &str, body: &str| {
        let path = format!("/v1/sessions/{stream}/a%2Fb/bind");
        let request = site.request(Method::POST, &path).bearer_auth(token);
        Answer::of(request.body(body.to_owned()).send().await.unwrap()).await
    };
    let to_one = r#"{"host":"one"}"#;
    let refused = bind(&producer, "inbound", to_one).await;
    refused.assert_problem(403, "forbidden");
    for changed in [true, false] {
        let bound = bind(&operator, "inbound", to_one).await;
        assert_eq!(
            (bound.status, bound.body),
            (200, json!({"changed": changed}))
        );
    }
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"host":1}"#,
        r#"{"host":"a b"}"#,
        r#"{"host":"x","y":1}"#,
    ] {
        let refused = bind(&operator, "inbound", bad).await;
        refused.assert_problem(422, "invalid");
    }
    let refused = bind(&operator, "none", to_one).await;
    refused.assert_problem(404, "unknown_stream");
    let unbound = bind(&operator, "inbound", r#"{"host":null}"#).await;
    assert_eq!(unbound.body, json!({"changed": true}));

    let database = [("DATABASE_URL", site.plant.url.as_str())];
    let session = ["session", "bind", "inbound", "a/b"];
    for (arguments, said) in [
        (&["two"][..], "inbound/a/b: bound to two\n"),
        (&["two"], "inbound/a/b: as it was\n"),
        (
            &["--registry"],
            "inbound/a/b: bound to the host of the agent registry\n",
        ),
    ] {
        let ran = run(&[&session, arguments].concat(), &database, "").await;
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(0), said),
            "{}",
            ran.stderr
        );
    }
    let json = [&session[..], &["three", "--output", "json"]].concat();
    let ran = run(&json, &database, "").await;
    let bound: Value = serde_json::from_str(&ran.stdout).unwrap();
    let expected = json!({"stream": "inbound", "session": "a/b", "host": "three", "changed": true});
    assert_eq!(bound, expected);
    for (arguments, code, reason) in [
        (&[][..], 2, "<HOST>"),
        (&["a b"], 1, "without spaces"),
        (&["a", "--registry"], 2, "cannot be used with"),
    ] {
        let ran = run(&[&session, arguments].concat(), &database, "").await;
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    }
    assert!(site.worker.stop().await.success());
}
