//! The settings of the adapter `agent` with `protocol = "a2a"`. Secrets are named, never given.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use crate::settings;
use crate::webhook::settings::{is_variable, read_url};
use crate::{Environment, SettingsError, Signer};

use super::KIND;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);
/// Bytes of a tenant's name.
const LONGEST_TENANT: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(rename = "protocol")]
    _protocol: String,
    url: String,
    binding: Option<String>,
    /// The variable with the access token that the agent gave us.
    token_env: Option<String>,
    tenant: Option<String>,
    acknowledge_on: Option<String>,
    /// Where the agent reaches a worker.
    push_url: Option<String>,
    /// The variable with the secret that the agent's notifications are known by.
    push_secret_env: Option<String>,
    timeout_ms: Option<u64>,
}

/// How calls go over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    JsonRpc,
    HttpJson,
}

/// What of a task is the acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcknowledgeOn {
    Accepted,
    Completed,
}

/// The settings once they have been judged.
pub(super) struct Checked {
    pub(super) url: Url,
    pub(super) binding: Binding,
    pub(super) token_env: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) acknowledge_on: AcknowledgeOn,
    pub(super) push: Option<CheckedPush>,
    pub(super) timeout: Duration,
}

pub(super) struct CheckedPush {
    pub(super) url: Url,
    pub(super) secret_env: String,
}

impl Checked {
    pub(super) fn read(given: &Value) -> Result<Self, SettingsError> {
        let given: Settings = settings::parse(KIND, given)?;
        for (key, name) in [
            ("token_env", &given.token_env),
            ("push_secret_env", &given.push_secret_env),
        ] {
            if name.as_deref().is_some_and(|name| !is_variable(name)) {
                // Not repeated: it may well be the secret itself.
                let reason = "it must be the name of an environment variable, not the secret";
                return Err(SettingsError::invalid(KIND, key, reason));
            }
        }
        let refused = |key, reason: &str| Err(SettingsError::invalid(KIND, key, reason));
        let binding = match given.binding.as_deref() {
            None | Some("jsonrpc") => Binding::JsonRpc,
            Some("http+json") => Binding::HttpJson,
            Some(_) => return refused("binding", "it must be \"jsonrpc\" or \"http+json\""),
        };
        let acknowledge_on = match given.acknowledge_on.as_deref() {
            None | Some("accepted") => AcknowledgeOn::Accepted,
            Some("completed") => AcknowledgeOn::Completed,
            Some(_) => {
                return refused("acknowledge_on", "it must be \"accepted\" or \"completed\"");
            }
        };
        let is_name = |tenant: &String| {
            (1..=LONGEST_TENANT).contains(&tenant.len())
                && tenant
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        };
        if !given.tenant.as_ref().is_none_or(is_name) {
            return refused("tenant", "it must have 1 to 200 letters, digits, - and _");
        }
        let push = match (given.push_url, given.push_secret_env) {
            (None, None) => None,
            (Some(url), Some(secret_env)) => Some(CheckedPush {
                url: read_url(KIND, "push_url", &url)?,
                secret_env,
            }),
            (Some(_), None) => return refused("push_url", "it needs push_secret_env, too"),
            (None, Some(_)) => return refused("push_secret_env", "it needs push_url, too"),
        };
        if push.is_some() && acknowledge_on == AcknowledgeOn::Accepted {
            let reason = "nothing is followed without acknowledge_on = \"completed\"";
            return refused("push_url", reason);
        }
        Ok(Self {
            url: read_url(KIND, "url", &given.url)?,
            binding,
            token_env: given.token_env,
            tenant: given.tenant,
            acknowledge_on,
            push,
            timeout: settings::timeout(KIND, given.timeout_ms, DEFAULT_TIMEOUT, LONGEST_TIMEOUT)?,
        })
    }
}

/// By what an agent's notifications about messages of one subscription are known.
pub struct PushKey {
    subscription: String,
    signer: Signer,
}

impl PushKey {
    /// The key of a subscription with these settings; `None`: it asks for no notifications.
    ///
    /// # Errors
    /// Its secret cannot be used.
    pub fn of(
        subscription: &str,
        settings: &Value,
        environment: &Environment,
    ) -> Result<Option<Self>, SettingsError> {
        let checked = Checked::read(settings)?;
        let key = |push: CheckedPush| Self::new(subscription, &push.secret_env, environment);
        checked.push.map(key).transpose()
    }

    pub(super) fn new(
        subscription: &str,
        variable: &str,
        environment: &Environment,
    ) -> Result<Self, SettingsError> {
        let signer = crate::webhook::signer(subscription, variable.to_owned(), environment)?;
        Ok(Self {
            subscription: subscription.to_owned(),
            signer,
        })
    }

    /// What the agent shows with notifications about this message. It is good for nothing else.
    pub fn token(&self, message_id: uuid::Uuid) -> String {
        let signatures = self.signer.sign(&self.signed(message_id), 0, b"");
        let first = signatures.split(' ').next().unwrap_or_default();
        first.trim_start_matches("v1,").to_owned()
    }

    /// Whether it is the token of this message, with any of the secrets in force. Takes the same time whatever it is.
    pub fn verifies(&self, message_id: uuid::Uuid, token: &str) -> bool {
        let signature = format!("v1,{token}");
        self.signer
            .verifies(&self.signed(message_id), "0", b"", &signature)
    }

    fn signed(&self, message_id: uuid::Uuid) -> String {
        format!("a2a {} {message_id}", self.subscription)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_without_being_repeated() {
        for (more, key) in [
            (json!({"url": "ftp://a.example/x1y2"}), "url"),
            (json!({"url": "https://u:x1y2@a.example/"}), "url"),
            (json!({"binding": "grpc"}), "binding"),
            (json!({"token_env": "x1y2 secret"}), "token_env"),
            (json!({"acknowledge_on": "sent"}), "acknowledge_on"),
            (json!({"tenant": "../x"}), "tenant"),
            (json!({"push_url": "https://b.example"}), "push_url"),
            (json!({"push_secret_env": "KEY"}), "push_secret_env"),
            (
                json!({"push_url": "https://b.example", "push_secret_env": "KEY"}),
                "push_url",
            ),
            (
                json!({"push_url": "b.example/x1y2", "push_secret_env": "KEY"}),
                "push_url",
            ),
            (json!({"timeout_ms": 0}), "timeout_ms"),
            (json!({"batch": 2}), "batch"),
            (json!({"peer": "bob"}), "peer"),
        ] {
            let mut settings = json!({"protocol": "a2a", "url": "https://a.example/"});
            for (key, value) in more.as_object().unwrap() {
                settings[key] = value.clone();
            }
            let error = Checked::read(&settings).map(drop).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}`")), "{error}");
            assert!(!error.contains("x1y2"), "{error}");
        }
    }

    #[test]
    fn a_token_is_good_for_one_message_of_one_subscription_while_a_secret_is_in_force() {
        let [old, new] = [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
        ];
        let key = |subscription: &str, secrets: &str| {
            let environment = Environment::with_variables(false, [("KEY", secrets)]);
            PushKey::new(subscription, "KEY", &environment).unwrap()
        };
        let [one, other] = [1, 2].map(Uuid::from_u128);
        let token = key("bob", old).token(one);
        assert!(key("bob", &format!("{new} {old}")).verifies(one, &token));
        assert!(!key("bob", old).verifies(other, &token));
        assert!(!key("eve", old).verifies(one, &token));
        assert!(!key("bob", new).verifies(one, &token));
        for wrong in ["", &token[1..], "AAAA"] {
            assert!(!key("bob", old).verifies(one, wrong), "{wrong}");
        }
    }
}
