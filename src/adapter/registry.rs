//! The adapters by the names that subscriptions give them.

use std::sync::Arc;

use serde_json::Value;

use super::{Adapter, Environment, Exec, SettingsError, Stdout, Webhook};

/// What a subscription's `adapter` may name.
pub const KINDS: &[&str] = &["exec", "stdout", "webhook"];

/// Builds the adapter of one subscription, reading its secrets.
///
/// `settings` is the subscription's table without what belongs to the engine; durations are in
/// milliseconds.
pub fn build(
    kind: &str,
    subscription: &str,
    settings: &Value,
    environment: &Environment,
) -> Result<Arc<dyn Adapter>, SettingsError> {
    Ok(match kind {
        "exec" => Arc::new(Exec::build(settings)?),
        "stdout" => Arc::new(Stdout::build(subscription, settings)?),
        "webhook" => Arc::new(Webhook::build(subscription, settings, environment)?),
        _ => return Err(unknown(kind)),
    })
}

/// Judges settings without building anything: no secret is read, no name resolved.
pub fn check(kind: &str, settings: &Value) -> Result<(), SettingsError> {
    match kind {
        "exec" => Exec::check(settings),
        "stdout" => Stdout::check(settings),
        "webhook" => Webhook::check(settings),
        _ => Err(unknown(kind)),
    }
}

fn unknown(kind: &str) -> SettingsError {
    SettingsError::UnknownAdapter {
        kind: kind.to_owned(),
        known: KINDS,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(kind: &str, settings: Value) -> String {
        check(kind, &settings).unwrap_err().to_string()
    }

    #[test]
    fn every_kind_can_be_built_from_its_smallest_settings() {
        let environment = Environment::with_variables(false, [("", ""); 0]);
        for (kind, settings) in [
            ("exec", json!({"command": ["true"]})),
            ("stdout", json!({})),
            ("webhook", json!({"url": "http://example.com/"})),
        ] {
            assert!(KINDS.contains(&kind));
            check(kind, &settings).unwrap();
            assert!(
                build(kind, "audit", &settings, &environment).is_ok(),
                "{kind}"
            );
        }
        assert_eq!(KINDS.len(), 3, "a new adapter belongs into this test");
    }

    #[test]
    fn unknown_adapter_is_refused_with_the_known_ones() {
        assert_eq!(
            refusal("webhok", json!({})),
            "there is no adapter `webhok` (did you mean `webhook`?); \
             known adapters: exec, stdout, webhook"
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
             known settings: url, secret_env, timeout_ms"
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
