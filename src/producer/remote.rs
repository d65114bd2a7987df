//! Producers without a database: events to a worker's HTTP API.
//!
//! `LANEKEEPER_URL` names a worker or the balancer before several, `LANEKEEPER_TOKEN` (or the file that
//! `LANEKEEPER_TOKEN_FILE` names) a token with the scope `produce`. A call is answered when its events are
//! committed; message ids make it repeatable. Neither URL nor token is ever part of an error: both may be secrets.

use std::borrow::Cow;
use std::env;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanekeeper_postgres::Refusal;
use lanekeeper_postgres::append::{AppendError, Element, Enqueued, NewEvent};
use lanekeeper_postgres::inbound::NewInbound;
use lanekeeper_postgres::queue_full::QueueFull;
use lanekeeper_postgres::schema_violation::SchemaViolation;
use lanekeeper_postgres::seq_conflict::SeqConflict;
use lanekeeper_secret::Secret;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, RequestBuilder, StatusCode, header, redirect};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::error::{ProducerError, RemoteError};

/// Answers are ids and numbers.
const MOST_ANSWER_BYTES: usize = 4 << 20;

/// What is wrong with the variables.
#[derive(Debug, Error)]
pub enum SettingsError {
    #[error("LANEKEEPER_URL is not an http or https URL: write http://HOST:PORT")]
    NotAUrl,
    #[error("LANEKEEPER_TOKEN_FILE names {path}, which cannot be read")]
    TokenFile {
        path: String,
        source: std::io::Error,
    },
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
}

/// A worker's HTTP API.
#[derive(Clone)]
pub struct Remote(Arc<Inner>);

struct Inner {
    client: Client,
    url: Url,
    token: Option<Secret>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remote(***)")
    }
}

impl Remote {
    /// What the environment names; `None` where it names nothing.
    ///
    /// # Errors
    /// Without the values.
    pub fn of_environment() -> Result<Option<Self>, SettingsError> {
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let Some(url) = variable("LANEKEEPER_URL") else {
            return Ok(None);
        };
        let token = match (
            variable("LANEKEEPER_TOKEN"),
            variable("LANEKEEPER_TOKEN_FILE"),
        ) {
            (Some(token), _) => Some(Secret::new(token)),
            (None, Some(path)) => match std::fs::read_to_string(&path) {
                Ok(token) => {
                    let token = Secret::new(token.trim_end());
                    Some(token.of_file("LANEKEEPER_TOKEN_FILE", Path::new(&path)))
                }
                Err(source) => return Err(SettingsError::TokenFile { path, source }),
            },
            (None, None) => None,
        };
        Self::new(&url, token).map(Some)
    }

    /// # Errors
    /// Without the values.
    pub fn new(url: &str, token: Option<Secret>) -> Result<Self, SettingsError> {
        let mut url = Url::parse(url).map_err(|_| SettingsError::NotAUrl)?;
        if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
            return Err(SettingsError::NotAUrl);
        }
        // What follows is a path below it.
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        // Fails only where it is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .build()
            .map_err(SettingsError::Client)?;
        Ok(Self(Arc::new(Inner { client, url, token })))
    }

    /// As [`append::enqueue`](lanekeeper_postgres::append::enqueue), in a transaction of its own.
    ///
    /// # Errors
    /// As there, and [`AppendError::TimedOut`].
    pub async fn enqueue(
        &self,
        stream: &str,
        event: &NewEvent<'_>,
        deadline: Instant,
    ) -> Result<Enqueued, ProducerError> {
        let element = Element::new(event)?;
        let body = serde_json::to_string(&[element]).map_err(|_| RemoteError::Foreign)?;
        let enqueued = self
            .post_events(stream, event.session, body, deadline)
            .await?;
        enqueued.first().copied().ok_or(RemoteError::Foreign.into())
    }

    /// As [`inbound::enqueue_inbound`](lanekeeper_postgres::inbound::enqueue_inbound), in a transaction of its own.
    ///
    /// # Errors
    /// As there, and [`AppendError::TimedOut`].
    pub async fn enqueue_inbound(
        &self,
        message: &NewInbound<'_>,
        deadline: Instant,
    ) -> Result<Enqueued, ProducerError> {
        let body = InboundBody::new(message)?;
        let body = serde_json::to_string(&body).map_err(|_| RemoteError::Foreign)?;
        let path = format!("v1/inbound/{}", part(message.session));
        self.post(&path, body, deadline).await
    }

    /// Appends the elements of a JSON array, a request for each run of one session.
    ///
    /// # Errors
    /// As [`Remote::enqueue`]; the runs before the one that failed are enqueued.
    pub async fn enqueue_array(
        &self,
        stream: &str,
        events: &str,
        deadline: Instant,
    ) -> Result<Vec<Enqueued>, ProducerError> {
        #[derive(Deserialize)]
        struct Of<'a> {
            #[serde(borrow)]
            session: Cow<'a, str>,
        }
        let not_json = |error: serde_json::Error| {
            let (message, hint) = (error.to_string(), None);
            AppendError::NotJson(Refusal { message, hint })
        };
        let elements: Vec<&RawValue> = serde_json::from_str(events).map_err(not_json)?;
        let mut runs: Vec<(Cow<'_, str>, Vec<&RawValue>)> = Vec::new();
        for element in elements {
            let Of { session } = serde_json::from_str(element.get()).map_err(not_json)?;
            match runs.last_mut() {
                Some((last, run)) if *last == session => run.push(element),
                _ => runs.push((session, vec![element])),
            }
        }
        let mut enqueued = Vec::new();
        for (session, run) in runs {
            let body = to_raw_value(&run).map_err(not_json)?;
            enqueued.extend(
                self.post_events(stream, &session, body.get().to_owned(), deadline)
                    .await?,
            );
        }
        Ok(enqueued)
    }

    /// A request that reads, with the token.
    pub(crate) async fn get(&self, path: &str) -> Result<RequestBuilder, ProducerError> {
        let url = self.0.url.join(path).map_err(|_| RemoteError::Foreign)?;
        let request = self.0.client.get(url);
        Ok(match &self.0.token {
            Some(token) => request.bearer_auth(token.current(|_| Ok(())).await.expose()),
            None => request,
        })
    }

    async fn post_events(
        &self,
        stream: &str,
        session: &str,
        body: String,
        deadline: Instant,
    ) -> Result<Vec<Enqueued>, ProducerError> {
        let path = format!(
            "v1/streams/{}/sessions/{}/events",
            part(stream),
            part(session)
        );
        self.post(&path, body, deadline).await
    }

    /// What a path of the API answers to GET.
    ///
    /// # Errors
    /// The worker cannot be reached, or refuses.
    pub async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        deadline: Instant,
    ) -> Result<T, ProducerError> {
        let request = timeout_at(deadline, self.get(path)).await;
        answer(request.map_err(|_| AppendError::TimedOut)??, deadline).await
    }

    /// What a path of the API answers to POST with a JSON body.
    ///
    /// # Errors
    /// The worker cannot be reached, or refuses.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: String,
        deadline: Instant,
    ) -> Result<T, ProducerError> {
        let url = self.0.url.join(path).map_err(|_| RemoteError::Foreign)?;
        let mut request = self.0.client.post(url).body(body);
        if let Some(token) = &self.0.token {
            // As the first one, whatever it is: a wrong one is refused.
            let token = timeout_at(deadline, token.current(|_| Ok(()))).await;
            let token = token.map_err(|_| AppendError::TimedOut)?;
            request = request.bearer_auth(token.expose());
        }
        answer(request, deadline).await
    }
}

/// Sends a request, and reads its answer.
async fn answer<T: DeserializeOwned>(
    request: RequestBuilder,
    deadline: Instant,
) -> Result<T, ProducerError> {
    let answered = timeout_at(deadline, async {
        let mut answer = request.send().await.map_err(|error| {
            let connecting = error.is_connect() || error.is_builder();
            let error = error.without_url();
            if connecting {
                RemoteError::Unreachable(error)
            } else {
                RemoteError::Broken(error)
            }
        })?;
        let mut body = Vec::new();
        while let Some(chunk) = answer
            .chunk()
            .await
            .map_err(|error| RemoteError::Broken(error.without_url()))?
        {
            if body.len() + chunk.len() > MOST_ANSWER_BYTES {
                return Err(RemoteError::Foreign);
            }
            body.extend_from_slice(&chunk);
        }
        let after = answer.headers().get(header::RETRY_AFTER);
        let after = after.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        Ok((answer.status(), after.map(Duration::from_secs), body))
    });
    let (status, after, body) = answered.await.map_err(|_| AppendError::TimedOut)??;
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(|_| RemoteError::Foreign.into());
    }
    Err(refusal(status, after, &body))
}

/// A part of a path.
pub fn part(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

/// The body that `/v1/inbound/{session}` takes.
#[derive(Serialize)]
struct InboundBody<'a> {
    origin: &'a str,
    content: &'a str,
    message_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor_avatar_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_message_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_channel_id: Option<&'a str>,
}

impl<'a> InboundBody<'a> {
    fn new(message: &NewInbound<'a>) -> Result<Self, AppendError> {
        Ok(Self {
            origin: message.origin,
            content: message.content,
            message_type: message.message_type,
            payload: message
                .payload
                .map(|text| {
                    serde_json::from_str(text)
                        .map_err(|error| AppendError::not_json("payload", &error))
                })
                .transpose()?,
            actor_id: message.actor_id,
            actor_name: message.actor_name,
            actor_avatar_url: message.actor_avatar_url,
            source_message_id: message.source_message_id,
            source_channel_id: message.source_channel_id,
        })
    }
}

/// A problem document, as far as it is one.
#[derive(Default, Deserialize)]
struct Document {
    #[serde(default)]
    code: String,
    #[serde(default)]
    detail: String,
    hint: Option<String>,
    /// Of a `seq_conflict`.
    seq: Option<i64>,
    /// Of a `schema_violation`, as what follows.
    #[serde(default)]
    pointer: String,
    #[serde(default)]
    keyword: String,
    event: Option<u64>,
}

pub(crate) fn refusal(
    status: StatusCode,
    retry_after: Option<Duration>,
    body: &[u8],
) -> ProducerError {
    let Document {
        code,
        detail,
        hint,
        seq,
        pointer,
        keyword,
        event,
    } = serde_json::from_slice(body).unwrap_or_default();
    let refused = Refusal {
        message: detail.clone(),
        hint: hint.clone(),
    };
    let refused = match (code.as_str(), status) {
        ("unknown_stream", _) => AppendError::UnknownStream(refused),
        ("forbidden", _) => AppendError::NotAProducer(refused),
        ("queue_full", _) => AppendError::QueueFull(QueueFull::of_refusal(refused, retry_after)),
        ("seq_conflict", _) => AppendError::SeqConflict(SeqConflict {
            refusal: refused,
            seq,
        }),
        ("session_closed", _) => AppendError::SessionClosed(refused),
        // A balancer's own limit too: it will never let it through.
        ("payload_too_large", _) | (_, StatusCode::PAYLOAD_TOO_LARGE) => {
            AppendError::PayloadTooLarge(refused)
        }
        ("invalid", _) => AppendError::Invalid(refused),
        ("schema_violation", _) => AppendError::Schema(SchemaViolation {
            refusal: refused,
            pointer,
            keyword,
            event,
        }),
        ("number_out_of_range", _) => AppendError::NumberOutOfRange(refused),
        ("not_json", _) => AppendError::NotJson(refused),
        ("too_deep", _) => AppendError::TooDeep(refused),
        ("nul_character", _) => AppendError::NulCharacter(refused),
        _ => {
            return RemoteError::Refused {
                status: status.as_u16(),
                unknown: code == "outcome_unknown" || (code.is_empty() && status.is_server_error()),
                detail,
                hint,
            }
            .into();
        }
    };
    refused.into()
}

#[cfg(test)]
mod tests {
    use lanekeeper_postgres::append::Fate;

    use super::*;

    fn fate(status: u16, body: &str) -> Fate {
        refusal(StatusCode::from_u16(status).unwrap(), None, body.as_bytes()).fate()
    }

    #[test]
    fn only_what_a_worker_says_of_the_event_is_final() {
        assert_eq!(fate(422, r#"{"code":"invalid","detail":"x"}"#), Fate::Event);
        let full = r#"{"code":"queue_full","detail":"x"}"#;
        assert_eq!(fate(429, full), Fate::SessionFull);
        let closed = r#"{"code":"session_closed","detail":"x"}"#;
        assert_eq!(fate(409, closed), Fate::Event);
        let conflict = r#"{"code":"seq_conflict","detail":"x","seq":7}"#;
        assert_eq!(fate(409, conflict), Fate::Event);
        assert_eq!(
            fate(413, r#"{"code":"payload_too_large","detail":"x"}"#),
            Fate::Payload
        );
        assert_eq!(fate(413, "<html>"), Fate::Payload);
        let violation = r#"{"code":"schema_violation","detail":"x","pointer":"","keyword":"type"}"#;
        assert_eq!(fate(422, violation), Fate::Payload);
        for (status, body) in [
            (401, r#"{"code":"unauthorized","detail":"x"}"#),
            (403, r#"{"code":"forbidden","detail":"x"}"#),
            (404, r#"{"code":"unknown_stream","detail":"x"}"#),
            (404, "<html>not this host</html>"),
            (422, "<html>"),
            (429, r#"{"code":"busy","detail":"x"}"#),
            (500, ""),
            (503, r#"{"code":"outcome_unknown","detail":"x"}"#),
        ] {
            assert_eq!(fate(status, body), Fate::Later, "{status} {body}");
        }
    }

    #[test]
    fn a_gateways_error_leaves_the_outcome_open_and_a_workers_refusal_does_not() {
        let refused = |status: u16, body: &str| {
            refusal(StatusCode::from_u16(status).unwrap(), None, body.as_bytes())
                .is_outcome_unknown()
        };
        assert!(refused(502, "<html>bad gateway</html>"));
        assert!(refused(503, r#"{"code":"outcome_unknown","detail":"x"}"#));
        assert!(!refused(503, r#"{"code":"unavailable","detail":"x"}"#));
        assert!(!refused(429, r#"{"code":"busy","detail":"x"}"#));
    }

    #[test]
    fn urls_that_nothing_can_be_posted_to_are_refused_without_being_repeated() {
        for bad in [
            "secret-host",
            "ftp://secret-host/",
            "mailto:secret-host",
            "",
        ] {
            let error = Remote::new(bad, None).unwrap_err();
            assert!(!error.to_string().contains("secret-host"), "{error}");
        }
        let remote = Remote::new("https://host/prefix", None).unwrap();
        assert_eq!(remote.0.url.as_str(), "https://host/prefix/");
    }
}
