//! The file for `apply`: `[subscription.NAME]`, `[stream.NAME]` and `[source.NAME]` sections.
//!
//! Every problem is found in one pass and reported with its line, its column and, for a wrong key,
//! the key that was meant. Keys that are not the subscription's own are the adapter's, which
//! judges them. What the file leaves open stays open here: `plan` resolves it by the stream.
//! Secrets never come in: a file that holds one is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use lanekeeper_core::subscription::agent::AgentDefinition;
use lanekeeper_core::subscription::{
    Acknowledge, EventSchema, Events, Exhaustion, FileError, FrameAcknowledge, Limit, MessageStage,
    OnFull, Problem, Start, built_in,
};
use lanekeeper_core::toml_file::{Position, nearest};
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::delivery::DeliverySection;
use super::section::Section;
use super::source::{self, SourceSection};
use super::{agent, delivery, limit, schema, settings, value};

/// The largest `max_pending`: with a filter, an append to a full session counts up to four times as many events.
const MOST_PENDING: u32 = 100_000;

/// What a file asks for.
#[derive(Clone, Debug)]
pub struct SubscriptionFile {
    /// The file's name as the user gave it.
    pub origin: String,
    pub streams: Vec<StreamSection>,
    pub subscriptions: Vec<SubscriptionSection>,
    pub sources: Vec<SourceSection>,
}

/// `[stream.NAME]`. `None`: as it is, or the default of a new stream.
#[derive(Clone, Debug)]
pub struct StreamSection {
    pub name: String,
    pub max_payload_bytes: Option<u32>,
    pub fan_out: Option<Events>,
    pub critical: Option<Events>,
    pub retry: RetrySection,
    pub pending: PendingSection,
    pub delivery: DeliverySection,
    pub acknowledge: Option<FrameAcknowledge>,
    pub keep_events: Option<bool>,
    /// Empty: none.
    pub terminal: Option<Vec<String>>,
    /// `Some(None)`: it is no agent.
    pub a2a: Option<Option<AgentDefinition>>,
    /// By event type. Empty: none.
    pub schemas: Option<BTreeMap<String, EventSchema>>,
}

/// `[subscription.NAME]`. `None`: the stream's.
#[derive(Clone, Debug)]
pub struct SubscriptionSection {
    pub name: String,
    pub position: Position,
    pub stream: String,
    pub adapter: String,
    pub events: Option<Events>,
    pub start: Start,
    pub retry: RetrySection,
    /// Default: where the stream says which events are critical.
    pub coalesce: Option<bool>,
    /// Lanes delivered at once by one worker.
    pub concurrency: u32,
    pub history: bool,
    pub ack: Acknowledge,
    pub ack_timeout: Duration,
    pub window: u32,
    /// Only workers on a session's host deliver it.
    pub host_bound: bool,
    pub pending: PendingSection,
    pub max_age: Option<Duration>,
    pub lifecycle: Vec<MessageStage>,
    /// All of them hold for every send.
    pub limits: Vec<Limit>,
    /// The adapter's own, checked by it.
    pub settings: Value,
}

/// `retry = { … }`.
#[derive(Clone, Debug, Default)]
pub struct RetrySection {
    pub schedule: Option<Vec<Duration>>,
    pub max_attempts: Option<u32>,
    pub on_exhausted: Option<Exhaustion>,
}

/// `max_pending` and `on_full`.
#[derive(Clone, Copy, Debug, Default)]
pub struct PendingSection {
    /// 0: any number.
    pub max_pending: Option<u32>,
    pub on_full: Option<OnFull>,
}

impl SubscriptionFile {
    /// Reads the text of a file; `origin` names it in messages, and files of schemas are looked for beside it.
    pub fn parse(text: &str, origin: &str) -> Result<Self, FileError> {
        let refused = |problems| FileError {
            origin: origin.to_owned(),
            problems,
        };
        let document = DeTable::parse(text).map_err(|error| {
            let position = Position::of_error(text, &error);
            let reason = format!("not valid TOML: {}", error.message());
            refused(vec![Problem {
                position,
                key: String::new(),
                reason,
            }])
        })?;
        let mut reader = Reader {
            text,
            origin,
            problems: Vec::new(),
            sources: Vec::new(),
        };
        let (streams, subscriptions) = reader.read(document.get_ref());
        if !reader.problems.is_empty() {
            reader.problems.sort_by_key(|problem| problem.position);
            return Err(refused(reader.problems));
        }
        Ok(Self {
            origin: origin.to_owned(),
            streams,
            subscriptions,
            sources: reader.sources,
        })
    }
}

struct Reader<'t> {
    text: &'t str,
    origin: &'t str,
    problems: Vec<Problem>,
    sources: Vec<SourceSection>,
}

impl<'t> Reader<'t> {
    fn read(
        &mut self,
        document: &'t DeTable<'t>,
    ) -> (Vec<StreamSection>, Vec<SubscriptionSection>) {
        let (mut streams, mut subscriptions) = (Vec::new(), Vec::new());
        for (family, sections) in document {
            let (name, offset) = (family.get_ref().as_ref(), family.span().start);
            let known = matches!(name, "stream" | "subscription" | "source");
            let DeValue::Table(sections) = sections.get_ref() else {
                self.refuse(
                    offset,
                    name,
                    "unknown key; write [subscription.NAME] sections",
                );
                continue;
            };
            if !known {
                let meant = meant(name, sections);
                self.refuse(
                    offset,
                    name,
                    format!("unknown section; did you mean [{meant}]?"),
                );
                continue;
            }
            for (key, content) in sections {
                let path = format!("{name}.{}", key.get_ref());
                let DeValue::Table(table) = content.get_ref() else {
                    let reason = format!("must be a table: write [{name}.NAME] above it");
                    self.refuse(key.span().start, &path, reason);
                    continue;
                };
                let mut section = Section::new(self.text, path, key.span().start, table);
                if name == "source" {
                    let source = source::read(key.get_ref(), &mut section);
                    self.sources.extend(source);
                    self.problems.append(&mut section.problems);
                } else if name == "stream" {
                    streams.push(self.stream(key.get_ref(), section));
                } else {
                    subscriptions.extend(self.subscription(key.get_ref(), section));
                }
            }
        }
        (streams, subscriptions)
    }

    fn refuse(&mut self, offset: usize, key: &str, reason: impl Into<String>) {
        let position = Position::of(self.text, offset);
        self.problems.push(Problem {
            position,
            key: key.to_owned(),
            reason: reason.into(),
        });
    }

    fn stream(&mut self, name: &str, mut section: Section<'t>) -> StreamSection {
        if !is_stream_name(name) {
            section.refuse_whole(
                "a stream's name starts with a-z and goes on with a-z, 0-9, _ . -, at most 63",
            );
        }
        let stream = StreamSection {
            name: name.to_owned(),
            max_payload_bytes: section.take("max_payload_bytes", value::whole(1_024..=268_435_455)),
            fan_out: section.take("fan_out", value::events),
            critical: section.take("critical", value::events),
            retry: self.retry(&mut section),
            pending: pending(&mut section),
            delivery: delivery::take(&mut section),
            acknowledge: section.take(
                "acknowledge",
                value::choice(&FrameAcknowledge::ALL, FrameAcknowledge::as_str),
            ),
            keep_events: section.take("keep_events", value::flag),
            terminal: section.take("terminal", value::terminal),
            a2a: agent::take(name, &mut section),
            schemas: schema::take(self.origin, &mut section),
        };
        if name == "lifecycle" && (stream.terminal.is_some() || stream.schemas.is_some()) {
            section.refuse_whole(
                "the engine appends to this stream and has nobody to refuse to: leave terminal and schema away",
            );
        }
        self.problems.extend(section.finish());
        stream
    }

    fn subscription(
        &mut self,
        name: &str,
        mut section: Section<'t>,
    ) -> Option<SubscriptionSection> {
        if !is_subscription_name(name) {
            section.refuse_whole(
                "a subscription's name starts with a letter or digit and goes on with letters, \
                 digits, _ . -, at most 100",
            );
        }
        let position = section.position();
        let stream = section.require("stream", value::text);
        let adapter = match section.refuse_misspelt("adapter") {
            true => None,
            false => section.require("adapter", |value| {
                value::text(value).and_then(built_in::refuse_adapter)
            }),
        };
        let events = section.take("events", value::events);
        let start = section.take("start", value::choice(&Start::ALL, Start::as_str));
        let retry = self.retry(&mut section);
        let is_projection = adapter.as_deref() == Some(lanekeeper_adapters::projection::KIND);
        let coalesce = section.take("coalesce", value::flag);
        // A read model is told of everything.
        let coalesce = coalesce.or(is_projection.then_some(false));
        let concurrency = section.take("concurrency", value::whole(1..=10_000));
        let history = section.take("history", value::flag);
        let ack = section.take("ack", value::choice(&Acknowledge::ALL, Acknowledge::as_str));
        let answers = adapter
            .as_deref()
            .is_none_or(lanekeeper_adapters::acknowledges);
        if ack == Some(Acknowledge::Response) && !answers {
            section.refuse_whole(
                "ack = \"response\" needs an adapter whose destination answers with a body: webhook or agent",
            );
        }
        let ack_timeout = section.take("ack_timeout", value::duration);
        let window = section.take("window", value::whole(1..=50));
        let is_of_host = adapter
            .as_deref()
            .is_some_and(lanekeeper_adapters::is_of_host);
        let host_bound = section
            .take("host_bound", value::flag)
            .unwrap_or(is_of_host);
        if is_of_host && !host_bound {
            section
                .refuse_whole("this adapter reaches only its worker's host: leave host_bound away");
        }
        let pending = pending(&mut section);
        let acknowledges = ack.is_some_and(|ack| ack != Acknowledge::None);
        if is_projection && (acknowledges || host_bound) {
            section.refuse_whole(
                "a projection commits with its settlement and belongs to no host: leave ack and host_bound away",
            );
        }
        let max_age = section.take("max_age", value::duration);
        let lifecycle = section.take("lifecycle", value::stages);
        let limits = limit::take(&mut section);
        if is_projection && !limits.is_empty() {
            section.refuse_whole("a projection sends nothing: leave limit away");
        }
        let timeout = section.take("timeout", value::duration);
        let settings = adapter
            .as_deref()
            .map(|adapter| settings::read(adapter, timeout, &mut section));
        let awaits_completion = adapter
            .as_deref()
            .zip(settings.as_ref())
            .is_some_and(|(kind, settings)| lanekeeper_adapters::awaits_completion(kind, settings));
        if awaits_completion && ack != Some(Acknowledge::Required) {
            section.refuse_whole(
                "acknowledge_on = \"completed\" needs ack = \"required\": the end of the agent's task is the acknowledgement",
            );
        }
        self.problems.append(&mut section.problems);
        Some(SubscriptionSection {
            name: name.to_owned(),
            position,
            stream: stream?,
            adapter: adapter?,
            events,
            start: start.unwrap_or(Start::Latest),
            retry,
            coalesce,
            concurrency: concurrency.unwrap_or(64),
            history: history.unwrap_or(false),
            ack: ack.unwrap_or_default(),
            ack_timeout: ack_timeout.unwrap_or(Duration::from_secs(30)),
            window: window.unwrap_or(1),
            host_bound,
            pending,
            max_age,
            lifecycle: lifecycle.unwrap_or_default(),
            limits,
            settings: settings?,
        })
    }

    fn retry(&mut self, parent: &mut Section<'t>) -> RetrySection {
        let Some(mut section) = parent.section("retry") else {
            return RetrySection::default();
        };
        let retry = RetrySection {
            schedule: section.take("schedule", value::schedule),
            max_attempts: section.take("max_attempts", value::whole(0..=1_000_000)),
            on_exhausted: section.take(
                "on_exhausted",
                value::choice(&Exhaustion::ALL, Exhaustion::as_str),
            ),
        };
        self.problems.extend(section.finish());
        retry
    }
}

fn pending(section: &mut Section<'_>) -> PendingSection {
    PendingSection {
        max_pending: section.take("max_pending", value::whole(0..=MOST_PENDING)),
        on_full: section.take("on_full", value::choice(&OnFull::ALL, OnFull::as_str)),
    }
}

/// The section that a wrong one was probably meant to be: `[subscriptions.a]` or `[a]`.
fn meant(name: &str, sections: &DeTable<'_>) -> String {
    let mut inner = sections.iter();
    let only_tables = inner.all(|(_, content)| content.get_ref().as_table().is_some());
    let first = sections.iter().next().filter(|_| only_tables);
    let family = nearest(name, ["stream", "subscription", "source"]);
    match (family, first) {
        (Some(family), Some((inner, _))) => format!("{family}.{}", inner.get_ref()),
        (Some(family), None) if name.starts_with(family) => format!("{family}.NAME"),
        _ => format!("subscription.{name}"),
    }
}

fn is_stream_name(name: &str) -> bool {
    is_plain(name, 63)
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.contains(|c: char| c.is_ascii_uppercase())
}

fn is_subscription_name(name: &str) -> bool {
    is_plain(name, 100) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn is_plain(name: &str, longest: usize) -> bool {
    name.len() <= longest
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}
