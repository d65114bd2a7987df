//! The adapter factory: builds and checks the adapter that a subscription names.

use std::sync::Arc;

use lanekeeper_core::adapter::Adapter;
use serde_json::Value;

use super::{
    Environment, Exec, PlatformRate, SettingsError, Stdout, Tmux, Webhook, agent, discord,
    embedded, projection, redis_pubsub, redis_stream, slack, telegram,
};

/// The adapters.
pub const KINDS: &[&str] = &[
    "agent",
    "discord",
    "exec",
    "redis_pubsub",
    "redis_stream",
    "slack",
    "stdout",
    "telegram",
    "tmux",
    "webhook",
];

/// What a subscription's `adapter` may name: the adapters, what a program delivers that embeds Lanekeeper, and what is fed
/// inside the database.
pub const NAMES: &[&str] = &[
    "agent",
    "discord",
    "embedded",
    "exec",
    "projection",
    "redis_pubsub",
    "redis_stream",
    "slack",
    "stdout",
    "telegram",
    "tmux",
    "webhook",
];

/// Builds an adapter with the secrets that are in force now.
pub(super) fn build_once(
    kind: &str,
    subscription: &str,
    settings: &Value,
    environment: &Environment,
) -> Result<Arc<dyn Adapter>, SettingsError> {
    Ok(match kind {
        "agent" => agent::build(subscription, settings, environment)?,
        "discord" => Arc::new(discord::build(subscription, settings, environment)?),
        "exec" => Arc::new(Exec::build(settings, environment)?),
        "redis_pubsub" => Arc::new(redis_pubsub::build(subscription, settings, environment)?),
        "redis_stream" => Arc::new(redis_stream::build(subscription, settings, environment)?),
        "slack" => Arc::new(slack::build(subscription, settings, environment)?),
        "stdout" => Arc::new(Stdout::build(subscription, settings)?),
        "telegram" => Arc::new(telegram::build(subscription, settings, environment)?),
        "tmux" => Arc::new(Tmux::build(settings, environment)?),
        "webhook" => Arc::new(Webhook::build(subscription, settings, environment)?),
        embedded::KIND => return Err(SettingsError::Embedded),
        _ => return Err(unknown(kind)),
    })
}

/// Whether an adapter edits messages that it sent. If several versions of a message wait, it then needs only the
/// newest.
pub fn shows_progress(kind: &str) -> bool {
    matches!(kind, "discord" | "slack" | "telegram")
}

/// Whether the adapter reaches only what is on the worker's own host: its subscriptions are host-bound.
pub fn is_of_host(kind: &str) -> bool {
    kind == "tmux"
}

/// Whether the adapter's destinations can acknowledge in their answers.
pub fn acknowledges(kind: &str) -> bool {
    matches!(kind, "agent" | "webhook")
}

/// Whether a subscription with these settings is only of use where acknowledgements are required: what its destination
/// answers says that it has the event, and not that it has handled it.
pub fn awaits_completion(kind: &str, settings: &Value) -> bool {
    kind == "agent" && agent::awaits_completion(settings)
}

/// The platform's rate limits for a subscription, which all subscriptions with the same secret share. Empty if the
/// settings are invalid.
pub fn platform_rates(kind: &str, settings: &Value) -> Vec<PlatformRate> {
    let rates = match kind {
        "discord" => discord::rates(settings),
        "slack" => slack::rates(settings),
        "telegram" => telegram::rates(settings),
        _ => return Vec::new(),
    };
    rates.unwrap_or_default()
}

/// Checks settings without building the adapter: reads no secret and resolves no name.
pub fn check(kind: &str, settings: &Value) -> Result<(), SettingsError> {
    match kind {
        "agent" => agent::check(settings),
        "discord" => discord::check(settings),
        embedded::KIND => embedded::check(settings),
        "exec" => Exec::check(settings),
        projection::KIND => projection::check(settings),
        "redis_pubsub" => redis_pubsub::check(settings),
        "redis_stream" => redis_stream::check(settings),
        "slack" => slack::check(settings),
        "stdout" => Stdout::check(settings),
        "telegram" => telegram::check(settings),
        "tmux" => Tmux::check(settings),
        "webhook" => Webhook::check(settings),
        _ => Err(unknown(kind)),
    }
}

fn unknown(kind: &str) -> SettingsError {
    SettingsError::UnknownAdapter {
        kind: kind.to_owned(),
        known: NAMES,
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::subscription::limit::destination;
    use std::time::Duration;

    use lanekeeper_core::subscription::{
        Acknowledge, Definition, Events, PendingBound, Start, StreamDefinition,
    };
    use serde_json::json;

    use super::*;
    use crate::build;

    fn refusal(kind: &str, settings: Value) -> String {
        check(kind, &settings).unwrap_err().to_string()
    }

    fn definition(adapter: &str, settings: Value) -> Definition {
        Definition {
            stream: "runs".to_owned(),
            adapter: adapter.to_owned(),
            events: Events::All,
            start: Start::Latest,
            retry: StreamDefinition::default().retry,
            coalesce: false,
            concurrency: 1,
            history: false,
            ack: Acknowledge::None,
            ack_timeout: Duration::ZERO,
            ack_window: 1,
            host_bound: false,
            pending: PendingBound::default(),
            max_age: None,
            lifecycle: Vec::new(),
            limits: Vec::new(),
            settings,
        }
    }

    /// Each kind with the fewest settings that it takes.
    fn smallest_settings() -> [(&'static str, Value); 10] {
        [
            ("agent", json!({"url": "http://example.com/frames"})),
            ("discord", json!({"token_env": "TOKEN", "channel": "1"})),
            ("exec", json!({"command": ["true"]})),
            ("redis_pubsub", json!({"url_env": "REDIS"})),
            ("redis_stream", json!({"url_env": "REDIS"})),
            ("slack", json!({"token_env": "TOKEN", "channel": "C1"})),
            ("stdout", json!({})),
            ("telegram", json!({"token_env": "TOKEN", "chat": "1"})),
            ("tmux", json!({})),
            ("webhook", json!({"url": "http://example.com/"})),
        ]
    }

    #[test]
    fn every_kind_can_be_built_from_its_smallest_settings() {
        let environment =
            Environment::with_variables(false, [("TOKEN", "1:a"), ("REDIS", "redis://cache")]);
        for (kind, settings) in smallest_settings() {
            check(kind, &settings).unwrap();
            let adapter = build(kind, "audit", &settings, &environment).unwrap();
            assert_eq!(adapter.shows_progress(), shows_progress(kind), "{kind}");
            assert_eq!(adapter.acknowledges(), acknowledges(kind), "{kind}");
        }
        let tested: Vec<&str> = smallest_settings().map(|(kind, _)| kind).into();
        assert_eq!(KINDS, tested, "a new adapter belongs into this test");
        let others = [projection::KIND, embedded::KIND];
        let adapters = NAMES.iter().filter(|name| !others.contains(name));
        assert!(adapters.eq(KINDS), "{NAMES:?}");
    }

    #[test]
    fn every_kind_with_one_target_names_it_in_its_destination() {
        for (kind, settings) in smallest_settings() {
            let circuit = destination(kind, &settings);
            let shown = definition(kind, settings).destination();
            let is_bare = matches!(kind, "stdout" | "tmux");
            for name in [circuit, shown] {
                assert!(name.starts_with(kind), "{name}");
                assert_eq!(
                    name == kind,
                    is_bare,
                    "{name}: without its target, all subscriptions of {kind} share one circuit"
                );
            }
        }
    }

    #[test]
    fn an_adapter_whose_secret_stands_in_a_file_says_of_large_payloads_what_others_say() {
        use std::io::Write as _;

        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "1:a").unwrap();
        let path = file.path().to_str().unwrap();
        for variable in [("TOKEN", "1:a"), ("TOKEN_FILE", path)] {
            let environment = Environment::with_variables(false, [variable]);
            for kind in ["discord", "slack", "telegram"] {
                let target = if kind == "telegram" {
                    "chat"
                } else {
                    "channel"
                };
                let settings = json!({"token_env": "TOKEN", target: "1"});
                let adapter = build(kind, "team", &settings, &environment).unwrap();
                assert!(adapter.shows_progress());
                assert!(adapter.preview().is_some(), "{kind} with {}", variable.0);
            }
        }
    }

    #[test]
    fn unknown_adapter_is_refused_with_the_known_ones() {
        assert_eq!(
            refusal("webhok", json!({})),
            "there is no adapter `webhok` (did you mean `webhook`?); \
             known adapters: agent, discord, embedded, exec, projection, redis_pubsub, redis_stream, slack, stdout, telegram, tmux, webhook"
        );
    }

    #[test]
    fn what_another_program_delivers_may_be_named_and_is_not_built_here() {
        check(embedded::KIND, &json!({})).unwrap();
        assert!(refusal(embedded::KIND, json!({"evnets": []})).contains("no setting `evnets`"));
        let environment = Environment::with_variables(false, [("A", "b")]);
        let refused = build(embedded::KIND, "steps", &json!({}), &environment).err();
        assert!(
            matches!(refused, Some(SettingsError::Embedded)),
            "{refused:?}"
        );
    }

    #[test]
    fn unknown_key_is_refused_with_the_nearest_known_one() {
        assert_eq!(
            refusal(
                "webhook",
                json!({"url": "https://example.com", "secretenv": "A"})
            ),
            "the webhook adapter has no setting `secretenv` (did you mean `secret_env`?); \
             known settings: url, secret_env, \
             timeout_ms, batch, format, content_mode, source"
        );
        assert!(refusal("stdout", json!({"zzz": 1})).contains("no setting `zzz`; known settings"));
    }

    #[test]
    fn wrong_types_are_refused_by_key_and_missing_keys_by_name() {
        let url = "https://example.com";
        let error = refusal("webhook", json!({"url": url, "timeout_ms": "15s"}));
        assert!(
            error.contains("`timeout_ms`") && error.contains("expected u64"),
            "{error}"
        );
        let error = refusal("exec", json!({"command": ["a"], "env": {"A": 5}}));
        assert!(error.contains("`env.A`"), "{error}");
        assert!(refusal("webhook", json!({})).contains("missing field `url`"));
        assert!(refusal("webhook", json!([url])).contains("cannot be read"));
    }
}
