//! Chat platforms that are none: servers in this process that speak as much of an API as the adapters use, as
//! the platforms' documentation has it, keep the limits by their own clock, and record what they were told.
//!
//! What only the platforms know (how they really count, what they answer beyond what is documented) they do
//! not know either: they are fakes, written from documentation.

mod discord;
mod files;
mod gateway;
mod slack;
mod telegram;
mod updates;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::map_response_with_state;
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

pub use discord::{Discord, WEBHOOK_TOKEN};
pub use files::{Files, Given};
pub use gateway::{Gateway, Turn};
pub use slack::Slack;
pub use telegram::Telegram;
pub use updates::{Trouble, Updates};

/// The token that every fake knows its bot by, where it is no secret to the tests' own errors.
pub const TOKEN: &str = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw";

/// A message as the chat shows it.
#[derive(Clone, Debug)]
pub struct Shown {
    pub chat: String,
    pub thread: Option<String>,
    pub reply_to: Option<String>,
    pub id: String,
    /// The text that was sent, then what it was edited to.
    pub versions: Vec<(Instant, String)>,
    pub deleted: bool,
}

impl Shown {
    pub fn text(&self) -> &str {
        &self.versions[self.versions.len() - 1].1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Send,
    Edit,
    Delete,
    Typing,
}

/// A request, in the order of arrival.
#[derive(Clone, Debug)]
pub struct Call {
    pub at: Instant,
    pub kind: Kind,
    pub chat: String,
    /// It came too fast, or met a fault.
    pub refused: bool,
    /// What the limits alone would have refused.
    pub too_fast: bool,
}

/// What a server does instead of what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error of its own.
    Broken,
    /// It will never do this.
    Forbidden,
    Unauthorized,
    /// It wants a pause, in the one chat.
    Pause {
        seconds: u32,
    },
    /// It wants a pause everywhere.
    GlobalPause {
        seconds: u32,
    },
    Silent,
}

/// How many requests in how much time.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// In each chat, or altogether.
    pub per_chat: bool,
    pub most: usize,
    pub time: Duration,
}

#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub messages: Vec<Shown>,
    pub calls: Vec<Call>,
    /// Requests that get no answer, at this moment and ever.
    pub hanging: usize,
    pub hung: usize,
}

impl Seen {
    /// The messages of a chat that are there, in their order.
    pub fn chat(&self, chat: &str) -> Vec<&Shown> {
        let there = |shown: &&Shown| shown.chat == chat && !shown.deleted;
        self.messages.iter().filter(there).collect()
    }

    pub fn texts(&self) -> Vec<&str> {
        let there = self.messages.iter().filter(|shown| !shown.deleted);
        there.map(Shown::text).collect()
    }

    pub fn count(&self, kind: Kind) -> usize {
        let calls = self.calls.iter();
        calls
            .filter(|call| call.kind == kind && !call.refused)
            .count()
    }

    /// The most accepted requests of any stretch of this length.
    pub fn most_within(&self, time: Duration, mut of: impl FnMut(&Call) -> bool) -> usize {
        let accepted = self.calls.iter().filter(|call| !call.refused && of(call));
        let at: Vec<Instant> = accepted.map(|call| call.at).collect();
        let from = |first: &Instant| {
            at.iter()
                .filter(|at| *at >= first && **at - *first < time)
                .count()
        };
        at.iter().map(from).max().unwrap_or(0)
    }
}

#[derive(Default)]
struct Records {
    seen: Seen,
    next: VecDeque<Fault>,
    always: Option<Fault>,
    /// What the next answers say instead, in spite of what was done.
    garbled: VecDeque<&'static str>,
    by_chat: HashMap<String, Fault>,
    recent: HashMap<(usize, String), VecDeque<Instant>>,
    last_id: u64,
}

/// Why a request is refused.
enum Refusal {
    Fault(Fault),
    TooFast { after: Duration, per_chat: bool },
}

struct Desk {
    state: watch::Sender<Records>,
    windows: Vec<Window>,
}

impl Desk {
    fn new(windows: &[Window]) -> Arc<Self> {
        Arc::new(Self {
            state: watch::Sender::default(),
            windows: windows.to_vec(),
        })
    }

    /// Records a request and says whether it may be done. Does not return for one that gets no answer.
    async fn admit(&self, kind: Kind, chat: &str) -> Result<(), Refusal> {
        let mut answer = Ok(());
        self.state.send_modify(|state| {
            let at = Instant::now();
            let fault = state
                .next
                .pop_front()
                .or(state.always)
                .or_else(|| state.by_chat.get(chat).copied());
            let too_fast = self.too_fast(state, chat, at);
            answer = match (fault, too_fast) {
                (Some(fault), _) => Err(Refusal::Fault(fault)),
                (None, Some(refusal)) => Err(refusal),
                (None, None) => Ok(()),
            };
            if answer.is_ok() {
                for (i, window) in self.windows.iter().enumerate() {
                    let of = if window.per_chat { chat } else { "" };
                    let recent = state.recent.entry((i, of.to_owned())).or_default();
                    recent.push_back(at);
                }
            }
            state.seen.calls.push(Call {
                at,
                kind,
                chat: chat.to_owned(),
                refused: answer.is_err(),
                too_fast: matches!(answer, Err(Refusal::TooFast { .. })),
            });
        });
        if let Err(Refusal::Fault(Fault::Silent)) = answer {
            let _hanging = Hanging::enter(&self.state);
            std::future::pending::<()>().await;
        }
        answer
    }

    fn too_fast(&self, state: &mut Records, chat: &str, now: Instant) -> Option<Refusal> {
        self.windows.iter().enumerate().find_map(|(i, window)| {
            let of = if window.per_chat { chat } else { "" };
            let recent = state.recent.entry((i, of.to_owned())).or_default();
            while recent.front().is_some_and(|at| now - *at >= window.time) {
                recent.pop_front();
            }
            (recent.len() >= window.most).then(|| Refusal::TooFast {
                after: window.time.saturating_sub(now - recent[0]),
                per_chat: window.per_chat,
            })
        })
    }

    /// What is left of a chat's first limit, and when it is whole again.
    fn left(&self, chat: &str) -> Option<(Window, usize, Duration)> {
        let at = self.windows.iter().position(|window| window.per_chat)?;
        let window = self.windows[at];
        let state = self.state.borrow();
        let recent = state.recent.get(&(at, chat.to_owned()))?;
        let oldest = recent.front()?;
        let left = window.most.saturating_sub(recent.len());
        Some((window, left, window.time.saturating_sub(oldest.elapsed())))
    }

    /// Shows a message and names it.
    fn show(
        &self,
        chat: &str,
        thread: Option<String>,
        reply_to: Option<String>,
        text: &str,
    ) -> u64 {
        let mut id = 0;
        self.state.send_modify(|state| {
            state.last_id += 1;
            id = state.last_id;
            state.seen.messages.push(Shown {
                chat: chat.to_owned(),
                thread,
                reply_to,
                id: id.to_string(),
                versions: vec![(Instant::now(), text.to_owned())],
                deleted: false,
            });
        });
        id
    }

    /// Changes a message that is there; `None`: it is not.
    fn change<T>(&self, chat: &str, id: &str, change: impl FnOnce(&mut Shown) -> T) -> Option<T> {
        let mut changed = None;
        self.state.send_modify(|state| {
            let mut messages = state.seen.messages.iter_mut();
            let found =
                messages.find(|shown| shown.chat == chat && shown.id == id && !shown.deleted);
            changed = found.map(change);
        });
        changed
    }
}

/// Counts a request that hangs until it is given up.
struct Hanging<'a>(&'a watch::Sender<Records>);

impl<'a> Hanging<'a> {
    fn enter(state: &'a watch::Sender<Records>) -> Self {
        state.send_modify(|state| {
            state.seen.hanging += 1;
            state.seen.hung += 1;
        });
        Self(state)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.seen.hanging -= 1);
    }
}

/// What is done is done, and the answer says something else.
async fn garble(State(desk): State<Arc<Desk>>, response: Response) -> Response {
    let mut said = None;
    desk.state
        .send_modify(|state| said = state.garbled.pop_front());
    said.map_or(response, |said| (StatusCode::OK, said).into_response())
}

/// A fake's server and what tests see of it.
pub struct Platform {
    desk: Arc<Desk>,
    url: String,
    serving: JoinHandle<()>,
}

impl Platform {
    async fn serve(desk: Arc<Desk>, app: Router) -> Self {
        let app = app.layer(map_response_with_state(Arc::clone(&desk), garble));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { desk, url, serving }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn seen(&self) -> Seen {
        self.desk.state.borrow().seen.clone()
    }

    /// What the next request meets.
    pub fn fault_once(&self, fault: Fault) {
        self.desk
            .state
            .send_modify(|state| state.next.push_back(fault));
    }

    /// What the answer to the next request says, which is done like any other.
    pub fn garble_once(&self, said: &'static str) {
        self.desk
            .state
            .send_modify(|state| state.garbled.push_back(said));
    }

    /// What every request meets, or none any more.
    pub fn fault(&self, fault: Option<Fault>) {
        self.desk.state.send_modify(|state| state.always = fault);
    }

    /// What every request about this chat meets, or none any more.
    pub fn fault_in(&self, chat: &str, fault: Option<Fault>) {
        self.desk.state.send_modify(|state| {
            match fault {
                Some(fault) => state.by_chat.insert(chat.to_owned(), fault),
                None => state.by_chat.remove(chat),
            };
        });
    }

    /// Somebody deletes the newest message.
    pub fn delete_newest(&self) {
        self.desk.state.send_modify(|state| {
            let newest = state.seen.messages.iter_mut().rfind(|shown| !shown.deleted);
            newest.expect("there is a message").deleted = true;
        });
    }

    pub async fn wait_until(
        &self,
        limit: Duration,
        what: &str,
        mut condition: impl FnMut(&Seen) -> bool,
    ) {
        let mut state = self.desk.state.subscribe();
        let reached = timeout(limit, state.wait_for(|state| condition(&state.seen)))
            .await
            .is_ok();
        assert!(
            reached,
            "not within {limit:?}: {what}: {:#?}",
            self.seen().texts()
        );
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
