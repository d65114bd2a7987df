//! `[source.NAME]` in the file for `apply`: its plan, its record, its removal, what is refused.

use serde_json::Value;

use super::FILE;
use crate::command::run;
use crate::support::TestDb;

#[tokio::test]
async fn sources_are_created_changed_recorded_shown_and_removed() {
    let db = TestDb::new().await;
    let url = [("DATABASE_URL", db.url())];
    let apply = async |arguments: &[&str], text: &str| {
        let arguments = [&["apply", "-f", "-"], arguments].concat();
        let ran = run(&arguments, &url, text).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran
    };
    let dry = apply(&["--dry-run"], FILE).await;
    assert_eq!(dry.stdout, "+ source gh\n+ source std\n");
    assert_eq!(apply(&[], FILE).await.stdout, dry.stdout);
    assert_eq!(apply(&[], FILE).await.stdout, "", "a second time");
    let changed = FILE.replace("\"all\"", "\"one\"");
    assert_eq!(
        apply(&[], &changed).await.stdout,
        "~ source std session all → one\n"
    );

    let status = run(&["status", "--output", "json"], &url, "").await;
    let shown = |name: &str| {
        let lines = status
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut lines = lines.filter(|line| line["kind"] == "source" && line["name"] == name);
        lines.next().unwrap()
    };
    assert_eq!(shown("gh")["secret_env"], "GH_SECRET");
    assert_eq!(
        (&shown("std")["version"], &shown("std")["session"]),
        (&2.into(), &"one".into())
    );
    let text = run(&["status"], &url, "").await.stdout;
    assert!(
        text.contains("SOURCE") && text.contains("gh-{/repository}"),
        "{text}"
    );

    let left = apply(&[], "").await;
    assert!(
        left.stderr.contains("source gh, source std"),
        "{}",
        left.stderr
    );
    assert_eq!(
        apply(&["--prune"], "").await.stdout,
        "- source gh\n- source std\n"
    );
    assert_eq!(apply(&[], FILE).await.stdout, dry.stdout, "it comes back");
    let client = db.connect().await;
    let record = "SELECT json_agg(v.definition ->> 'session' ORDER BY v.version)::text
                  FROM lanekeeper.source_version AS v WHERE v.name = 'std'";
    let record: String = client.query_one(record, &[]).await.unwrap().get(0);
    assert_eq!(record, r#"["all", "one", null, "all"]"#);
}

#[tokio::test]
async fn a_source_that_is_wrong_is_refused_with_its_place_and_nothing_is_applied() {
    let db = TestDb::new().await;
    let url = [("DATABASE_URL", db.url())];
    for (from, to, told) in [
        (
            "\"github\"",
            "\"gitlab\"",
            "must be one of \"standard\", \"github\"",
        ),
        (
            "secret_env = \"GH_SECRET\"",
            "secret = \"hunter2hunter2\"",
            "secrets never enter the database",
        ),
        (
            "\"GH_SECRET\"",
            "\"a b\"",
            "the name of an environment variable",
        ),
        ("{/comment/body}", "{/comment/body", "a brace"),
        ("{/comment/body}", "{comment}", "write {/a/b}"),
        (
            "session    = \"gh-{/repository}\"",
            "",
            "source.gh.session: is missing",
        ),
        ("max_bytes  = 2048", "max_bytes = 1", "between 1024 and"),
        (
            "max_bytes  = 2048",
            "tolerance = \"5m\"",
            "GitHub signs no time",
        ),
        (
            "max_bytes  = 2048",
            "message_id = \"m\"",
            "would be a duplicate",
        ),
        (
            "max_bytes  = 2048",
            "only = { action = \"created\" }",
            "write {/a/b}",
        ),
        (
            "max_bytes  = 2048",
            "only = { \"/action\" = [] }",
            "between 1 and 100 values",
        ),
        (
            "max_bytes  = 2048",
            "only = { \"/action\" = [[1]] }",
            "at \"/action\" must be text",
        ),
        ("max_bytes  = 2048", "only = \"/action\"", "must be a table"),
        (
            "max_bytes  = 2048",
            "reply = \"ok\"",
            "nobody reads the answer",
        ),
        (
            "\"github\"",
            "\"slack\"\ndeferred = true",
            "deferred is for Discord only",
        ),
        (
            "\"github\"",
            "\"discord\"\ndeferred = true\nreply = \"ok\"",
            "either a reply, or deferred",
        ),
        (
            "\"github\"",
            "\"discord\"\nreply = \" \"",
            "at most 2000 characters",
        ),
        ("max_bytes ", "max_byte ", "did you mean max_bytes?"),
        ("[source.gh]", "[source.Gh]", "starts with a-z"),
        (
            "max_bytes  = 2048",
            "commands = { \"/s\" = \"status\" }",
            "only where the worker can answer in the chat",
        ),
        (
            "max_bytes  = 2048",
            "commands = { \"/s\" = \"stop\" }",
            "must be one of \"interrupt\", \"barrier\", \"status\"",
        ),
        (
            "max_bytes  = 2048",
            "commands = { \"a b\" = \"barrier\" }",
            "a command is one word",
        ),
        (
            "max_bytes  = 2048",
            "poll = \"telegram\"",
            "either has `poll`",
        ),
        ("[source.gh]", "[sources.gh]", "did you mean [source.gh]?"),
    ] {
        let text = FILE.replace(from, to);
        assert_ne!(text, FILE, "{from}");
        let ran = run(&["apply", "-f", "-"], &url, &text).await;
        assert_eq!(ran.code, Some(2), "{to}: {}", ran.stdout);
        assert!(ran.stderr.contains(told), "{to}: {}", ran.stderr);
        assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
    }
    let client = db.connect().await;
    let count = "SELECT (SELECT count(*) FROM lanekeeper.source) + (SELECT count(*) FROM lanekeeper.source_version)";
    let count: i64 = client.query_one(count, &[]).await.unwrap().get(0);
    assert_eq!(count, 0);
}

const POLLED: &str = r#"
[source.tg]
poll       = "telegram"
token_env  = "TG_TOKEN"
allow_from = [77, -100]
session    = "tg-{chat_id}"
commands   = { "/stop" = "interrupt" }
"#;

#[tokio::test]
async fn a_polled_source_is_planned_changed_and_shown_like_any_other() {
    let db = TestDb::new().await;
    let url = [("DATABASE_URL", db.url())];
    let apply = async |text: &str| {
        let ran = run(&["apply", "-f", "-"], &url, text).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout
    };
    assert_eq!(apply(POLLED).await, "+ source tg\n");
    assert_eq!(apply(POLLED).await, "");
    let changed = POLLED.replace("77, -100", "77");
    assert_eq!(
        apply(&changed).await,
        "~ source tg allow_from [77, -100] → [77]\n"
    );
    let status = run(&["status"], &url, "").await.stdout;
    for told in ["telegram", "TG_TOKEN", "tg-{chat_id}"] {
        assert!(status.contains(told), "{told}: {status}");
    }
    // It takes no requests, and becomes one that does by the next file.
    let signed = "[source.tg]\nsignature = \"standard\"\nsecret_env = \"S\"\nsession = \"a\"\ncontent = \"{body}\"\n";
    let changes = apply(signed).await;
    assert!(changes.contains("poll telegram"), "{changes}");
}

#[tokio::test]
async fn a_polled_source_that_is_wrong_is_refused_with_its_place() {
    let db = TestDb::new().await;
    let url = [("DATABASE_URL", db.url())];
    for (from, to, told) in [
        ("\"telegram\"", "\"irc\"", "must be one of \"telegram\""),
        ("token_env ", "token ", "secrets never enter the database"),
        ("[77, -100]", "[\"ada\"]", "a list of numbers"),
        ("[77, -100]", "77", "a list of numbers"),
        (
            "allow_from = [77, -100]",
            "",
            "source.tg.allow_from: is missing",
        ),
        (
            "{chat_id}",
            "{/chat/id}",
            "known are {chat_id}, {thread_id}, {actor_id}",
        ),
        ("session ", "content ", "unknown key"),
        (
            "session ",
            "api_url = \"http://bots.example\"\nsession ",
            "must be https",
        ),
        (
            "session ",
            "secret_env = \"S\"\nsession ",
            "either has `poll`",
        ),
        ("session ", "edit = true\nsession ", "did you mean edits?"),
    ] {
        let text = POLLED.replace(from, to);
        assert_ne!(text, POLLED, "{from}");
        let ran = run(&["apply", "-f", "-"], &url, &text).await;
        assert_eq!(ran.code, Some(2), "{to}: {}", ran.stdout);
        assert!(ran.stderr.contains(told), "{to}: {}", ran.stderr);
    }
}
