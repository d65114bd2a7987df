//! Sends events as signed HTTP POST requests (Standard Webhooks).
//!
//! Proxies from the environment are not used: the target filter checks the address of the connection, which would be
//! the proxy's. An https target is verified against the system's
//! certificates (or `SSL_CERT_FILE`, `SSL_CERT_DIR`). Paths and queries of webhook URLs are often
//! credentials, so errors name the origin only.

pub(crate) mod answer;
mod batch;
mod cloudevents;
mod format;
pub(crate) mod settings;

use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, BatchVerdict, Delivery, Server, Verdict};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use self::format::Format;
use self::settings::Checked;
use super::signature::Signer;
use super::{Environment, SettingsError, http};

const KIND: &str = "webhook";

/// Session names may be any UTF-8; receivers percent-decode this header, always.
const NOT_IN_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// Posts each event to one URL over pooled connections.
pub struct Webhook {
    client: Client,
    url: Url,
    server: Option<Server>,
    signer: Option<Signer>,
    timeout: Duration,
    /// Events in one request.
    batch: usize,
    format: Format,
    /// The header of that name, with a secret.
    authorization: Option<HeaderValue>,
}

impl Webhook {
    pub(super) fn check(settings: &Value) -> Result<(), SettingsError> {
        Checked::read(settings).map(drop)
    }

    /// The adapter for `settings`, which are those of a subscription with this name.
    ///
    /// # Errors
    /// Where the settings or the secret cannot be used.
    pub fn build(
        subscription: &str,
        settings: &Value,
        environment: &Environment,
    ) -> Result<Self, SettingsError> {
        let checked = Checked::read(settings)?;
        Self::posting(KIND, subscription, checked, None, environment)
    }

    /// What posts to this URL for an adapter of this kind.
    pub(super) fn posting(
        kind: &'static str,
        subscription: &str,
        Checked {
            url,
            secret_env,
            timeout,
            batch,
            format,
        }: Checked,
        authorization: Option<HeaderValue>,
        environment: &Environment,
    ) -> Result<Self, SettingsError> {
        let private = &environment.allow_private_targets;
        http::refuse_private(&url, private)
            .map_err(|reason| SettingsError::invalid(kind, "url", reason))?;
        let signer = secret_env
            .map(|variable| signer(subscription, variable, environment))
            .transpose()?;
        let client = http::client(&url, private).map_err(|source| SettingsError::Certificates {
            subscription: subscription.to_owned(),
            source,
        })?;
        Ok(Self {
            client,
            server: http::server(&url),
            url,
            signer,
            timeout,
            batch,
            format,
            authorization,
        })
    }

    /// `id`: of the request. The others are those of the event, in a batch the first.
    fn headers(&self, delivery: &Delivery<'_>, id: &str, body: &[u8]) -> HeaderMap {
        let event = delivery.event;
        let timestamp = jiff::Timestamp::now().as_second();
        let session = utf8_percent_encode(&event.session, NOT_IN_HEADER).to_string();
        let mut headers = HeaderMap::with_capacity(12);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        set("lanekeeper-session", &session);
        set("lanekeeper-seq", &event.seq.to_string());
        set("lanekeeper-attempt", &delivery.attempt.to_string());
        if delivery.replay_id.is_some() {
            set("lanekeeper-replayed", "true");
        }
        if let Some(signer) = &self.signer {
            set("webhook-signature", &signer.sign(id, timestamp, body));
        }
        set("webhook-id", id);
        set("webhook-timestamp", &timestamp.to_string());
        http::trace(delivery, &mut headers);
        self.format.label(delivery, &mut headers);
        headers
    }

    fn origin(&self) -> String {
        http::origin(&self.url)
    }
}

/// The result of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// `None`: there was no answer.
    pub status: Option<u16>,
    pub verdict: Verdict,
}

impl Attempt {
    fn unanswered(verdict: Verdict) -> Self {
        Self {
            status: None,
            verdict,
        }
    }
}

#[async_trait]
impl Adapter for Webhook {
    fn acknowledges(&self) -> bool {
        true
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        self.post(delivery).await.verdict
    }

    fn max_batch(&self) -> usize {
        self.batch
    }

    async fn deliver_batch(&self, deliveries: &[Delivery<'_>]) -> BatchVerdict {
        self.post_batch(deliveries).await
    }

    fn server(&self) -> Option<Server> {
        self.server.clone()
    }
}

impl Webhook {
    /// Delivers one event, and also returns the status of the answer.
    pub async fn post(&self, delivery: &Delivery<'_>) -> Attempt {
        let deadline = Instant::now() + self.timeout;
        let body = self.format.body(delivery);
        let headers = self.headers(delivery, &delivery.event.message_id.to_string(), &body);
        let response = match self.request(delivery, headers, body, deadline).await {
            Ok(response) => response,
            Err(verdict) => return Attempt::unanswered(verdict),
        };
        Attempt {
            status: Some(response.status().as_u16()),
            verdict: answer::judge(response, &self.url, deadline, delivery.asks_ack).await,
        }
    }

    /// Sends a request. What is observed is noted with this delivery.
    ///
    /// # Errors
    /// What it means where there is no answer.
    async fn request(
        &self,
        delivery: &Delivery<'_>,
        headers: HeaderMap,
        body: Vec<u8>,
        deadline: Instant,
    ) -> Result<Response, Verdict> {
        let request = self
            .client
            .post(self.url.clone())
            .headers(headers)
            .body(body);
        http::send(request, delivery, &self.url, (deadline, self.timeout)).await
    }
}

pub(crate) fn signer(
    subscription: &str,
    variable: String,
    environment: &Environment,
) -> Result<Signer, SettingsError> {
    let subscription = subscription.to_owned();
    match environment.secret(&variable) {
        Ok(secret) => Signer::parse(&secret).map_err(|source| SettingsError::Key {
            subscription,
            variable,
            source,
        }),
        Err(source) => Err(SettingsError::Secret {
            subscription,
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn build(settings: Value, environment: &Environment) -> Result<Webhook, String> {
        use std::error::Error;
        Webhook::build("audit", &settings, environment).map_err(|error| match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })
    }

    #[test]
    fn named_secret_that_is_absent_or_no_key_keeps_the_adapter_from_being_built() {
        let settings = json!({"url": "https://example.com/", "secret_env": "AUDIT_SECRET"});
        let with = |value| Environment::with_variables(false, [("AUDIT_SECRET", value)]);
        assert!(build(settings.clone(), &with(SECRET)).is_ok());
        let absent = Environment::with_variables(false, [("", ""); 0]);
        let error = build(settings.clone(), &absent).err().unwrap();
        assert!(
            error.contains("`audit`") && error.contains("AUDIT_SECRET_FILE"),
            "{error}"
        );
        let error = build(settings, &with("hunter2")).err().unwrap();
        assert!(
            error.contains("AUDIT_SECRET") && !error.contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn private_address_in_the_url_is_refused_unless_allowed() {
        let settings = json!({"url": "http://[::ffff:169.254.169.254]/latest"});
        let refused = Environment::with_variables(false, [("", ""); 0]);
        let error = build(settings.clone(), &refused).err().unwrap();
        assert!(error.contains("not a public address"), "{error}");
        let allowed = Environment::with_variables(true, [("", ""); 0]);
        assert!(build(settings, &allowed).is_ok());
    }
}
