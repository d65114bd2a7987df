//! A webhook's settings. They are checked without a secret and without the network.
//!
//! URLs are not repeated in errors: paths and queries of webhook URLs often are credentials.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use url::{Host, Url};

use super::format::{self, Format, Mode};
use crate::settings::{self, SettingsError};
use crate::signature;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);
/// Events in one request.
const MOST_EVENTS: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    url: String,
    secret_env: Option<String>,
    timeout_ms: Option<u64>,
    batch: Option<u64>,
    format: Option<String>,
    content_mode: Option<String>,
    source: Option<String>,
}

/// What of its settings an adapter shares that posts to a URL.
pub(crate) struct Given {
    pub(crate) url: String,
    pub(crate) secret_env: Option<String>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) batch: Option<u64>,
}

/// The settings once they have been judged.
pub(crate) struct Checked {
    pub(super) url: Url,
    pub(super) secret_env: Option<String>,
    pub(super) timeout: Duration,
    pub(super) batch: usize,
    pub(super) format: Format,
}

impl Checked {
    pub(super) fn read(given: &Value) -> Result<Self, SettingsError> {
        let given: Settings = settings::parse(super::KIND, given)?;
        let format = format::read(
            given.format.as_deref(),
            given.content_mode.as_deref(),
            given.source,
        )?;
        let mut batch = given.batch;
        match &format {
            Format::CloudEvents {
                mode: Mode::Batched,
                ..
            } => {
                batch = batch.or(Some(u64::try_from(MOST_EVENTS).unwrap_or(u64::MAX)));
            }
            Format::CloudEvents { .. } if batch.is_some_and(|batch| batch > 1) => {
                let reason =
                    "several CloudEvents go in one request only with content_mode = \"batched\"";
                return Err(SettingsError::invalid(super::KIND, "batch", reason));
            }
            _ => {}
        }
        let posting = Given {
            url: given.url,
            secret_env: given.secret_env,
            timeout_ms: given.timeout_ms,
            batch,
        };
        let checked = Self::judge(super::KIND, posting)?;
        Ok(Self { format, ..checked })
    }

    /// Judges the settings of this kind of adapter.
    pub(crate) fn judge(kind: &'static str, given: Given) -> Result<Self, SettingsError> {
        let url = read_url(kind, "url", &given.url)?;
        if given
            .secret_env
            .as_deref()
            .is_some_and(|name| !is_variable(name))
        {
            // Not repeated: it may well be the secret itself.
            let reason = "it must be the name of an environment variable, not the secret";
            return Err(SettingsError::invalid(kind, "secret_env", reason));
        }
        Ok(Self {
            url,
            secret_env: given.secret_env,
            timeout: settings::timeout(kind, given.timeout_ms, DEFAULT_TIMEOUT, LONGEST_TIMEOUT)?,
            batch: settings::batch(kind, given.batch, MOST_EVENTS)?,
            format: Format::Own,
        })
    }
}

/// Judges a URL that requests go to.
pub(crate) fn read_url(kind: &'static str, key: &str, given: &str) -> Result<Url, SettingsError> {
    let refused = |reason: &str| SettingsError::invalid(kind, key, reason);
    if let Some(meant) = without_scheme(given) {
        let reason = format!("it does not begin with http:// or https://; write {meant}");
        return Err(refused(&reason));
    }
    // The parser's own error would do too, but for repeating the URL.
    let url = Url::parse(given).map_err(|error| refused(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("only http and https are spoken"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused(
            "it carries credentials, which would enter the database; sign with secret_env",
        ));
    }
    Ok(url)
}

/// How a URL begins that was written without its scheme, such as `localhost:9000/hooks`; its path may be a secret.
fn without_scheme(given: &str) -> Option<String> {
    if given.contains("://") {
        return None;
    }
    let meant = Url::parse(&format!("http://{given}")).ok()?;
    let host = meant.host()?;
    if !meant.username().is_empty() || meant.password().is_some() {
        return None;
    }
    let on_this_machine = match &host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    };
    let scheme = if on_this_machine { "http" } else { "https" };
    let port = meant.port().map(|port| format!(":{port}"));
    Some(format!("{scheme}://{host}{}/…", port.unwrap_or_default()))
}

/// Whether it is the name of a variable, and not what should be in one.
pub(crate) fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty()
        && name.chars().all(word)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.starts_with(signature::PREFIX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(settings: Value) -> String {
        Checked::read(&settings).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn urls_that_cannot_be_posted_to_are_refused_without_being_repeated() {
        for (url, reason) in [
            ("ftp://example.com/key", "only http and https"),
            ("https://user:key@example.com/", "carries credentials"),
            ("https://key@example.com/", "carries credentials"),
            ("example.com/key", "write https://example.com/…"),
            ("localhost:9000/key", "write http://localhost:9000/…"),
            ("127.0.0.1:9000", "write http://127.0.0.1:9000/…"),
            ("user:key@example.com", "only http and https"),
            ("mailto:key", "only http and https"),
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
    fn batches_outside_their_bounds_are_refused() {
        for batch in [json!(0), json!(51), json!(u64::MAX)] {
            let error = refusal(json!({"url": "http://a.example/", "batch": batch}));
            assert!(
                error.contains("`batch`") && error.contains("between 1 and 50"),
                "{error}"
            );
        }
    }

    #[test]
    fn formats_that_do_not_fit_are_refused() {
        let of = |more: Value| {
            let mut settings = json!({"url": "http://a.example/"});
            for (key, value) in more.as_object().unwrap() {
                settings[key] = value.clone();
            }
            settings
        };
        for (more, key) in [
            (json!({"format": "xml"}), "format"),
            (json!({"content_mode": "binary"}), "content_mode"),
            (json!({"format": "lanekeeper", "source": "/a"}), "source"),
            (
                json!({"format": "cloudevents", "content_mode": "stream"}),
                "content_mode",
            ),
            (json!({"format": "cloudevents", "source": "a b"}), "source"),
            (json!({"format": "cloudevents", "source": ""}), "source"),
            (json!({"format": "cloudevents", "batch": 2}), "batch"),
            (
                json!({"format": "cloudevents", "content_mode": "binary", "batch": 2}),
                "batch",
            ),
            (
                json!({"format": "cloudevents", "content_mode": "batched", "batch": 51}),
                "batch",
            ),
        ] {
            let error = refusal(of(more));
            assert!(error.contains(&format!("`{key}`")), "{error}");
        }
        let batch = |more| {
            Checked::read(&of(more))
                .unwrap_or_else(|error| panic!("{error}"))
                .batch
        };
        assert_eq!(
            batch(json!({"format": "cloudevents", "content_mode": "batched"})),
            50
        );
        assert_eq!(
            batch(json!({"format": "cloudevents", "source": "https://a.example/"})),
            1
        );
    }

    #[test]
    fn secret_written_in_place_of_its_name_is_refused_without_being_repeated() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let error = refusal(json!({"url": "http://a.example/", "secret_env": secret}));
        assert!(
            error.contains("`secret_env`") && !error.contains("MfKQ"),
            "{error}"
        );
    }
}
