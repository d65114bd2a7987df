//! Sends requests to a platform's HTTP API. The credential never appears in an error or a log. Some platforms have it
//! in the URL, and servers often repeat the URL in errors.

use std::fmt;
use std::time::Duration;

use lanekeeper_core::adapter::{Server, Verdict};
use lanekeeper_core::bucket::Bucket;
use lanekeeper_core::observed::Observed;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client, RequestBuilder};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use url::Url;

use super::rates::{PlatformLimit, Rates};
use super::settings::Checked;
use crate::{Environment, SettingsError, descriptors, excerpt, http};

/// Platforms repeat a message in their answer, some of them several times as large.
const KEPT_BYTES: usize = 4 << 20;
const QUOTED_CHARS: usize = 300;
/// Until the end of an answer's body: what a message is called stands there.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// A pause burns no attempt: without a lower bound it could be a hot loop, without an upper one for ever.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

tokio::task_local! {
    /// What the requests of the delivery that is under way noticed. They are made far below it, by platforms that
    /// know no deliveries.
    pub static OBSERVED: Observed;
}

/// A secret that a platform knows a bot by.
pub struct Credential(String);

impl Credential {
    /// The token that this variable, or the file that it names, holds.
    pub fn of_environment(
        subscription: &str,
        variable: &str,
        environment: &Environment,
    ) -> Result<Self, SettingsError> {
        let secret = environment
            .secret(variable)
            .map_err(|source| SettingsError::Secret {
                subscription: subscription.to_owned(),
                source,
            })?;
        if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(SettingsError::Token {
                subscription: subscription.to_owned(),
                variable: variable.to_owned(),
                reason: "a token has neither white space nor letters beyond ASCII",
            });
        }
        Ok(Self(secret))
    }

    #[cfg(test)]
    fn new(secret: String) -> Self {
        Self(secret)
    }

    /// The part of a secret URL that nobody else knows.
    pub fn of_url(url: &Url) -> Self {
        let last = url.path_segments().and_then(|mut path| path.next_back());
        Self(last.unwrap_or_default().to_owned())
    }

    pub fn secret(&self) -> &str {
        &self.0
    }

    /// A name for it that may be seen: buckets are called by it, so that all who use it share them.
    pub fn fingerprint(&self) -> String {
        let hash = Sha256::digest(&self.0);
        hash.iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(…)")
    }
}

/// One platform's API, as one credential may use it.
pub struct Api {
    pub client: Client,
    /// What all its URLs begin with. It may hold the secret.
    base: Url,
    server: Option<Server>,
    origin: String,
    credential: Credential,
    /// What its buckets are called by: all who send with this credential share them.
    owner: String,
    rates: Rates,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// `Null` where the body is none or no JSON.
    pub body: Value,
    text: Vec<u8>,
}

impl Api {
    /// `key`: the setting that `base` comes from. The rates of `checked` go with it.
    pub fn open(
        checked: &Checked,
        key: &'static str,
        base: Url,
        credential: Credential,
        subscription: &str,
        environment: &Environment,
    ) -> Result<Self, SettingsError> {
        let private = &environment.allow_private_targets;
        http::refuse_private(&base, private)
            .map_err(|reason| SettingsError::invalid(checked.kind, key, reason))?;
        let client =
            http::client(&base, private).map_err(|source| SettingsError::Certificates {
                subscription: subscription.to_owned(),
                source,
            })?;
        Ok(Self {
            client,
            origin: base.origin().ascii_serialization(),
            server: http::server(&base),
            base,
            owner: format!("{} {}", checked.kind, credential.fingerprint()),
            credential,
            rates: checked.rates.clone(),
        })
    }

    /// The URL of something of the API.
    pub fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        // Bases can: they are http or https.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// What it speaks to, for spans.
    pub fn server(&self) -> Option<Server> {
        self.server.clone()
    }

    /// The bucket of a limit; `chat` where each has its own.
    pub fn bucket(&self, limit: &PlatformLimit, chat: &str) -> Bucket {
        let (owner, name) = (&self.owner, limit.name);
        let key = match limit.per_chat {
            true => format!("{owner} {name} {chat}"),
            false => format!("{owner} {name}"),
        };
        Bucket {
            key: key.into(),
            rate: self.rates.of(limit),
            burst: 1,
        }
    }

    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Sends a request with this body; the error is the verdict where there is no answer.
    pub async fn call(&self, request: RequestBuilder, body: &Value) -> Result<Answer, Verdict> {
        let request = request
            .header(CONTENT_TYPE, "application/json; charset=utf-8")
            .body(body.to_string());
        let response = request.send().await.map_err(|error| {
            if let Some(cause) = http::cause(&error) {
                note(|observed| observed.failed_by(cause));
            }
            let error = error.without_url();
            let causes = self.clean(http::causes(&error).as_bytes());
            descriptors::unsent(&error, format!("no answer from {}: {causes}", self.origin))
        })?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        note(|observed| observed.answered(status));
        let text = http::drain(response, KEPT_BYTES, Instant::now() + BODY_WITHIN).await;
        Ok(Answer {
            status,
            headers,
            body: serde_json::from_slice(&text).unwrap_or_default(),
            text,
        })
    }

    /// An answer in words for an error; `said` is the platform's own word, where it has one.
    pub fn describe(&self, answer: &Answer, said: Option<&str>) -> String {
        let quoted = self.clean(said.map_or(&answer.text[..], str::as_bytes));
        let told = format!("{} answered {}", self.origin, answer.status);
        match quoted.is_empty() {
            true => told,
            false => format!("{told}: {quoted}"),
        }
    }

    fn clean(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes).replace(self.credential.secret(), "…");
        excerpt::first(text.as_bytes(), QUOTED_CHARS)
    }
}

fn note(change: impl FnOnce(&Observed)) {
    // What is asked outside of a delivery is nobody's figure.
    let _ = OBSERVED.try_with(change);
}

/// A pause of so many seconds, within bounds.
pub fn pause(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds)
        .unwrap_or(SHORTEST_PAUSE)
        .clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_not_to_be_seen() {
        let credential = Credential::new("12:abc".to_owned());
        assert_eq!(format!("{credential:?}"), "Credential(…)");
        assert_eq!(credential.fingerprint().len(), 16);
        assert_ne!(
            credential.fingerprint(),
            Credential::new("12:abd".to_owned()).fingerprint()
        );
        let url = Url::parse("http://api.example/bot12:abc/x").unwrap();
        let api = Api {
            client: http::client(&url, &true.into()).unwrap(),
            origin: url.origin().ascii_serialization(),
            server: http::server(&url),
            base: url,
            credential,
            owner: String::new(),
            rates: Rates::default(),
        };
        let answer = Answer {
            status: 404,
            headers: HeaderMap::new(),
            body: Value::Null,
            text: b"no /bot12:abc/x here".to_vec(),
        };
        assert_eq!(
            api.describe(&answer, None),
            "http://api.example answered 404: no /bot…/x here"
        );
    }

    #[test]
    fn pauses_are_bounded_at_both_ends() {
        assert_eq!(pause(0.2), SHORTEST_PAUSE);
        assert_eq!(pause(1.5), Duration::from_millis(1500));
        assert_eq!(pause(1e9), LONGEST_PAUSE);
        for nonsense in [f64::NAN, -3.0, f64::INFINITY] {
            assert_eq!(pause(nonsense), SHORTEST_PAUSE);
        }
    }
}
