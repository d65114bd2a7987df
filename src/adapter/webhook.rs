//! Events as signed HTTP POST requests (Standard Webhooks).
//!
//! What the destination's answer means:
//!
//! | answer | verdict |
//! |---|---|
//! | 2xx | accepted, whatever the body |
//! | 429, 503 with Retry-After | throttled |
//! | 408, 425, 429, 5xx, no answer in time, transport error | retry |
//! | 410 | gone |
//! | 3xx | rejected: redirects are not followed, they would escape the operator's choice of target |
//! | anything else | rejected |
//!
//! Proxies from the environment are not used: the target filter judges the address that is
//! connected to, which would be the proxy's. An https target is verified against the system's
//! certificates (or `SSL_CERT_FILE`, `SSL_CERT_DIR`). Paths and queries of webhook URLs are often
//! credentials, so errors name the origin only.

use std::time::Duration;

use async_trait::async_trait;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, redirect};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::signature::Signer;
use super::target::{self, PublicResolver};
use super::{Adapter, Delivery, Environment, SettingsError, Verdict};
use super::{envelope, excerpt, retry_after, settings};

const KIND: &str = "webhook";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A response body is read so that its connection can be used again, up to these bounds; past them
/// a new connection is cheaper.
const DRAINED_BYTES: usize = 64 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// What of it is kept for the error text.
const KEPT_BYTES: usize = 4 * 1024;
const QUOTED_CHARS: usize = 300;

/// A HTTP/2 connection whose peer has vanished is found by a ping instead of by the time-outs of
/// one delivery after the other.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Session names may be any UTF-8; receivers percent-decode this header, always.
const NOT_IN_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    secret_env: Option<String>,
    timeout_ms: Option<u64>,
}

/// The settings once they have been judged.
struct Checked {
    url: Url,
    secret_env: Option<String>,
    timeout: Duration,
}

/// Posts each event to one URL over pooled connections.
pub struct Webhook {
    client: Client,
    url: Url,
    signer: Option<Signer>,
    timeout: Duration,
}

impl Webhook {
    pub(super) fn check(settings: &Value) -> Result<(), SettingsError> {
        Checked::read(settings).map(drop)
    }

    pub(super) fn build(
        subscription: &str,
        settings: &Value,
        environment: &Environment,
    ) -> Result<Self, SettingsError> {
        let Checked {
            url,
            secret_env,
            timeout,
        } = Checked::read(settings)?;
        let private = environment.allow_private_targets;
        if let Some(address) = target::private_literal(&url).filter(|_| !private) {
            let reason = format!(
                "{address} is not a public address, and the worker's configuration does not allow \
                 private targets"
            );
            return Err(SettingsError::invalid(KIND, "url", reason));
        }
        let signer = secret_env
            .map(|variable| signer(subscription, variable, environment))
            .transpose()?;
        let client = client(&url, private).map_err(|error| SettingsError::Start {
            subscription: subscription.to_owned(),
            adapter: KIND,
            source: error.into(),
        })?;
        Ok(Self {
            client,
            url,
            signer,
            timeout,
        })
    }

    fn headers(&self, delivery: &Delivery<'_>, body: &[u8]) -> HeaderMap {
        let event = delivery.event;
        let id = event.message_id.to_string();
        let timestamp = jiff::Timestamp::now().as_second();
        let session = utf8_percent_encode(&event.session, NOT_IN_HEADER).to_string();
        let mut headers = HeaderMap::with_capacity(12);
        let mut set = |name: &'static str, value: &str| {
            // Only a producer's trace context can fail here; the delivery does without it then.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        set("content-type", "application/json");
        set("lanekeeper-session", &session);
        set("lanekeeper-seq", &event.seq.to_string());
        set("lanekeeper-attempt", &delivery.attempt.to_string());
        if let Some(signer) = &self.signer {
            set("webhook-signature", &signer.sign(&id, timestamp, body));
        }
        set("webhook-id", &id);
        set("webhook-timestamp", &timestamp.to_string());
        let trace = event
            .headers
            .as_deref()
            .map(TraceContext::read)
            .unwrap_or_default();
        if let Some(parent) = trace.traceparent {
            set("traceparent", &parent);
            if let Some(state) = trace.tracestate {
                set("tracestate", &state);
            }
        }
        headers
    }

    /// Reads the response to its end or bound; its beginning is returned for the error text.
    async fn drain(&self, mut response: Response, deadline: Instant) -> String {
        let mut kept = Vec::new();
        let mut read = 0;
        let reading = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                read += chunk.len();
                let room = KEPT_BYTES - kept.len();
                kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if read >= DRAINED_BYTES {
                    break;
                }
            }
        };
        // The status has decided already; a body that does not end costs its connection only.
        let _ = timeout_at(deadline.min(Instant::now() + DRAIN_TIME), reading).await;
        let quoted = match self.url.query().filter(|query| !query.is_empty()) {
            Some(query) => String::from_utf8_lossy(&kept)
                .replace(query, "…")
                .into_bytes(),
            None => kept,
        };
        excerpt::first(&quoted, QUOTED_CHARS)
    }

    fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

#[async_trait]
impl Adapter for Webhook {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let deadline = Instant::now() + self.timeout;
        let body = envelope::body(delivery);
        let headers = self.headers(delivery, &body);
        let request = self
            .client
            .post(self.url.clone())
            .headers(headers)
            .body(body);
        let response = match timeout_at(deadline, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let causes = causes(&error.without_url());
                return Verdict::retry(format!("no answer from {}: {causes}", self.origin()));
            }
            Err(_) => {
                let (origin, timeout) = (self.origin(), self.timeout);
                return Verdict::retry(format!("no answer from {origin} within {timeout:?}"));
            }
        };
        let status = response.status();
        let pause = retry_after::pause(response.headers());
        let quoted = self.drain(response, deadline).await;
        let mut answer = format!("{} answered {status}", self.origin());
        if !quoted.is_empty() {
            answer = format!("{answer}: {quoted}");
        }
        judge(status, pause, answer)
    }
}

fn judge(status: StatusCode, pause: Option<Duration>, answer: String) -> Verdict {
    match (status.as_u16(), pause) {
        (200..=299, _) => Verdict::Accepted,
        (429 | 503, Some(after)) => Verdict::Throttled {
            reason: answer,
            after,
        },
        (408 | 425 | 429 | 500..=599, after) => Verdict::Retry {
            error: answer,
            after,
        },
        (410, _) => Verdict::Gone { error: answer },
        (300..=399, _) => Verdict::Rejected {
            error: format!("redirects are not followed; name the final URL: {answer}"),
        },
        _ => Verdict::Rejected { error: answer },
    }
}

impl Checked {
    fn read(given: &Value) -> Result<Self, SettingsError> {
        let given: Settings = settings::parse(KIND, given)?;
        let refused = |reason: &str| SettingsError::invalid(KIND, "url", reason);
        // The parser's own error would do too, but for repeating the URL.
        let url = Url::parse(&given.url).map_err(|error| refused(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused("only http and https are spoken"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused(
                "it carries credentials, which would enter the database; sign with secret_env",
            ));
        }
        if given
            .secret_env
            .as_deref()
            .is_some_and(|name| !is_variable(name))
        {
            // Not repeated: it may well be the secret itself.
            let reason = "it must be the name of an environment variable, not the secret";
            return Err(SettingsError::invalid(KIND, "secret_env", reason));
        }
        Ok(Self {
            url,
            secret_env: given.secret_env,
            timeout: settings::timeout(KIND, given.timeout_ms, DEFAULT_TIMEOUT, LONGEST_TIMEOUT)?,
        })
    }
}

fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty()
        && name.chars().all(word)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.starts_with(super::signature::PREFIX)
}

fn signer(
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

fn client(url: &Url, private: bool) -> reqwest::Result<Client> {
    // An error means that the embedding program has chosen a provider already: it is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = Client::builder()
        .user_agent(concat!("lanekeeper/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT);
    if url.scheme() == "http" {
        // Without redirects no certificate is ever looked at: an image without any will do.
        client = client.tls_certs_only([]);
    }
    if !private {
        client = client.dns_resolver(PublicResolver);
    }
    client.build()
}

/// The innermost errors say what happened; the outermost only that a request failed.
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(error.source(), |cause| cause.source());
    let chain: Vec<_> = chain.map(ToString::to_string).collect();
    if chain.is_empty() {
        return error.to_string();
    }
    chain.join(": ")
}

/// W3C trace context that the producer stored with the event.
#[derive(Default, Deserialize)]
struct TraceContext {
    traceparent: Option<String>,
    tracestate: Option<String>,
}

impl TraceContext {
    fn read(headers: &str) -> Self {
        // Foreign to this adapter and optional: what cannot be read is not passed on.
        serde_json::from_str(headers).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn refusal(settings: Value) -> String {
        Webhook::check(&settings).unwrap_err().to_string()
    }

    fn build(settings: Value, environment: &Environment) -> Result<Webhook, String> {
        use std::error::Error;
        Webhook::build("audit", &settings, environment).map_err(|error| match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })
    }

    #[test]
    fn urls_that_cannot_be_posted_to_are_refused_without_being_repeated() {
        for (url, reason) in [
            ("ftp://example.com/key", "only http and https"),
            ("https://user:key@example.com/", "carries credentials"),
            ("https://key@example.com/", "carries credentials"),
            ("example.com/key", "relative URL"),
            ("https://", "empty host"),
        ] {
            let error = refusal(json!({"url": url}));
            assert!(error.contains("`url`") && error.contains(reason), "{error}");
            assert!(!error.contains("key"), "{error}");
        }
    }

    #[test]
    fn time_outs_outside_their_bounds_are_refused() {
        for timeout_ms in [0, 300_001] {
            let error = refusal(json!({"url": "http://a.example/", "timeout_ms": timeout_ms}));
            assert!(error.contains("between 1 and 300000 ms"), "{error}");
        }
    }

    #[test]
    fn secret_written_in_place_of_its_name_is_refused_without_being_repeated() {
        let error = refusal(json!({"url": "http://a.example/", "secret_env": SECRET}));
        assert!(
            error.contains("`secret_env`") && !error.contains("MfKQ"),
            "{error}"
        );
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

    #[test]
    fn answers_are_judged_as_documented() {
        let judge = |status: u16, pause| {
            judge(
                StatusCode::from_u16(status).unwrap(),
                pause,
                "answer".to_owned(),
            )
        };
        let pause = Some(Duration::from_secs(7));
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(judge(status, None), Verdict::Accepted, "{status}");
        }
        for status in [429, 503] {
            let throttled = Verdict::Throttled {
                reason: "answer".to_owned(),
                after: Duration::from_secs(7),
            };
            assert_eq!(judge(status, pause), throttled, "{status}");
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 599] {
            assert_eq!(judge(status, None), Verdict::retry("answer"), "{status}");
        }
        for status in [300, 301, 302, 307, 308, 400, 401, 404, 409, 413, 422] {
            assert!(
                matches!(judge(status, pause), Verdict::Rejected { .. }),
                "{status}"
            );
        }
        assert!(matches!(judge(410, None), Verdict::Gone { .. }));
        let Verdict::Retry { after, .. } = judge(502, pause) else {
            panic!("a bad gateway is retried");
        };
        assert_eq!(after, pause);
    }
}
