//! Sends events as chat messages: the code that Telegram, Discord and Slack share (G5, E7).
//!
//! ```text
//! event ─► text and chat ───────► parts ─► which were sent ───────► one request ─► accepted
//!                                            ▲ recorded, in Postgres     │
//!                                            └───────────────────────────┴─► partial: again at its next reservation
//! ```
//!
//! A delivery makes one request, because each request counts against the platform's limits: a text of three messages
//! needs three reservations. Each part is recorded before the next one is sent, so a repeated delivery continues after
//! the last recorded part, also in another process.
//!
//! | what goes wrong | what happens |
//! |---|---|
//! | the record cannot be read | nothing is sent, and the event is retried |
//! | sent, but the record cannot be written | retried; this process writes the record before it sends anything else |
//! | the process dies between the two | that part is sent twice: at least once, as everywhere |
//! | the message to be edited was deleted | a new one is sent and recorded in its place |
//! | the new text has fewer parts | the messages of the others are deleted |
//! | versions come faster than the parts of one can be sent | all parts of the version that has begun are sent, then the newest version |

mod api;
mod message;
mod platform;
mod rates;
mod settings;
mod split;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_core::adapter::{Adapter, Delivery, Preview, Role, Server, Verdict};
use lanekeeper_core::bucket::Bucket;
use lanekeeper_core::event::Event;
use lanekeeper_core::memory::{Memory, MemoryError, MessageName};
use lanekeeper_core::observed::{Cause, Observed};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use self::api::OBSERVED;
use self::message::{Message, Reading};
use self::steps::{Owed, Steps};

pub(super) use self::api::{Answer, Api, Credential, pause};
pub(super) use self::message::Target;
pub(super) use self::platform::{Outcome, Platform};
pub use self::rates::PlatformRate;
pub(super) use self::rates::{PlatformLimit, Rates};
pub(crate) use self::settings::LONGEST_TIMEOUT;
pub(super) use self::settings::{Bot, Checked, Shared, secure, shared_settings, variable};

/// Messages that one text may become: beyond that it is no message for a chat.
const MOST_PARTS: usize = 50;
/// What a typing indicator may cost.
const TYPING_WITHIN: Duration = Duration::from_secs(2);

/// Delivers events as messages, and later versions of them as edits.
pub(super) struct Chat<P> {
    platform: P,
    reading: Reading,
    memory: Arc<dyn Memory>,
    typing: bool,
    timeout: Duration,
    steps: Steps,
    owed: Owed,
}

/// What the next request is about.
enum Step {
    Typing,
    Send {
        part: usize,
    },
    Edit {
        part: usize,
        reference: String,
    },
    /// The text has become shorter.
    Delete {
        part: i32,
        reference: String,
    },
    Nothing,
}

impl<P: Platform> Chat<P> {
    pub(super) fn new(platform: P, checked: Checked, memory: Arc<dyn Memory>) -> Self {
        Self {
            platform,
            reading: checked.reading,
            memory,
            typing: checked.typing,
            timeout: checked.timeout,
            steps: Steps::default(),
            owed: Owed::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn platform(&self) -> &P {
        &self.platform
    }

    async fn attempt(&self, delivery: &Delivery<'_>, deadline: Instant) -> Verdict {
        let event = delivery.event;
        let message = match self.reading.message(&event.payload) {
            Ok(message) => message,
            Err(error) => return Verdict::Rejected { error },
        };
        let longest = self.platform.longest();
        if split::units(&message.text) > longest * MOST_PARTS {
            let error = format!(
                "the text is longer than {MOST_PARTS} messages of {longest} characters, nothing was sent"
            );
            return Verdict::Rejected { error };
        }
        let parts = split::split(&message.text, longest);
        // A message of its own and of one part is never looked for again.
        let remembers = message.key.is_some() || parts.len() > 1;
        let place = message.target.place();
        let own_key = format!("event {}", event.message_id);
        let name = MessageName {
            subscription: delivery.subscription,
            session: &event.session,
            place: &place,
            key: message.key.as_deref().unwrap_or(&own_key),
        };
        let told = async {
            if !remembers {
                return self.request(event, &message, &parts, &[], None).await;
            }
            let sent = match self.sent(name).await {
                Ok(sent) => sent,
                Err(error) => return Verdict::retry(error.to_string()),
            };
            self.request(event, &message, &parts, &sent, Some(name))
                .await
        };
        match timeout_at(deadline, told).await {
            Ok(verdict) => verdict,
            Err(_) => {
                let _ = OBSERVED.try_with(|observed| observed.failed_by(Cause::Timeout));
                Verdict::retry(format!("not done within {:?}", self.timeout))
            }
        }
    }

    /// What was sent of a message, once what this process still owes the memory is entered.
    async fn sent(&self, name: MessageName<'_>) -> Result<Vec<(i32, String)>, MemoryError> {
        if let Some((part, reference)) = self.owed.of(name) {
            self.memory.remember(name, part, &reference).await?;
            self.owed.settle(name);
        }
        self.memory.recall(name).await
    }

    /// Which request comes next.
    fn next_step(
        &self,
        event: &Event,
        message: &Message,
        parts: &[String],
        sent: &[(i32, String)],
    ) -> Step {
        let done = self.steps.of(event.message_id);
        for part in 0..parts.len() {
            let number = number(part);
            match sent.iter().find(|(other, _)| *other == number) {
                // What has no other versions says already what it is to say.
                Some(_) if message.key.is_none() || done.parts.contains(&number) => {}
                Some((_, reference)) => {
                    let reference = reference.clone();
                    return Step::Edit { part, reference };
                }
                // Nobody knows what it is called: it stays as it is.
                None if done.parts.contains(&number) => {}
                None => {
                    let types = self.typing && message.is_final && !done.typed && part == 0;
                    return match types && self.platform.can_type(&message.target) {
                        true => Step::Typing,
                        false => Step::Send { part },
                    };
                }
            }
        }
        let left = sent.iter().rfind(|(part, _)| *part >= number(parts.len()));
        left.map_or(Step::Nothing, |(part, reference)| Step::Delete {
            part: *part,
            reference: reference.clone(),
        })
    }

    /// Makes one request. `name`: what is sent is remembered by it.
    async fn request(
        &self,
        event: &Event,
        message: &Message,
        parts: &[String],
        sent: &[(i32, String)],
        name: Option<MessageName<'_>>,
    ) -> Verdict {
        let (id, target) = (event.message_id, &message.target);
        let step = self.next_step(event, message, parts, sent);
        let outcome = match &step {
            Step::Nothing => Outcome::Done,
            Step::Typing => {
                // Whatever comes of it, the message is next.
                self.steps.change(id, |done| done.typed = true);
                let _ = timeout(TYPING_WITHIN, self.platform.show_typing(target)).await;
                return Verdict::Partial;
            }
            Step::Send { part } => self.platform.send(target, &parts[*part], *part == 0).await,
            Step::Edit { part, reference } => {
                self.platform.edit(target, reference, &parts[*part]).await
            }
            Step::Delete { reference, .. } => self.platform.delete(target, reference).await,
        };
        let part = match step {
            Step::Send { part } | Step::Edit { part, .. } => number(part),
            Step::Delete { part, .. } => part,
            Step::Typing | Step::Nothing => 0,
        };
        let entered = match (outcome, &step, name) {
            (Outcome::Failed(verdict), ..) => return verdict,
            (Outcome::Sent { reference }, Step::Send { .. }, Some(name)) => {
                self.steps.change(id, |done| done.parts.push(part));
                self.owed.note(name, part, &reference);
                let entered = self.memory.remember(name, part, &reference).await;
                if entered.is_ok() {
                    self.owed.settle(name);
                }
                entered
            }
            // Sent, and nobody knows what it is called: to send it again would be worse than not to be able to
            // edit it. What its key says next is a message of its own.
            (Outcome::Done, Step::Send { .. }, Some(_)) => {
                self.steps.change(id, |done| done.parts.push(part));
                Ok(())
            }
            (Outcome::Missing, Step::Send { .. }, _) => {
                return Verdict::retry("the platform knows no message that was not sent yet");
            }
            // It is sent anew.
            (Outcome::Missing, Step::Edit { .. }, Some(name)) => {
                return match self.memory.forget(name, part).await {
                    Ok(()) => Verdict::Partial,
                    Err(error) => Verdict::retry(error.to_string()),
                };
            }
            (_, Step::Delete { .. }, Some(name)) => self.memory.forget(name, part).await,
            (_, Step::Edit { .. }, _) => {
                self.steps.change(id, |done| done.parts.push(part));
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(error) = entered {
            return Verdict::retry(format!("sent, but not on record yet: {error}"));
        }
        if self.is_last(&step, parts, sent) {
            self.steps.forget(id);
            return Verdict::Accepted;
        }
        Verdict::Partial
    }

    /// Whether nothing comes after this step.
    fn is_last(&self, step: &Step, parts: &[String], sent: &[(i32, String)]) -> bool {
        let superfluous = sent
            .iter()
            .filter(|(part, _)| *part >= number(parts.len()))
            .count();
        match step {
            Step::Nothing => true,
            Step::Delete { .. } => superfluous == 1,
            Step::Send { part } | Step::Edit { part, .. } => {
                *part + 1 == parts.len() && superfluous == 0
            }
            Step::Typing => false,
        }
    }
}

/// Parts are few.
fn number(part: usize) -> i32 {
    i32::try_from(part).unwrap_or(i32::MAX)
}

#[async_trait]
impl<P: Platform> Adapter for Chat<P> {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Verdict {
        let deadline = Instant::now() + self.timeout;
        let Some(observed) = delivery.observed else {
            return self.attempt(delivery, deadline).await;
        };
        let attempt = async {
            let verdict = self.attempt(delivery, deadline).await;
            OBSERVED.with(|noted| noted.tell(observed));
            verdict
        };
        OBSERVED.scope(Observed::default(), attempt).await
    }

    fn server(&self) -> Option<Server> {
        self.platform.server()
    }

    fn is_paced(&self) -> bool {
        true
    }

    fn buckets(&self, event: &Event) -> Vec<Bucket> {
        match self.reading.message(&event.payload) {
            Ok(message) => {
                let may_edit = message.key.is_some();
                self.platform.buckets(&message.target, may_edit)
            }
            // It is refused before anything is sent.
            Err(_) => Vec::new(),
        }
    }

    fn learned(&self) -> Vec<(Bucket, Duration)> {
        self.platform.learned()
    }

    fn shows_progress(&self) -> bool {
        true
    }

    fn preview(&self) -> Option<Preview> {
        Some(Preview {
            pointers: self.reading.role_pointers(),
            // Longer ones are refused: what cannot be shown makes nothing needless.
            longest: self.platform.longest() * MOST_PARTS,
        })
    }

    fn has_begun(&self, message_id: Uuid) -> bool {
        self.steps.have_begun(message_id)
    }

    fn role(&self, payload: &str) -> Role {
        self.reading.role(payload)
    }
}
