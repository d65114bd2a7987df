//! A webhook destination that records what arrives before it answers, and which worker sent it.
//!
//! Every worker process signs with a secret of its own: whichever verifies names the sender. A
//! request that none verifies is refused and kept, so that a test can say that there was none.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

/// One request, in the order of arrival.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Instant,
    /// As numbered by [`Receiver::new_secret`].
    pub sender: usize,
    pub id: Uuid,
    pub session: String,
    pub seq: i64,
    pub attempt: u32,
    /// Its header and its body say so.
    pub replayed: bool,
    /// As they came.
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What was accepted.
    pub arrivals: Vec<Arrival>,
    /// What was told to come later, or failed, as the test asked for.
    pub turned_away: Vec<Arrival>,
    /// Why requests were refused.
    pub refused: Vec<String>,
}

impl Seen {
    /// Seqs by session as a receiver sees them that knows message ids, and the number of repeats.
    pub fn deduplicated(&self) -> (BTreeMap<&str, Vec<i64>>, usize) {
        let mut ids = HashSet::new();
        let mut sessions: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for arrival in self.arrivals.iter().filter(|one| ids.insert(one.id)) {
            sessions
                .entry(&arrival.session)
                .or_default()
                .push(arrival.seq);
        }
        (sessions, self.arrivals.len() - ids.len())
    }
}

struct Desk {
    secrets: Mutex<Vec<Vec<u8>>>,
    seen: watch::Sender<Seen>,
    /// What the next requests get instead of being accepted.
    instead: Mutex<VecDeque<Instead>>,
    /// Whether everything fails.
    broken: AtomicBool,
    /// Senders that get no answer for now.
    held: watch::Sender<HashSet<usize>>,
    delay: Duration,
}

/// An answer other than yes.
#[derive(Clone, Copy, Debug)]
pub enum Instead {
    /// 429 with Retry-After.
    Pause {
        seconds: u64,
    },
    Fail,
}

pub struct Receiver {
    desk: Arc<Desk>,
    url: String,
    serving: JoinHandle<()>,
}

impl Receiver {
    /// Answers each request after `delay`.
    pub async fn start(delay: Duration) -> Self {
        let desk = Arc::new(Desk {
            secrets: Mutex::default(),
            instead: Mutex::default(),
            broken: AtomicBool::new(false),
            seen: watch::Sender::default(),
            held: watch::Sender::default(),
            delay,
        });
        let app = Router::new()
            .fallback(axum::routing::post(deliver))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&desk));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { desk, url, serving }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A sender's number and the secret that it is to sign with.
    pub fn new_secret(&self) -> (usize, String) {
        let key = [*Uuid::new_v4().as_bytes(), *Uuid::new_v4().as_bytes()].concat();
        let secret = format!("whsec_{}", STANDARD.encode(&key));
        let mut secrets = self.desk.secrets.lock().unwrap();
        secrets.push(key);
        (secrets.len() - 1, secret)
    }

    /// Takes what is signed with a secret that somebody else made.
    pub fn accept_secret(&self, secret: &str) {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap());
        self.desk.secrets.lock().unwrap().push(key.unwrap());
    }

    /// Answers the next request so.
    pub fn answer_once(&self, instead: Instead) {
        self.desk.instead.lock().unwrap().push_back(instead);
    }

    /// Answers 500 to everything, or no longer.
    pub fn set_broken(&self, broken: bool) {
        self.desk.broken.store(broken, Ordering::SeqCst);
    }

    /// Leaves the sender's requests without an answer; they are recorded all the same.
    pub fn hold(&self, sender: usize) {
        self.desk.held.send_modify(|held| {
            held.insert(sender);
        });
    }

    pub fn release(&self, sender: usize) {
        self.desk.held.send_modify(|held| {
            held.remove(&sender);
        });
    }

    pub fn seen(&self) -> Seen {
        self.desk.seen.borrow().clone()
    }

    /// How many were accepted; cheaper than all of them.
    pub fn accepted(&self) -> usize {
        self.desk.seen.borrow().arrivals.len()
    }

    pub async fn wait_until(
        &self,
        limit: Duration,
        what: &str,
        mut condition: impl FnMut(&Seen) -> bool,
    ) {
        let mut seen = self.desk.seen.subscribe();
        // What it returns keeps the desk from recording: not to be held on to.
        let reached = timeout(limit, seen.wait_for(|seen| condition(seen)))
            .await
            .is_ok();
        let arrived = self.seen().arrivals.len();
        assert!(
            reached,
            "not within {limit:?}: {what}; {arrived} requests arrived"
        );
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[derive(Deserialize)]
struct Body {
    id: Uuid,
    session: String,
    seq: i64,
    attempt: u32,
    #[serde(default)]
    replayed: bool,
}

async fn deliver(State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes) -> Response {
    let instead = match desk.broken.load(Ordering::SeqCst) {
        true => Some(Instead::Fail),
        false => desk.instead.lock().unwrap().pop_front(),
    };
    let sender = match desk.record(&headers, &body, instead.is_none()) {
        Ok(sender) => sender,
        Err(reason) => {
            desk.seen.send_modify(|seen| seen.refused.push(reason));
            return StatusCode::UNAUTHORIZED.into_response();
        }
    };
    match instead {
        None => {}
        Some(Instead::Fail) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Some(Instead::Pause { seconds }) => {
            let after = [("retry-after", seconds.to_string())];
            return (StatusCode::TOO_MANY_REQUESTS, after).into_response();
        }
    }
    sleep(desk.delay).await;
    let mut held = desk.held.subscribe();
    held.wait_for(|held| !held.contains(&sender))
        .await
        .expect("this desk holds the sender");
    StatusCode::NO_CONTENT.into_response()
}

impl Desk {
    fn record(&self, headers: &HeaderMap, body: &[u8], accepted: bool) -> Result<usize, String> {
        let header = |name: &str| {
            let value = headers.get(name).ok_or(format!("no {name}"))?;
            value.to_str().map_err(|error| error.to_string())
        };
        let signed = [header("webhook-id")?, header("webhook-timestamp")?];
        let sender = self
            .sender(signed, body, header("webhook-signature")?)
            .ok_or("no secret verifies the signature")?;
        let event: Body = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let told = [header("webhook-id")?, header("lanekeeper-seq")?];
        if told != [event.id.to_string(), event.seq.to_string()] {
            return Err(format!("the headers {told:?} are of another event"));
        }
        if header("lanekeeper-replayed").ok() != event.replayed.then_some("true") {
            return Err("header and body do not agree on whether it is replayed".to_owned());
        }
        self.seen.send_modify(|seen| {
            let list = match accepted {
                true => &mut seen.arrivals,
                false => &mut seen.turned_away,
            };
            list.push(Arrival {
                at: Instant::now(),
                sender,
                id: event.id,
                session: event.session,
                seq: event.seq,
                attempt: event.attempt,
                replayed: event.replayed,
                traceparent: header("traceparent").ok().map(str::to_owned),
                tracestate: header("tracestate").ok().map(str::to_owned),
            });
        });
        Ok(sender)
    }

    fn sender(&self, [id, timestamp]: [&str; 2], body: &[u8], signatures: &str) -> Option<usize> {
        let given: Vec<Vec<u8>> = signatures
            .split(' ')
            .filter_map(|signature| STANDARD.decode(signature.strip_prefix("v1,")?).ok())
            .collect();
        let secrets = self.secrets.lock().unwrap();
        secrets.iter().position(|secret| {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length");
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(part);
            }
            given
                .iter()
                .any(|signature| mac.clone().verify_slice(signature).is_ok())
        })
    }
}
