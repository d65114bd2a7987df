//! What the file's reader refuses and what the plan makes of what it accepts.

use std::time::Duration;

use lanekeeper_core::subscription::limit as stored;
use lanekeeper_core::subscription::{
    ChangeKind, Current, Events, Exhaustion, Existing, Limit, PendingBound, Plan, Start,
    StreamDefinition, Target,
};
use serde_json::json;

use super::*;

pub(crate) fn problems(text: &str) -> Vec<String> {
    let error = SubscriptionFile::parse(text, "subs.toml").unwrap_err();
    error.problems.iter().map(ToString::to_string).collect()
}

pub(crate) fn file(text: &str) -> SubscriptionFile {
    SubscriptionFile::parse(text, "subs.toml").unwrap()
}

const AUDIT: &str = r#"
[subscription.audit]
stream  = "hooks"
events  = ["session_start", "agent_stop"]
adapter = "webhook"
url     = "https://example.com/hooks"
secret_env = "AUDIT_SECRET"
retry   = { schedule = ["1s", "500ms", "1m"], max_attempts = 3, on_exhausted = "park" }
timeout = "15s"
"#;

#[test]
fn a_subscription_is_read_with_its_adapters_settings_apart() {
    let file = file(AUDIT);
    let audit = &file.subscriptions[0];
    assert_eq!(
        (audit.name.as_str(), audit.stream.as_str()),
        ("audit", "hooks")
    );
    let url = "https://example.com/hooks";
    assert_eq!(
        audit.settings,
        json!({"url": url, "secret_env": "AUDIT_SECRET", "timeout_ms": 15_000})
    );
    let schedule = [1_000, 500, 60_000].map(Duration::from_millis);
    assert_eq!(audit.retry.schedule.as_deref(), Some(schedule.as_slice()));
    assert_eq!(audit.retry.on_exhausted, Some(Exhaustion::Park));
    assert_eq!(audit.start, Start::Latest);
}

#[test]
fn every_problem_is_reported_at_once_with_line_column_and_the_key_that_was_meant() {
    let text = r#"
[subscription.audit]
strem = "hooks"
adapter = "webhook"
urll = "https://example.com"
retry = { schedule = ["1s", "5"], on_exhausted = "explode", attempts = 3 }
timeout = 15
coalesce = "yes"
"#;
    assert_eq!(
        problems(text),
        [
            "2:15: subscription.audit.stream: is missing",
            "3:1: subscription.audit.strem: unknown key; did you mean stream?",
            "5:1: subscription.audit.urll: unknown key; did you mean url?",
            "6:22: subscription.audit.retry.schedule: \"5\" is not a duration: write a whole \
             number and its unit, one of ms, s, m, h, d, such as \"500ms\" or \"15s\"",
            "6:50: subscription.audit.retry.on_exhausted: must be one of \"dead_letter\", \
             \"park\", \"drop\"",
            "6:61: subscription.audit.retry.attempts: unknown key; did you mean max_attempts?",
            "7:11: subscription.audit.timeout: needs a unit, such as \"15s\"",
            "8:12: subscription.audit.coalesce: must be true or false",
        ]
    );
}

#[test]
fn an_adapters_objection_points_at_its_key() {
    let text = "[subscription.a]\nstream = \"hooks\"\nadapter = \"webhook\"\nurl = \"ftp://x\"";
    let found = problems(text);
    assert!(
        found[0].starts_with("4:7: subscription.a.url: "),
        "{found:?}"
    );
    let found = problems("[subscription.a]\nstream = \"hooks\"\nadapter = \"webhok\"");
    assert!(found[0].contains("no adapter `webhok`"), "{found:?}");
    let found = problems(&format!("{AUDIT}timeout_ms = 5"));
    assert!(
        found[0].ends_with("write timeout = \"15s\" instead"),
        "{found:?}"
    );
}

#[test]
fn a_secret_is_refused_wherever_it_stands() {
    for line in [
        "secret = \"hunter2\"",
        "auth_token = \"hunter2\"",
        "proxy = \"http://me:hunter2@p\"",
    ] {
        let text = format!("{AUDIT}{line}");
        let found = problems(&text);
        assert!(
            found.iter().any(|problem| problem.contains("secret_env")),
            "{found:?}"
        );
        assert!(!found.join("\n").contains("hunter2"), "{found:?}");
    }
}

#[test]
fn lists_of_events_are_explicit() {
    let with = |events: &str| {
        format!("[subscription.a]\nstream = \"runs\"\nadapter = \"stdout\"\nevents = {events}")
    };
    assert_eq!(
        file(&with("[\"*\"]")).subscriptions[0].events,
        Some(Events::All)
    );
    assert!(problems(&with("[]"))[0].contains("[\"*\"] stands for every event"));
    assert!(problems(&with("[\"a\", \"*\"]"))[0].contains("must stand alone"));
    assert!(problems(&with("[1]"))[0].contains("an event type must be text"));
    assert!(problems(&with("\"a\""))[0].contains("must be a list"));
}

#[test]
fn a_misspelt_adapter_is_named_by_the_word_that_was_meant() {
    assert_eq!(
        problems(
            "[subscription.a]\nstream = \"hooks\"\nadaptor = \"webhook\"\nurl = \"https://example.com\""
        ),
        ["3:1: subscription.a.adaptor: unknown key; did you mean adapter?"]
    );
    assert_eq!(
        problems("[subscription.a]\nstream = \"hooks\"\nurl = \"https://example.com\""),
        ["1:15: subscription.a.adapter: is missing"]
    );
}

#[test]
fn what_is_not_toml_or_not_a_section_says_where() {
    assert!(problems("[subscription.a\n")[0].starts_with("1:16: not valid TOML"));
    assert!(problems(&format!("{AUDIT}{AUDIT}"))[0].contains("duplicate key"));
    assert_eq!(
        problems("[audit]\nstream = \"hooks\""),
        ["1:2: audit: unknown section; did you mean [subscription.audit]?"]
    );
    for (text, meant) in [
        ("[subscriptions.a]\nstream = \"hooks\"", "[subscription.a]"),
        ("[subscriptions]", "[subscription.NAME]"),
        ("[streams.runs]", "[stream.runs]"),
        ("[steam]\nstream = \"hooks\"", "[subscription.steam]"),
    ] {
        let found = problems(text);
        assert!(
            found[0].ends_with(&format!("did you mean {meant}?")),
            "{found:?}"
        );
    }
    assert!(problems("[stream.Mine]")[0].contains("starts with a-z"));
}

#[test]
fn a_duration_out_of_range_and_a_name_that_the_database_refuses_are_found_here() {
    let found =
        problems("[subscription.\"a b\"]\nstream = \"s\"\nadapter = \"stdout\"\ntimeout = \"0s\"");
    assert!(
        found[0].contains("a subscription's name starts"),
        "{found:?}"
    );
    assert!(found[1].contains("at least 1ms"), "{found:?}");
}

#[test]
fn limits_are_read_one_or_several_and_what_is_wrong_with_them_says_where() {
    let with = |limit: &str| format!("{AUDIT}limit = {limit}");
    let limits = |limit: &str| file(&with(limit)).subscriptions[0].limits.clone();
    let one = limits("{ rate = \"30/s\" }");
    assert_eq!(
        (one[0].rate.to_string(), one[0].burst, &one[0].key),
        ("30/s".into(), 1, &None)
    );
    let two = limits("[{ rate = \"30/s\", key = \"bot\" }, { rate = \"20/m\", burst = 5 }]");
    assert_eq!((two.len(), two[1].burst), (2, 5));
    for (wrong, reason) in [
        ("5", "limit: must be a table"),
        ("[]", "limit: must have between 1 and 8 limits"),
        ("[5]", "limit[0]: must be a table"),
        ("{ burst = 1 }", "limit.rate: is missing"),
        ("{ rate = \"30\" }", "limit.rate: \"30\" is not a rate"),
        (
            "{ rate = \"1/s\", burst = 0 }",
            "limit.burst: must be a whole number between 1 and 100000",
        ),
        (
            "{ rate = \"1/s\", brust = 2 }",
            "limit.brust: unknown key; did you mean burst?",
        ),
        (
            "[{ rate = \"1/s\" }, { rate = \"1/s\", key = \"\" }]",
            "limit[1].key: must not be empty",
        ),
    ] {
        let found = problems(&with(wrong));
        assert!(found[0].contains(reason), "{wrong}: {found:?}");
    }
}

#[test]
fn limits_go_to_the_database_and_come_back() {
    let limits = file(&format!(
        "{AUDIT}limit = {{ rate = \"20/min\", key = \"bot\" }}"
    ))
    .subscriptions[0]
        .limits
        .clone();
    let settings = json!({"url": "https://example.com"});
    let stored = stored::join(&limits, settings.clone());
    assert_eq!(
        stored["limit"],
        json!([{"rate": "20/min", "burst": 1, "key": "bot"}])
    );
    assert_eq!(stored::split(stored).unwrap(), (limits, settings.clone()));
    assert_eq!(stored::join(&[], settings.clone()), settings);
    assert!(stored::split(json!({"limit": [{"rate": "x"}]})).is_err());
}

#[test]
fn a_limit_without_a_key_belongs_to_its_destination_and_names_no_path_of_it() {
    let buckets = |settings| {
        let limits = [Limit {
            rate: "1/s".parse().unwrap(),
            burst: 1,
            key: None,
        }];
        stored::buckets(&limits, "webhook", &settings)[0]
            .key
            .clone()
    };
    let key = buckets(json!({"url": "https://hooks.example.com/T0/secret"}));
    assert!(
        key.contains("https://hooks.example.com") && !key.contains("secret"),
        "{key}"
    );
    assert_eq!(
        key,
        buckets(json!({"url": "https://hooks.example.com/T0/secret", "timeout_ms": 5}))
    );
    assert_ne!(
        key,
        buckets(json!({"url": "https://hooks.example.com/T1/secret"}))
    );
}

#[test]
fn one_key_with_two_rates_is_refused_wherever_the_other_one_stands() {
    let limited = |name: &str, rate: &str| {
        format!(
            "[subscription.{name}]\nstream = \"runs\"\nadapter = \"stdout\"\n\
             limit = {{ rate = \"{rate}\", key = \"bot\" }}\n"
        )
    };
    let in_force = carried_out(
        current(),
        file(&limited("a", "30/s")).plan(&current(), false).unwrap(),
    );
    let refusal = |text: &str, prune| file(text).plan(&in_force, prune).unwrap_err().to_string();
    let two = limited("b", "30/s") + &limited("c", "20/s");
    let found = refusal(&two, true);
    assert!(
        found.contains("subscription.c.limit")
            && found.contains("\"b\" has the same limit \"bot\""),
        "{found}"
    );
    assert!(refusal(&limited("c", "20/s"), false).contains("\"a\" has the same limit"));
    assert!(
        file(&limited("c", "20/s")).plan(&in_force, true).is_ok(),
        "the other one goes"
    );
    assert!(
        file(&limited("c", "30/s")).plan(&in_force, false).is_ok(),
        "they share it"
    );
}

#[test]
fn one_bot_with_two_rates_is_refused_wherever_the_other_one_stands() {
    let bot = |name: &str, variable: &str, place: &str, rates: &str| {
        format!(
            "[subscription.{name}]\nstream = \"runs\"\nadapter = \"telegram\"\n\
             token_env = \"{variable}\"\n{place}\n{rates}\n"
        )
    };
    let chat = "chat = \"1\"";
    let slow = "rates = { bot = \"10/s\" }";
    let in_force = carried_out(
        current(),
        file(&bot("a", "BOT", chat, slow))
            .plan(&current(), false)
            .unwrap(),
    );
    let planned = |text: &str, prune| file(text).plan(&in_force, prune).map(drop);
    // The default is a rate, too.
    let found = planned(&bot("b", "BOT", chat, ""), false)
        .unwrap_err()
        .to_string();
    assert!(
        found.contains("subscription.b.rates")
            && found.contains(
                "\"a\" sends with the secret of BOT too, and its rate \"bot\" is 10/s and not 29/s"
            ),
        "{found}"
    );
    let two = bot("b", "OTHER", chat, slow) + &bot("c", "OTHER", "chat_from = \"/c\"", "");
    assert!(planned(&two, true).is_err(), "in one file");
    planned(&bot("b", "BOT", chat, slow), false).expect("they agree");
    planned(&bot("b", "OTHER", chat, ""), false).expect("two bots");
    planned(&bot("b", "BOT", chat, ""), true).expect("the other one goes");

    // A chat's rate is of that chat.
    let of_chats = |one: &str, other: &str| {
        let rates = |rate: &str| format!("rates = {{ bot = \"10/s\", chat = \"{rate}\" }}");
        let two = bot("b", "BOT", one, &rates("1/s")) + &bot("c", "BOT", other, &rates("2/s"));
        planned(&two, true)
    };
    of_chats("chat = \"1\"", "chat = \"2\"").expect("two chats");
    assert!(of_chats("chat = \"1\"", "chat = \"1\"").is_err());
    assert!(of_chats("chat = \"1\"", "chat_from = \"/c\"").is_err());
}

pub(crate) fn current() -> Current {
    let hooks = StreamDefinition {
        fan_out: Events::Only(vec!["agent_stop".into()]),
        critical: Events::Only(vec!["agent_stop".into()]),
        ..StreamDefinition::default()
    };
    Current {
        streams: [
            ("hooks".into(), hooks),
            ("runs".into(), StreamDefinition::default()),
        ]
        .into(),
        ..Current::default()
    }
}

/// What is there after a plan was carried out.
pub(crate) fn carried_out(mut current: Current, plan: Plan) -> Current {
    current.streams.extend(
        plan.streams
            .into_iter()
            .map(|step| (step.name, step.definition)),
    );
    for step in plan.subscriptions {
        let existing = Existing {
            id: step.id.unwrap_or(7),
            definition: step.definition,
        };
        if step.kind == ChangeKind::Removed {
            current.live.remove(&step.name);
            let stream = existing.definition.stream.clone();
            current.removed.insert((step.name, stream), existing);
        } else {
            current.live.insert(step.name, existing);
        }
    }
    current
}

fn kinds(plan: &Plan) -> Vec<(Target, String, ChangeKind)> {
    let changes = plan.changes().into_iter();
    changes
        .map(|change| (change.target, change.name, change.change))
        .collect()
}

#[test]
fn what_the_file_leaves_open_is_the_streams() {
    let text = "[subscription.a]\nstream = \"hooks\"\nadapter = \"stdout\"\n\
                [subscription.b]\nstream = \"runs\"\nadapter = \"stdout\"";
    let plan = file(text).plan(&current(), false).unwrap();
    let [a, b] = plan.subscriptions.as_slice() else {
        panic!("two were asked for")
    };
    assert_eq!(a.definition.events, Events::Only(vec!["agent_stop".into()]));
    assert!(a.definition.coalesce, "the stream names critical events");
    assert_eq!(b.definition.events, Events::All);
    assert!(
        !b.definition.coalesce,
        "the stream names none: every event is critical"
    );
    assert_eq!(b.definition.retry, StreamDefinition::default().retry);
}

#[test]
fn a_plan_that_was_carried_out_leaves_nothing_to_do() {
    let file = file(&format!(
        "{AUDIT}[stream.mine]\nretry = {{ max_attempts = 2 }}"
    ));
    let plan = file.plan(&current(), true).unwrap();
    assert!(!plan.is_empty());
    let again = file.plan(&carried_out(current(), plan), true).unwrap();
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn a_bound_is_the_streams_or_ones_own_and_none_can_be_asked_for() {
    let of = |stream: &str, subscription: &str| {
        let text = format!(
            "[stream.runs]\n{stream}\n[subscription.a]\nstream = \"runs\"\nadapter = \"stdout\"\n{subscription}"
        );
        let plan = file(&text).plan(&current(), false).unwrap();
        plan.subscriptions[0].definition.pending
    };
    assert_eq!(of("", ""), PendingBound::default());
    assert_eq!(of("max_pending = 5", "").max_pending, Some(5));
    assert_eq!(
        of("max_pending = 5", "max_pending = 7").max_pending,
        Some(7)
    );
    assert_eq!(of("max_pending = 5", "max_pending = 0").max_pending, None);
    let drops = of("max_pending = 5\non_full = \"drop_oldest\"", "");
    assert_eq!(drops.drops_beyond(), Some(5));
    assert_eq!(of("max_pending = 5", "").drops_beyond(), None);
}

#[test]
fn bounds_ages_and_feeds_that_cannot_be_are_refused_where_they_stand() {
    let with = |stream: &str, more: &str| {
        format!("[subscription.a]\nstream = \"{stream}\"\nadapter = \"stdout\"\n{more}")
    };
    for (more, part) in [
        ("max_pending = -1", "between 0 and 100000"),
        ("max_pending = 100001", "between 0 and 100000"),
        ("max_pending = \"5\"", "whole number"),
        (
            "max_pending = 5\non_full = \"coalesce\"",
            "\"refuse\", \"drop_oldest\"",
        ),
        ("max_age = 5", "needs a unit"),
        ("max_age = \"8d\"", "at most 7d"),
        ("lifecycle = \"sent\"", "must be a list"),
        (
            "lifecycle = [\"sent\", \"gone\"]",
            "an entry must be one of",
        ),
    ] {
        let found = problems(&with("runs", more));
        assert!(
            found.len() == 1 && found[0].contains(part),
            "{more}: {found:?}"
        );
    }
    for (stream, more, key) in [
        ("runs", "on_full = \"drop_oldest\"", "on_full"),
        (
            "hooks",
            "max_pending = 5\non_full = \"drop_oldest\"",
            "on_full",
        ),
        ("lifecycle", "lifecycle = [\"sent\"]", "lifecycle"),
        ("lifecycle", "max_pending = 5", "max_pending"),
    ] {
        let mut current = current();
        let feed = StreamDefinition::default();
        current.streams.insert("lifecycle".into(), feed);
        let refused = file(&with(stream, more)).plan(&current, false).unwrap_err();
        let told = refused.problems[0].to_string();
        assert!(told.contains(&format!("subscription.a.{key}")), "{told}");
    }
    let bursty = with(
        "hooks",
        "events = [\"tool_use\"]\nmax_pending = 5\non_full = \"drop_oldest\"",
    );
    file(&bursty)
        .plan(&current(), false)
        .expect("no critical event is dropped");
}

#[test]
fn a_change_names_each_setting_before_and_after() {
    let plan = file(AUDIT).plan(&current(), false).unwrap();
    let current = carried_out(current(), plan);
    let changed = AUDIT
        .replace("max_attempts = 3", "max_attempts = 5")
        .replace("timeout = \"15s\"", "");
    let plan = file(&changed).plan(&current, false).unwrap();
    let fields: Vec<_> = plan.subscriptions[0]
        .fields
        .iter()
        .map(|f| (f.field.as_str(), &f.from, &f.to))
        .collect();
    assert_eq!(
        fields,
        [
            ("retry.max_attempts", &json!(3), &json!(5)),
            ("timeout_ms", &json!(15_000), &json!(null)),
        ]
    );
}

#[test]
fn only_prune_removes_and_a_removed_name_comes_back_on_its_stream() {
    let current = carried_out(current(), file(AUDIT).plan(&current(), false).unwrap());
    let empty = file("");
    let plan = empty.plan(&current, false).unwrap();
    assert_eq!(
        (plan.is_empty(), plan.unlisted.as_slice()),
        (true, ["audit".to_owned()].as_slice())
    );

    let plan = empty.plan(&current, true).unwrap();
    assert_eq!(
        kinds(&plan),
        [(Target::Subscription, "audit".into(), ChangeKind::Removed)]
    );
    let current = carried_out(current, plan);
    let plan = file(AUDIT).plan(&current, false).unwrap();
    assert_eq!(
        kinds(&plan),
        [(Target::Subscription, "audit".into(), ChangeKind::Revived)]
    );
    assert_eq!(plan.subscriptions[0].id, Some(7));

    let elsewhere = AUDIT.replace("stream  = \"hooks\"", "stream = \"runs\"");
    let plan = file(&elsewhere).plan(&current, false).unwrap();
    assert_eq!(
        kinds(&plan),
        [(Target::Subscription, "audit".into(), ChangeKind::Created)]
    );
}

#[test]
fn what_lanes_hang_on_cannot_change_and_a_stream_must_exist() {
    let current = carried_out(current(), file(AUDIT).plan(&current(), false).unwrap());
    let refused = |text: &str| file(text).plan(&current, false).unwrap_err().to_string();
    let moved = refused(&AUDIT.replace("stream  = \"hooks\"", "stream = \"runs\""));
    assert!(moved.contains("2:15: subscription.audit.stream:") && moved.contains("cannot move"));
    let restarted = refused(&format!("{AUDIT}start = \"earliest\""));
    assert!(
        restarted.contains("audit.start:") && restarted.contains("replay"),
        "{restarted}"
    );
    let unknown = refused(&AUDIT.replace("stream  = \"hooks\"", "stream = \"hoks\""));
    assert!(unknown.contains("did you mean \"hooks\"?"), "{unknown}");
}

/// A file with every kind of value in it.
const EVERYTHING: &str = r#"
[stream.builds]
critical = ["started"]
fan_out = "all"
max_payload_bytes = 65536
retry = { max_attempts = 20, on_exhausted = "park" }

[subscription.audit]
stream  = "hooks"
events  = ["session_start", "agent_stop"]
adapter = "webhook"
url     = "https://example.com/hooks"
secret_env = "AUDIT_SECRET"
retry   = { schedule = ["1s", "500ms", "1m"], max_attempts = 3, on_exhausted = "drop" }
timeout = "15s"
start = "earliest"
coalesce = false
concurrency = 7
history = true
"#;

proptest::proptest! {
    #[test]
    fn any_text_is_a_file_or_is_refused_with_a_place(text in "[\\[\\]a-z_.=\"'{}#0-9\n, -]{0,120}") {
        if let Err(error) = SubscriptionFile::parse(&text, "subs.toml") {
            proptest::prop_assert!(error.to_string().contains("subs.toml"));
        }
    }

    #[test]
    fn a_damaged_file_is_a_file_or_is_refused_with_a_place(
        at in proptest::prelude::any::<proptest::sample::Index>(),
        length in 0_usize..12,
        put in "[\\[\\]a-z_.=\"'{}#0-9\n, -]{0,6}|\\PC{0,3}",
    ) {
        let at = at.index(EVERYTHING.len());
        let mut text = EVERYTHING.to_owned();
        text.replace_range(at..(at + length).min(EVERYTHING.len()), &put);
        if let Err(error) = SubscriptionFile::parse(&text, "subs.toml") {
            proptest::prop_assert!(!error.problems.is_empty());
            proptest::prop_assert!(error.to_string().contains("subs.toml"));
        }
    }
}

#[test]
fn a_subscription_is_host_bound_from_its_first_lane_to_its_last() {
    let bound = format!("{AUDIT}host_bound = true");
    let plan = file(&bound).plan(&current(), false).unwrap();
    assert!(plan.subscriptions[0].definition.host_bound);
    let there = carried_out(current(), plan);
    let unchanged = file(&bound).plan(&there, false).unwrap();
    assert!(unchanged.is_empty());
    let removed = file("").plan(&there, true).unwrap();
    let removed = carried_out(there.clone(), removed);
    for (current, what) in [(there, "in force"), (removed, "removed")] {
        let refused = file(AUDIT).plan(&current, false).unwrap_err().to_string();
        assert!(refused.contains("audit.host_bound:"), "{what}: {refused}");
        assert!(refused.contains("another name"), "{what}: {refused}");
    }
    let wrong = problems(&format!("{AUDIT}host_bound = \"yes\""));
    assert!(wrong[0].contains("host_bound"), "{wrong:?}");
}

#[test]
fn terminal_types_are_named_and_the_engines_own_stream_has_none() {
    let read = file("[stream.runs]\nterminal = [\"run_completed\", \"run_failed\"]\n");
    let types = read.streams[0].terminal.clone().unwrap();
    assert_eq!(types, ["run_completed", "run_failed"]);
    assert_eq!(
        file("[stream.runs]\nterminal = []\n").streams[0].terminal,
        Some(vec![])
    );
    assert_eq!(file("[stream.runs]\n").streams[0].terminal, None);
    let many: Vec<String> = (0..101).map(|n| format!("\"t{n}\"")).collect();
    for (terminal, reason) in [
        ("[\"*\"]".to_owned(), "must name event types"),
        ("[\"\"]".to_owned(), "an event type must not be empty"),
        ("\"done\"".to_owned(), "must be a list"),
        (format!("[{}]", many.join(",")), "at most 100"),
        (
            format!("[\"{}\"]", "t".repeat(201)),
            "longer than 200 bytes",
        ),
    ] {
        let found = problems(&format!("[stream.runs]\nterminal = {terminal}\n"));
        assert!(found.len() == 1 && found[0].contains(reason), "{found:?}");
    }
    let feed = problems("[stream.lifecycle]\nterminal = [\"done\"]\n");
    assert!(feed[0].contains("nobody to refuse to"), "{feed:?}");
}
