//! Types messages into the terminals of agents: panes of a tmux server on the worker's host (E4).
//!
//! A pane is an agent's if its option `@lanekeeper_session` names the session. Only who may use the tmux server can
//! set it: `session bind --pane`, and this adapter, where it brings an agent without a pane into one ([`adopt`]).
//!
//! ```text
//! look ─► pane? ─► loaded ─► mark: pasting ─► paste ─► pause ─► Enter ─► mark: entered ─► a prompt is reported ─► confirmed
//!          │ none                │                                          └── not within the time-out ─► unconfirmed
//!          ├─► adopt             └── a worker that finds this mark types nothing: unconfirmed
//!          └─► retry
//! ```
//!
//! | failure | what happens |
//! |---|---|
//! | no pane, a dead one, one that somebody scrolls in, one in which a shell runs, no server, no tmux | retry; nothing was typed |
//! | the agent does not report its start within `start_timeout` | retry; nothing was typed |
//! | the worker is killed between the first mark and Enter | unconfirmed; the text is never typed again |
//! | tmux does not answer the paste or Enter | unconfirmed, unless the agent reports a prompt |
//! | no prompt is reported within `confirm_timeout` | unconfirmed |
//! | a message without printable text, or no message at all | rejected |

mod adopt;
mod server;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Verdict};
use lanekeeper_core::observed::Cause;
use lanekeeper_core::terminal::{Input, Known, Stage, Terminals, TerminalsError};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use self::server::Pane;
use super::{Environment, SettingsError, settings};

pub use self::server::{SESSION_OPTION, Server, TmuxError};

const KIND: &str = "tmux";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(300);
/// An agent that has just read a long paste may miss an Enter that comes sooner.
const ENTER_DELAY: Duration = Duration::from_secs(1);
const START_TIMEOUT: Duration = Duration::from_secs(15);
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at what the agent's hooks have reported.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Programs that would carry out what is typed. An agent that was started from one leaves its pane to it.
const SHELLS: [&str; 12] = [
    "ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "sh", "tcsh", "zsh",
];
/// Somebody scrolls in the pane.
const SCROLLING: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The program.
    tmux: Option<String>,
    socket_name: Option<String>,
    socket: Option<PathBuf>,
    adopt: Option<Vec<String>>,
    /// Whether the agent's hooks are wired: without them nothing is awaited and nothing confirmed.
    hooks: Option<bool>,
    /// Whether messages are typed into a pane in which a shell runs.
    into_shells: Option<bool>,
    enter_delay_ms: Option<u64>,
    start_timeout_ms: Option<u64>,
    confirm_timeout_ms: Option<u64>,
    /// For each command of tmux.
    timeout_ms: Option<u64>,
}

/// Types messages into panes of one tmux server.
pub struct Tmux {
    server: Server,
    adopt: Option<Vec<String>>,
    hooks: bool,
    into_shells: bool,
    enter_delay: Duration,
    start_timeout: Duration,
    confirm_timeout: Duration,
    terminals: Arc<dyn Terminals>,
}

impl Tmux {
    pub(super) fn check(settings: &Value) -> Result<(), SettingsError> {
        read(settings).map(drop)
    }

    pub(super) fn build(
        settings: &Value,
        environment: &Environment,
    ) -> Result<Self, SettingsError> {
        let (given, server) = read(settings)?;
        let millis = |given: Option<u64>, default| given.map_or(default, Duration::from_millis);
        Ok(Self {
            server,
            adopt: given.adopt,
            hooks: given.hooks.unwrap_or(true),
            into_shells: given.into_shells.unwrap_or(false),
            enter_delay: millis(given.enter_delay_ms, ENTER_DELAY),
            start_timeout: millis(given.start_timeout_ms, START_TIMEOUT),
            confirm_timeout: millis(given.confirm_timeout_ms, CONFIRM_TIMEOUT),
            terminals: environment.terminals(),
        })
    }
}

fn read(given: &Value) -> Result<(Settings, Server), SettingsError> {
    let given: Settings = settings::parse(KIND, given)?;
    if given.socket.is_some() && given.socket_name.is_some() {
        let reason = "the setting `socket_name` names a server already: keep one";
        return Err(SettingsError::invalid(KIND, "socket", reason));
    }
    if let Some(reason) = given.adopt.as_deref().and_then(adopt::problem) {
        return Err(SettingsError::invalid(KIND, "adopt", reason));
    }
    for (key, given) in [
        ("enter_delay_ms", given.enter_delay_ms),
        ("start_timeout_ms", given.start_timeout_ms),
        ("confirm_timeout_ms", given.confirm_timeout_ms),
    ] {
        if given.is_some_and(|given| u128::from(given) > LONGEST.as_millis()) {
            return Err(SettingsError::invalid(
                KIND,
                key,
                "it must be at most 300 s",
            ));
        }
    }
    let server = Server {
        program: given.tmux.clone().unwrap_or_else(|| "tmux".to_owned()),
        socket_name: given.socket_name.clone(),
        socket: given.socket.clone(),
        timeout: settings::timeout(KIND, given.timeout_ms, DEFAULT_TIMEOUT, LONGEST)?,
    };
    Ok((given, server))
}

/// An inbound message, as far as it is typed.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: String,
    payload: Option<Value>,
}

/// What is typed: the text; of a recording or a file its place, or why it has none, and what was written with it.
fn typed(event_type: &str, payload: &str) -> Result<String, String> {
    let message: Message = serde_json::from_str(payload)
        .map_err(|error| format!("the event is no inbound message: {error}"))?;
    let mut lines = Vec::new();
    if matches!(event_type, "voice" | "file") {
        let told = |key| message.payload.as_ref()?.get(key)?.as_str();
        let place = told("path").or_else(|| told("url")).map(str::to_owned);
        // The agent is to know that there was something.
        let place = place.or_else(|| {
            let reason = told("attachment_error")?;
            Some(format!(
                "(a {event_type} was sent, and not fetched: {reason})"
            ))
        });
        let place = place.ok_or_else(|| {
            format!("a {event_type} message needs `path` or `url` in its payload")
        })?;
        lines.push(text::plain(&place));
    }
    lines.push(text::plain(&message.content));
    lines.retain(|line| !line.trim().is_empty());
    if lines.is_empty() {
        return Err("the message has nothing that can be typed".to_owned());
    }
    Ok(lines.join("\n"))
}

/// Why nothing was typed.
enum Obstacle {
    Retry(String),
    RetryAfter(String, Duration),
}

impl From<TmuxError> for Obstacle {
    fn from(error: TmuxError) -> Self {
        Self::Retry(error.to_string())
    }
}

impl From<TerminalsError> for Obstacle {
    fn from(error: TerminalsError) -> Self {
        Self::Retry(error.to_string())
    }
}

impl Tmux {
    /// The pane of the session, ready to be typed into.
    async fn ready_pane(&self, input: Input<'_>, known: Known) -> Result<Pane, Obstacle> {
        self.server.check().await?;
        let session = input.session;
        let pane = match (self.server.pane_of(session).await?, &self.adopt) {
            (Some(pane), _) if !pane.is_dead => pane,
            (_, Some(template)) if known.is_live || !self.hooks => {
                let command = adopt::command(template, session, &known);
                let command = command.map_err(Obstacle::Retry)?;
                let name = adopt::tmux_session(session);
                let cwd = known.cwd.as_deref();
                self.server.start(&name, session, cwd, &command).await?
            }
            (Some(_), _) => {
                let reason = format!("the program in the pane of {session:?} has ended");
                return Err(Obstacle::Retry(reason));
            }
            (None, _) => {
                let reason = format!(
                    "no pane of this tmux server is {session:?}'s: run `lanekeeper session bind --pane`, or set `adopt`"
                );
                return Err(Obstacle::Retry(reason));
            }
        };
        if pane.is_in_mode {
            let reason = format!("somebody scrolls in the pane of {session:?} (copy mode)");
            return Err(Obstacle::RetryAfter(reason, SCROLLING));
        }
        if self.hooks && !known.is_live {
            self.started(input).await?;
        }
        // Last of all: the agent may have ended meanwhile.
        let program = self.server.program_in(&pane.id).await?;
        if !self.into_shells && SHELLS.contains(&program.trim_start_matches('-')) {
            let reason = format!(
                "a shell ({program}) runs in the pane of {session:?}: the agent has ended, and the shell would carry out \
                 what is typed"
            );
            return Err(Obstacle::Retry(reason));
        }
        Ok(pane)
    }

    /// Returns when the agent has reported its start.
    async fn started(&self, input: Input<'_>) -> Result<(), Obstacle> {
        let until = Instant::now() + self.start_timeout;
        while !self.terminals.look(input).await?.is_live {
            if Instant::now() >= until {
                let reason = format!(
                    "the agent of {:?} has not reported its start within {:?}: are its hooks wired?",
                    input.session, self.start_timeout
                );
                return Err(Obstacle::Retry(reason));
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Types a message of which nothing was typed. On return it was, or may have been.
    async fn type_it(&self, input: Input<'_>, text: &str, known: Known) -> Result<(), Obstacle> {
        let pane = self.ready_pane(input, known).await?;
        let buffer = format!("lanekeeper-{}", input.message_id.simple());
        self.server.load(&buffer, text).await?;
        self.terminals.mark(input, Some(Stage::Pasting)).await?;
        if let Err(error) = self.server.paste(&buffer, &pane.id).await {
            if error.is_certain() {
                self.terminals.mark(input, None).await?;
                // Where the buffer is gone too there is nothing to delete.
                let _ = self.server.delete(&buffer).await;
                return Err(error.into());
            }
            tracing::warn!(
                session = input.session,
                error = &error as &dyn std::error::Error,
                "whether a message was pasted is not known; it is not pasted again"
            );
            return Ok(());
        }
        sleep(self.enter_delay).await;
        if let Err(error) = self.server.enter(&pane.id).await {
            tracing::warn!(
                session = input.session,
                error = &error as &dyn std::error::Error,
                "a message was pasted, and whether Enter reached the agent is not known"
            );
            return Ok(());
        }
        if let Err(error) = self.terminals.mark(input, Some(Stage::Entered)).await {
            tracing::warn!(
                session = input.session,
                error = &error as &dyn std::error::Error,
                "a message was typed, which could not be put on record"
            );
        }
        Ok(())
    }

    /// Waits for the agent to report a prompt, and puts on record what became of the message.
    async fn confirm(&self, input: Input<'_>, within: Duration) -> Result<Stage, TerminalsError> {
        let until = Instant::now() + within;
        let stage = loop {
            if self.hooks && self.terminals.look(input).await?.is_prompted {
                break Stage::Confirmed;
            }
            if !self.hooks || Instant::now() >= until {
                break Stage::Unconfirmed;
            }
            sleep(LOOK_EVERY).await;
        };
        self.terminals.mark(input, Some(stage)).await?;
        Ok(stage)
    }
}

#[async_trait]
impl Adapter for Tmux {
    fn is_one_place(&self) -> bool {
        false
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let event = delivery.event;
        let input = Input {
            subscription: delivery.subscription,
            session: &event.session,
            message_id: event.message_id,
            payload: &event.payload,
        };
        let reject = |error| Verdict::Rejected { error };
        if event.session.contains(char::is_control) {
            return reject(
                "the session's name has control characters: no pane can be its".to_owned(),
            );
        }
        let text = match typed(&event.event_type, &event.payload) {
            Ok(text) => text,
            Err(error) => return reject(error),
        };
        let known = match self.terminals.look(input).await {
            Ok(known) => known,
            Err(error) => return Verdict::retry(error.to_string()),
        };
        match known.stage {
            Some(Stage::Confirmed | Stage::Unconfirmed) => return Verdict::Accepted,
            // By this worker or another one, which did not come to an end.
            Some(Stage::Pasting | Stage::Entered) => {}
            None => match self.type_it(input, &text, known).await {
                Ok(()) => {}
                Err(Obstacle::Retry(reason)) => {
                    delivery.failed_by(Cause::Unreachable);
                    return Verdict::retry(reason);
                }
                Err(Obstacle::RetryAfter(error, after)) => {
                    delivery.failed_by(Cause::Unreachable);
                    let after = Some(after);
                    return Verdict::Retry { error, after };
                }
            },
        }
        match self.confirm(input, self.confirm_timeout).await {
            Ok(_) => Verdict::Accepted,
            // It is on record that it was typed: the next attempt only confirms.
            Err(error) => Verdict::retry(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_recording_or_file_is_typed_as_its_place_and_what_was_written_with_it() {
        let file = json!({"content": "the plan", "payload": {"path": "/srv/a b.pdf\u{1b}[2J"}});
        assert_eq!(
            typed("file", &file.to_string()),
            Ok("/srv/a b.pdf\nthe plan".to_owned())
        );
        let voice = json!({"content": "", "payload": {"url": "https://example.com/1.ogg"}});
        assert_eq!(
            typed("voice", &voice.to_string()),
            Ok("https://example.com/1.ogg".to_owned())
        );
        let lost =
            json!({"content": "look", "payload": {"attachment_error": "it is\u{1b}[2J too large"}});
        assert_eq!(
            typed("file", &lost.to_string()),
            Ok("(a file was sent, and not fetched: it is too large)\nlook".to_owned())
        );
        for (kind, payload) in [
            ("file", json!({"content": "x", "payload": {}})),
            ("text", json!({"content": "\u{1b}[201~ \u{3}"})),
            ("text", json!({"content": 5})),
            ("text", json!([1])),
        ] {
            assert!(
                typed(kind, &payload.to_string()).is_err(),
                "{kind} {payload}"
            );
        }
    }

    #[test]
    fn settings_that_contradict_one_another_are_refused() {
        let refusal = |settings| Tmux::check(&settings).unwrap_err().to_string();
        Tmux::check(&json!({})).unwrap();
        let both = refusal(json!({"socket": "/tmp/a", "socket_name": "b"}));
        assert!(both.contains("`socket`"), "{both}");
        assert!(refusal(json!({"adopt": []})).contains("name a program"));
        assert!(refusal(json!({"enter_delay_ms": 300_001})).contains("at most 300 s"));
        assert!(refusal(json!({"enter_delay": 1})).contains("no setting `enter_delay`"));
    }
}
