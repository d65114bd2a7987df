//! A hook's event that a schema of the stream `hooks` does not take.

use serde_json::json;

use super::{Machine, NOWHERE, log, numbered, run, text};
use crate::support::TestDb;

#[tokio::test]
async fn what_a_schema_refuses_is_kept_aside_and_holds_up_nothing_behind_it() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let mut machine = Machine::new(db.url());
    let file = machine.home.join("subscriptions.toml");
    let schema =
        "[stream.hooks.schema]\nagent_stop = { properties = { text = { maxLength = 10 } } }\n";
    std::fs::write(&file, schema).unwrap();
    let applied = run(
        &mut machine.command(&["apply", "-f", file.to_str().unwrap()]),
        b"",
    );
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    let wrong = |session: &str| {
        json!({"session_id": session, "hook_event_name": "Stop", "text": "longer than ten"})
            .to_string()
            .into_bytes()
    };
    let stderr = machine.hook("claude-code", &wrong("direct"));
    assert!(stderr.contains("refused, kept in"), "{stderr}");
    machine.url = NOWHERE.to_owned();
    machine.hook("claude-code", &numbered("spooled", 0));
    machine.hook("claude-code", &wrong("spooled"));
    machine.hook("claude-code", &numbered("spooled", 2));
    machine.url = db.url().to_owned();
    assert_eq!(machine.drain()["rejected"].as_array().unwrap().len(), 1);
    assert_eq!(machine.spool().rejected().unwrap().len(), 2);
    // This schema takes the event that stands in for the one that was refused, and says where that is.
    let events = log(&client, "spooled").await;
    assert_eq!(events.len(), 3);
    assert!(
        events[1].1["rejected"].as_str().unwrap().contains("/text"),
        "{:?}",
        events[1]
    );

    // A schema that the stand-in does not match either: the others come all the same.
    let schema = schema.replace("{ properties", "{ required = [\"text\"], properties");
    std::fs::write(&file, schema).unwrap();
    run(
        &mut machine.command(&["apply", "-f", file.to_str().unwrap()]),
        b"",
    );
    machine.url = NOWHERE.to_owned();
    machine.hook("claude-code", &wrong("again"));
    machine.hook("claude-code", &numbered("again", 1));
    machine.url = db.url().to_owned();
    machine.drain();
    assert_eq!(machine.spool().rejected().unwrap().len(), 3);
    assert_eq!(log(&client, "again").await.len(), 1);
    assert!(!machine.spool().holds("again"));
}
