//! The difference between what a file asks for and what is in force. Pure: it reads no clock and
//! no database, so that a dry run and the real one cannot differ.

use std::collections::BTreeMap;

use lanekeeper_core::subscription::{
    ChangeKind, Current, Definition, Events, Existing, FieldChange, FileError, OnFull,
    PendingBound, Plan, Problem, Retry, Step, StreamDefinition, built_in,
};
use lanekeeper_core::toml_file::nearest;

use super::contradiction::contradictions;
use super::file::{
    PendingSection, RetrySection, StreamSection, SubscriptionFile, SubscriptionSection,
};
use super::settings;
use super::source_plan;
use super::step::step;

impl SubscriptionFile {
    /// Compares with what is in force; `prune` removes what the file does not name.
    ///
    /// # Errors
    /// Everything that cannot be done, each with its line.
    pub fn plan(&self, current: &Current, prune: bool) -> Result<Plan, FileError> {
        let mut plan = Plan::default();
        let mut streams = current.streams.clone();
        for section in &self.streams {
            let before = current.streams.get(&section.name);
            let definition = stream(section, before.cloned().unwrap_or_default());
            streams.insert(section.name.clone(), definition.clone());
            plan.streams
                .push(stream_step(&section.name, before, definition));
        }
        let mut problems = Vec::new();
        for section in &self.subscriptions {
            match plan_subscription(section, &streams, current) {
                Ok(step) => plan.subscriptions.push(step),
                Err((key, reason)) => problems.push(Problem {
                    position: section.position,
                    key: format!("subscription.{}.{key}", section.name),
                    reason,
                }),
            }
        }
        let refused = |problems: Vec<Problem>| match problems.is_empty() {
            true => Ok(()),
            false => Err(FileError {
                origin: self.origin.clone(),
                problems,
            }),
        };
        refused(problems)?;
        let listed = |name: &str| {
            self.subscriptions
                .iter()
                .any(|section| section.name == name)
        };
        let others = current.live.iter().filter(|(name, live)| {
            !listed(name) && !built_in::is_built_in(&live.definition.adapter)
        });
        for (name, existing) in others {
            if prune {
                plan.subscriptions.push(Step {
                    name: name.clone(),
                    id: Some(existing.id),
                    kind: ChangeKind::Removed,
                    fields: Vec::new(),
                    definition: existing.definition.clone(),
                });
            } else {
                plan.unlisted.push(name.clone());
            }
        }
        source_plan::add(self, &current.sources, prune, &mut plan);
        refused(contradictions(&plan, current, self))?;
        Ok(plan)
    }
}

fn stream(section: &StreamSection, before: StreamDefinition) -> StreamDefinition {
    StreamDefinition {
        max_payload_bytes: section
            .max_payload_bytes
            .unwrap_or(before.max_payload_bytes),
        fan_out: section.fan_out.clone().unwrap_or(before.fan_out),
        critical: section.critical.clone().unwrap_or(before.critical),
        retry: retry(&section.retry, &before.retry),
        acknowledge: section.acknowledge.unwrap_or(before.acknowledge),
        keep_events: section.keep_events.unwrap_or(before.keep_events),
        a2a: section.a2a.clone().unwrap_or(before.a2a),
        pending: pending(section.pending, before.pending),
        delivery: section.delivery.over(before.delivery),
        terminal: section.terminal.clone().unwrap_or(before.terminal),
        schemas: section.schemas.clone().unwrap_or(before.schemas),
    }
}

/// What another release made of a schema is made anew, although the schema is as it was.
fn stream_step(
    name: &str,
    before: Option<&StreamDefinition>,
    definition: StreamDefinition,
) -> Step<StreamDefinition> {
    let differs = before.is_some_and(|before| before.schemas != definition.schemas);
    let step = step(name, before, definition);
    match step.kind {
        ChangeKind::Unchanged if differs => Step {
            kind: ChangeKind::Changed,
            fields: vec![FieldChange {
                field: "schema".to_owned(),
                from: "as another release checks it".into(),
                to: "as this one does".into(),
            }],
            ..step
        },
        _ => step,
    }
}

fn pending(section: PendingSection, default: PendingBound) -> PendingBound {
    let max_pending = section.max_pending.or(default.max_pending);
    PendingBound {
        max_pending: max_pending.filter(|most| *most > 0),
        on_full: section.on_full.unwrap_or(default.on_full),
    }
}

fn retry(section: &RetrySection, default: &Retry) -> Retry {
    Retry {
        schedule: section
            .schedule
            .clone()
            .unwrap_or_else(|| default.schedule.clone()),
        max_attempts: section.max_attempts.unwrap_or(default.max_attempts),
        on_exhausted: section.on_exhausted.unwrap_or(default.on_exhausted),
    }
}

/// A key that is impossible, and why.
type Impossible = (&'static str, String);

fn plan_subscription(
    section: &SubscriptionSection,
    streams: &BTreeMap<String, StreamDefinition>,
    current: &Current,
) -> Result<Step<Definition>, Impossible> {
    if let Some(reason) = built_in::refusal(&section.name, current) {
        return Err(("adapter", reason));
    }
    let definition = resolve(section, streams)?;
    if let Some(Existing {
        id,
        definition: before,
    }) = current.live.get(&section.name)
    {
        stays_what_it_is(section, before)?;
        return Ok(Step {
            id: Some(*id),
            ..step(&section.name, Some(before), definition)
        });
    }
    let removed = current
        .removed
        .get(&(section.name.clone(), section.stream.clone()));
    let Some(Existing {
        id,
        definition: before,
    }) = removed
    else {
        return Ok(step(&section.name, None, definition));
    };
    same_routes(section, before)?;
    let step = step(&section.name, Some(before), definition);
    Ok(Step {
        id: Some(*id),
        kind: ChangeKind::Revived,
        ..step
    })
}

/// Takes from the stream what the section leaves open.
fn resolve(
    section: &SubscriptionSection,
    streams: &BTreeMap<String, StreamDefinition>,
) -> Result<Definition, Impossible> {
    let Some(stream) = streams.get(&section.stream) else {
        let names = || streams.keys().map(String::as_str);
        let hint = match nearest(&section.stream, names()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("streams are {}.", names().collect::<Vec<_>>().join(", ")),
        };
        let reason = format!(
            "there is no stream {:?}; {hint} A stream of your own needs a [stream.{}] section",
            section.stream, section.stream
        );
        return Err(("stream", reason));
    };
    let events = section
        .events
        .clone()
        .unwrap_or_else(|| stream.fan_out.clone());
    let pending = pending(section.pending, stream.pending);
    is_possible(section, pending, &events, stream)?;
    Ok(Definition {
        stream: section.stream.clone(),
        adapter: section.adapter.clone(),
        events,
        start: section.start,
        retry: retry(&section.retry, &stream.retry),
        coalesce: section.coalesce.unwrap_or_else(|| {
            stream.critical != Events::All || lanekeeper_adapters::shows_progress(&section.adapter)
        }),
        concurrency: section.concurrency,
        history: section.history,
        ack: section.ack,
        ack_timeout: section.ack_timeout,
        ack_window: section.window,
        host_bound: section.host_bound,
        pending,
        max_age: section.max_age,
        lifecycle: section.lifecycle.clone(),
        limits: section.limits.clone(),
        settings: settings::with_defaults(
            &section.adapter,
            section.settings.clone(),
            !section.limits.is_empty(),
            &stream.delivery,
        ),
    })
}

/// Refuses a bound, and a feed, that cannot be kept.
fn is_possible(
    section: &SubscriptionSection,
    bound: PendingBound,
    events: &Events,
    stream: &StreamDefinition,
) -> Result<(), Impossible> {
    let refuse = |key, reason: &str| Err((key, reason.to_owned()));
    let is_feed = section.stream == "lifecycle";
    if is_feed && !section.lifecycle.is_empty() {
        return refuse("lifecycle", "the feed tells nothing of its own deliveries");
    }
    if is_feed && bound.max_pending.is_some() && bound.on_full == OnFull::Refuse {
        return refuse(
            "max_pending",
            "the engine appends to this stream and has nobody to refuse to: write on_full = \"drop_oldest\"",
        );
    }
    if section.pending.on_full.is_some() && bound.max_pending.is_none() {
        return refuse(
            "on_full",
            "says what happens beyond max_pending, which is missing",
        );
    }
    if let (Some(_), Events::Only(critical)) = (bound.drops_beyond(), &stream.critical)
        && critical.iter().any(|name| match events {
            Events::All => true,
            Events::Only(types) => types.contains(name),
        })
    {
        return refuse(
            "on_full",
            "the stream names critical events, and these are never dropped: leave them out of `events`, or write \
             on_full = \"refuse\"",
        );
    }
    Ok(())
}

/// Refuses what cannot change while a subscription is in force: its lanes hang on it.
fn stays_what_it_is(section: &SubscriptionSection, before: &Definition) -> Result<(), Impossible> {
    if before.stream != section.stream {
        let reason = format!(
            "{:?} belongs to the stream {:?}, where its lanes are: a subscription cannot move; \
             give the new one another name, or remove this one first",
            section.name, before.stream
        );
        return Err(("stream", reason));
    }
    same_routes(section, before)?;
    if before.start != section.start {
        let reason = format!(
            "{:?} started {:?} and its lanes exist: replay it to deliver older events again, or \
             give a new subscription another name",
            section.name,
            before.start.as_str()
        );
        return Err(("start", reason));
    }
    Ok(())
}

/// Refuses what would leave lanes on routes that nobody scans.
fn same_routes(section: &SubscriptionSection, before: &Definition) -> Result<(), Impossible> {
    if before.host_bound == section.host_bound {
        return Ok(());
    }
    let reason = format!(
        "{:?} has lanes that were made with host_bound = {}: give the new subscription another name",
        section.name, before.host_bound
    );
    Err(("host_bound", reason))
}
