//! `timeout`, `batch` and `poll_floor` of a stream, from the file to its subscriptions.

use lanekeeper_core::subscription::ChangeKind;
use serde_json::json;

use crate::tests::{carried_out, current, file, problems};

#[test]
fn what_a_subscription_leaves_open_of_its_delivery_it_takes_from_its_stream() {
    let of = |stream: &str, more: &str| {
        let text =
            format!("[stream.builds]\n{stream}\n[subscription.a]\nstream = \"builds\"\n{more}\n");
        let plan = file(&text).plan(&current(), false).unwrap();
        let settings = &plan.subscriptions[0].definition.settings;
        (settings["timeout_ms"].clone(), settings["batch"].clone())
    };
    let both = "timeout = \"6m\"\nbatch = 80";
    let redis = "adapter = \"redis_stream\"\nurl_env = \"R\"\nkey = \"k\"\n";
    let webhook = "adapter = \"webhook\"\nurl = \"https://a.example\"\n";
    let agent = "adapter = \"agent\"\nurl = \"https://a.example\"\n";
    let exec = "adapter = \"exec\"\ncommand = [\"/bin/true\"]\n";
    let projection = "adapter = \"projection\"\nfunction = \"f.g\"\nrole = \"r\"\nurl_env = \"U\"\ntables = [\"t\"]\n";
    let own = |adapter: &str| format!("{adapter}timeout = \"2s\"\nbatch = 3");
    // As much as the adapter takes. A webhook's receiver says itself that it takes batches.
    assert_eq!(of(both, redis), (json!(300_000), json!(80)));
    assert_eq!(of(both, agent), (json!(300_000), json!(50)));
    assert_eq!(of(both, webhook), (json!(300_000), json!(null)));
    assert_eq!(of(both, exec), (json!(360_000), json!(null)));
    assert_eq!(of(both, projection), (json!(null), json!(null)));
    // What it says itself stands.
    for adapter in [redis, agent, webhook] {
        assert_eq!(of(both, &own(adapter)), (json!(2_000), json!(3)));
    }
    // A limit counts requests: its subscription is made no faster by its stream.
    let limited = format!("{redis}limit = {{ rate = \"5/s\" }}");
    assert_eq!(of(both, &limited), (json!(300_000), json!(null)));
    // Nothing is said.
    assert_eq!(of("", redis), (json!(null), json!(null)));
}

#[test]
fn a_stream_says_nothing_of_its_deliveries_any_more_where_the_file_says_false() {
    let says = "[stream.builds]\ntimeout = \"6m\"\nbatch = 80\npoll_floor = \"200ms\"";
    let plan = file(says).plan(&current(), false).unwrap();
    let current = carried_out(current(), plan);
    let delivery = |text: &str| {
        let plan = file(text).plan(&current, false).unwrap();
        let fields = plan.streams[0].fields.iter();
        let fields: Vec<_> = fields
            .map(|it| format!("{}: {} -> {}", it.field, it.from, it.to))
            .collect();
        (plan.streams[0].kind, fields.join(", "))
    };
    let unchanged = (ChangeKind::Unchanged, String::new());
    assert_eq!(delivery("[stream.builds]"), unchanged);
    assert_eq!(delivery(says), unchanged);
    assert_eq!(
        delivery("[stream.builds]\nbatch = false\npoll_floor = \"1s\""),
        (
            ChangeKind::Changed,
            "poll_floor: \"200ms\" -> \"1s\", batch: 80 -> null".to_owned()
        )
    );
}

#[test]
fn a_streams_delivery_outside_its_bounds_is_refused() {
    for (line, reason) in [
        ("timeout = \"2h\"", "at most 1h"),
        ("timeout = 5", "needs a unit, such as \"5s\""),
        ("timeout = true", "or false for a stream that says nothing"),
        ("batch = 0", "must be a whole number between 1 and 100"),
        ("batch = 101", "must be a whole number between 1 and 100"),
        ("batch = true", "or false for a stream that says nothing"),
        ("poll_floor = \"9ms\"", "must be at least 10ms"),
        ("poll_floor = \"61s\"", "at most 1m"),
        ("poll_flor = \"1s\"", "did you mean poll_floor?"),
    ] {
        let found = problems(&format!("[stream.builds]\n{line}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("2:"), "{found:?}");
        assert!(found[0].contains(reason), "{line}: {found:?}");
    }
}
