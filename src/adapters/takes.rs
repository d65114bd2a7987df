//! What a subscription may take from its stream where it says nothing itself: the bounds of each adapter.

use std::time::Duration;

use serde_json::Value;

use super::{agent, chat, exec, redis_server, stdout, webhook};

/// The longest time-out of an adapter with these settings, and the most events that it delivers together. `None`: it takes
/// none from its stream.
///
/// A projection holds rows of the database while it runs, and the time-out of `tmux` is for each of its commands: theirs
/// are their own. What a webhook's receiver gets looks
/// different where several events come together: whoever wrote it for that says so in the subscription. Consumers of a Redis
/// server and agents see each event by itself.
pub fn takes(kind: &str, settings: &Value) -> (Option<Duration>, Option<u32>) {
    let count = |most: usize| u32::try_from(most).ok();
    match kind {
        "agent" if agent::speaks_frames(settings) => (
            Some(webhook::settings::LONGEST_TIMEOUT),
            count(agent::MOST_EVENTS),
        ),
        "agent" | "webhook" => (Some(webhook::settings::LONGEST_TIMEOUT), None),
        "discord" | "slack" | "telegram" => (Some(chat::LONGEST_TIMEOUT), None),
        "exec" => (Some(exec::LONGEST_TIMEOUT), None),
        "redis_pubsub" | "redis_stream" => (
            Some(redis_server::LONGEST_TIMEOUT),
            count(redis_server::MOST_EVENTS),
        ),
        "stdout" => (Some(stdout::LONGEST_TIMEOUT), None),
        _ => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{KINDS, check};

    /// Settings of each adapter that it accepts.
    fn plain(kind: &str) -> Value {
        match kind {
            "agent" | "webhook" => json!({"url": "https://a.example/"}),
            "discord" | "slack" => json!({"token_env": "T", "channel": "1"}),
            "exec" => json!({"command": ["/bin/true"]}),
            "redis_pubsub" => json!({"url_env": "R", "channel": "c"}),
            "redis_stream" => json!({"url_env": "R", "key": "k"}),
            "telegram" => json!({"token_env": "T", "chat": "1"}),
            _ => json!({}),
        }
    }

    #[test]
    fn an_adapter_takes_from_its_stream_what_it_takes_from_its_subscription_and_no_more() {
        let a2a = json!({"url": "https://a.example/", "protocol": "a2a"});
        let all = KINDS.iter().map(|kind| (*kind, plain(kind)));
        let destinations = all.filter(|(kind, _)| *kind != "tmux");
        for (kind, settings) in destinations.chain([("agent", a2a)]) {
            check(kind, &settings).unwrap_or_else(|error| panic!("{kind}: {error}"));
            let with = |key: &str, value: u128| {
                let mut settings = settings.clone();
                settings[key] = json!(u64::try_from(value).unwrap());
                check(kind, &settings)
            };
            let (timeout, batch) = takes(kind, &settings);
            let longest = timeout
                .expect("every destination has a time-out")
                .as_millis();
            assert!(with("timeout_ms", longest).is_ok(), "{kind}");
            assert!(with("timeout_ms", longest + 1).is_err(), "{kind}");
            if let Some(most) = batch {
                assert!(with("batch", most.into()).is_ok(), "{kind}");
                assert!(with("batch", u128::from(most) + 1).is_err(), "{kind}");
            }
        }
        for kind in ["projection", "embedded", "tmux"] {
            assert_eq!(takes(kind, &json!({})), (None, None), "{kind}");
        }
    }
}
