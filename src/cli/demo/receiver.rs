//! A webhook receiver that checks Lanekeeper's guarantees, for `lanekeeper demo` and the crash tests.
//!
//! It verifies the signature of each delivery (Standard Webhooks), writes what it accepted to a record, one JSON line
//! each, before it answers, and watches the order inside every session. It shows what a receiver has to do: recognise
//! repeated message ids. It need not restore any order. A requeued dead letter is marked as such, and arrives after
//! later events.
//!
//! `GET /summary` returns the counts. After SIGUSR1 it records the next delivery as withheld and never answers it, so
//! that the worker that waits for the answer can be killed in the middle of a delivery. SIGTERM prints the counts and
//! ends it, with 1 if the order was broken.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::signal::unix::{SignalKind, signal};

use super::super::Failure;
use super::super::output;

/// Seconds that a delivery's timestamp may be away from our clock.
const TOLERANCE_S: i64 = 300;

/// Receive webhooks and record them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanekeeper demo receiver --port 9000 --record deliveries.jsonl")]
pub struct Args {
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Append what was accepted to this file
    #[arg(long)]
    record: PathBuf,
    /// The environment variable with a signing secret (`whsec_…`); given more than once, any of them
    /// may have signed; without it nothing is verified
    #[arg(long)]
    secret_env: Vec<String>,
    /// Refuse every N-th request with 503, to see it come again; 0 never
    #[arg(long, default_value_t = 0)]
    fail_every: u64,
    /// At this path, refuse one message in four with 422, as its id says: it becomes a dead letter;
    /// requeued, one in four of those is refused again
    #[arg(long)]
    refuse_at: Option<String>,
}

/// What Lanekeeper sends, as far as we look at it.
#[derive(Deserialize)]
struct Envelope {
    id: String,
    stream: String,
    session: String,
    seq: i64,
    #[serde(rename = "type")]
    event_type: String,
    created_at: String,
    attempt: u32,
    #[serde(default)]
    requeued: bool,
}

impl Envelope {
    /// Whether it is among those that are refused for good: the same ones each time.
    fn is_unwanted(&self) -> bool {
        let end = self.id.len().saturating_sub(2);
        let number = u8::from_str_radix(self.id.get(end..).unwrap_or_default(), 16);
        let one_in = if self.requeued { 16 } else { 4 };
        number.is_ok_and(|number| number % one_in == 0)
    }
}

/// A line of the record.
#[derive(Serialize)]
struct Line<'a> {
    received_at: Timestamp,
    /// Where it was posted to: one receiver may serve several subscriptions.
    path: &'a str,
    /// The place among the given secrets of the one that signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<usize>,
    id: &'a str,
    stream: &'a str,
    session: &'a str,
    seq: i64,
    #[serde(rename = "type")]
    event_type: &'a str,
    created_at: &'a str,
    attempt: u32,
    /// A requeued dead letter.
    requeued: bool,
    duplicate: bool,
    /// The receiver refused it.
    refused: bool,
    /// It gets no answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    withheld: bool,
}

#[derive(Clone, Default, Serialize)]
struct Summary {
    requests: u64,
    accepted: u64,
    duplicates: u64,
    refused_on_purpose: u64,
    withheld: u64,
    unverified: u64,
    malformed: u64,
    sessions: usize,
    /// A message that came for the first time after a later one of its session.
    out_of_order: u64,
}

struct Receiver {
    secrets: Vec<Vec<u8>>,
    fail_every: u64,
    refuse_at: Option<String>,
    seen: Mutex<Seen>,
}

struct Seen {
    record: File,
    /// Whether the next delivery gets no answer.
    withhold: bool,
    /// Path and message id.
    ids: HashSet<(String, String)>,
    /// By path, stream and session.
    newest: HashMap<(String, String, String), i64>,
    summary: Summary,
}

impl Receiver {
    fn summary(&self) -> Summary {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .summary
            .clone()
    }

    fn withhold_next(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.withhold = true;
    }

    fn receive(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Answer, std::io::Error> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.summary.requests += 1;
        let now = Timestamp::now();
        let mut secrets = self.secrets.iter();
        let secret = secrets.position(|secret| verify(secret, headers, body, now));
        if secret.is_none() && !self.secrets.is_empty() {
            seen.summary.unverified += 1;
            return Ok(Answer::Status(StatusCode::UNAUTHORIZED));
        }
        let Ok(envelope) = serde_json::from_slice::<Envelope>(body) else {
            seen.summary.malformed += 1;
            return Ok(Answer::Status(StatusCode::BAD_REQUEST));
        };
        if std::mem::take(&mut seen.withhold) {
            seen.write(path, secret, &envelope, Kind::Withheld)?;
            return Ok(Answer::None);
        }
        if seen.summary.requests.is_multiple_of(self.fail_every) {
            seen.summary.refused_on_purpose += 1;
            return Ok(Answer::Status(StatusCode::SERVICE_UNAVAILABLE));
        }
        if self.refuse_at.as_deref() == Some(path) && envelope.is_unwanted() {
            seen.write(path, secret, &envelope, Kind::Refused)?;
            return Ok(Answer::Status(StatusCode::UNPROCESSABLE_ENTITY));
        }
        seen.write(path, secret, &envelope, Kind::Accepted)?;
        Ok(Answer::Status(StatusCode::NO_CONTENT))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Status(StatusCode),
    /// The connection stays open and nothing comes.
    None,
}

/// What becomes of a delivery that is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Accepted,
    Refused,
    Withheld,
}

impl Seen {
    fn write(
        &mut self,
        path: &str,
        secret: Option<usize>,
        envelope: &Envelope,
        kind: Kind,
    ) -> Result<(), std::io::Error> {
        let id = (path.to_owned(), envelope.id.clone());
        let duplicate = self.ids.contains(&id);
        let line = Line {
            received_at: Timestamp::now(),
            path,
            secret,
            id: &envelope.id,
            stream: &envelope.stream,
            session: &envelope.session,
            seq: envelope.seq,
            event_type: &envelope.event_type,
            created_at: &envelope.created_at,
            attempt: envelope.attempt,
            requeued: envelope.requeued,
            duplicate,
            refused: kind == Kind::Refused,
            withheld: kind == Kind::Withheld,
        };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        // First the record, then the answer: what we answer for is written down.
        self.record.write_all(&text)?;

        match kind {
            Kind::Accepted => {}
            Kind::Refused => {
                self.summary.refused_on_purpose += 1;
                return Ok(());
            }
            Kind::Withheld => {
                self.summary.withheld += 1;
                return Ok(());
            }
        }
        self.summary.accepted += 1;
        if duplicate {
            self.summary.duplicates += 1;
            return Ok(());
        }
        self.ids.insert(id);
        // It comes behind others, as whoever requeued it asked for.
        if envelope.requeued {
            return Ok(());
        }
        let session = (
            path.to_owned(),
            envelope.stream.clone(),
            envelope.session.clone(),
        );
        let newest = self.newest.entry(session).or_default();
        if envelope.seq > *newest {
            *newest = envelope.seq;
        } else {
            self.summary.out_of_order += 1;
        }
        self.summary.sessions = self.newest.len();
        Ok(())
    }
}

/// Whether one of the signatures is ours, over an instant near `now`.
fn verify(secret: &[u8], headers: &HeaderMap, body: &[u8], now: Timestamp) -> bool {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(id), Some(timestamp), Some(signatures)) = (
        header("webhook-id"),
        header("webhook-timestamp"),
        header("webhook-signature"),
    ) else {
        return false;
    };
    if !timestamp
        .parse()
        .is_ok_and(|at: i64| now.as_second().abs_diff(at) <= TOLERANCE_S.unsigned_abs())
    {
        return false;
    }
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else {
        return false;
    };
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    signatures
        .split(' ')
        .filter_map(|signature| STANDARD.decode(signature.strip_prefix("v1,")?).ok())
        .any(|signature| mac.clone().verify_slice(&signature).is_ok())
}

async fn deliver(
    State(receiver): State<Arc<Receiver>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    match receiver.receive(uri.path(), &headers, &body) {
        Ok(Answer::Status(status)) => status,
        Ok(Answer::None) => std::future::pending().await,
        Err(error) => {
            output::note(format!("receiver: could not write the record: {error}"));
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

pub async fn run(args: Args) -> Result<ExitCode, Failure> {
    let secrets = args.secret_env.iter().map(|name| {
        let secret = std::env::var(name).map_err(|error| format!("{name}: {error}"))?;
        let encoded = secret.strip_prefix("whsec_").unwrap_or(&secret);
        STANDARD
            .decode(encoded)
            .map_err(|error| format!("{name}: {error}"))
    });
    let secrets = secrets.collect::<Result<_, String>>();
    let record = File::options().create(true).append(true).open(&args.record);
    let receiver = Arc::new(Receiver {
        secrets: secrets.map_err(Failure::usage)?,
        fail_every: args.fail_every,
        refuse_at: args.refuse_at,
        seen: Mutex::new(Seen {
            record: record.map_err(Failure::failed)?,
            withhold: false,
            ids: HashSet::new(),
            newest: HashMap::new(),
            summary: Summary::default(),
        }),
    });
    let app = Router::new()
        .route(
            "/summary",
            get(|State(receiver): State<Arc<Receiver>>| async move { Json(receiver.summary()) }),
        )
        .fallback(axum::routing::post(deliver))
        .with_state(Arc::clone(&receiver));

    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    let mut withhold = signal(SignalKind::user_defined1()).map_err(Failure::failed)?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", args.port))
        .await
        .map_err(Failure::failed)?;
    let address = listener.local_addr().map_err(Failure::failed)?;
    output::line(format!("http://{address}"))?;
    let serving = async { axum::serve(listener, app).await };
    tokio::pin!(serving);
    loop {
        tokio::select! {
            served = &mut serving => {
                served.map_err(Failure::failed)?;
                break;
            }
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = withhold.recv() => receiver.withhold_next(),
        }
    }
    let summary = receiver.summary();
    output::json_line(&summary)?;
    Ok(match summary.out_of_order {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example that the specification's libraries are tested with.
    const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn headers(signature: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(
            "webhook-id",
            "msg_p5jXN8AQM9LWM0D4loKWxJek".parse().unwrap(),
        );
        headers.insert("webhook-timestamp", "1614265330".parse().unwrap());
        headers.insert("webhook-signature", signature.parse().unwrap());
        headers
    }

    fn verified(signature: &str, body: &[u8], seconds_later: i64) -> bool {
        let now = Timestamp::from_second(1_614_265_330 + seconds_later).unwrap();
        verify(
            &STANDARD.decode(SECRET).unwrap(),
            &headers(signature),
            body,
            now,
        )
    }

    #[test]
    fn one_in_four_is_refused_and_of_those_one_in_four_when_it_was_requeued() {
        let refused = |requeued| {
            let unwanted = |number: &u8| {
                let body = format!(
                    r#"{{"id":"0-{number:02x}","stream":"s","session":"s","seq":1,"type":"a",
                        "created_at":"","attempt":1,"requeued":{requeued}}}"#
                );
                let envelope: Envelope = serde_json::from_str(&body).unwrap();
                envelope.is_unwanted()
            };
            (0..=u8::MAX).filter(unwanted).collect::<Vec<u8>>()
        };
        let (first, again) = (refused(false), refused(true));
        assert_eq!((first.len(), again.len()), (64, 16));
        assert!(again.iter().all(|number| first.contains(number)));
    }

    #[test]
    fn a_signature_of_the_specification_is_accepted_among_others() {
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert!(verified(signature, BODY, 0));
        assert!(verified(
            &format!("v1,AAAA v1a,BBBB {signature}"),
            BODY,
            299
        ));
    }

    #[test]
    fn a_changed_body_an_old_timestamp_and_a_foreign_signature_are_refused() {
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert!(!verified(signature, b"{\"test\": 2}", 0));
        assert!(!verified(signature, BODY, 301));
        assert!(!verified("v1,AAAA", BODY, 0));
        assert!(!verified("", BODY, 0));
    }
}
