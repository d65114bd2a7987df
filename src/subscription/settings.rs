//! The adapter's part of a subscription's section: turned into JSON, judged by the adapter, and
//! its verdict brought back to the line that it is about. Secrets are refused.

use std::time::Duration;

use lanekeeper_adapters as adapter;
use lanekeeper_adapters::SettingsError;
use lanekeeper_core::subscription::DeliveryDefaults;
use serde_json::{Map, Value};

use super::section::{Entry, Section};
use super::value;

/// Keys of these names, or that end so, hold secrets.
const SECRETS: [&str; 4] = ["secret", "password", "token", "api_key"];

/// The file's `timeout`, as adapters know it.
const TIMEOUT_MS: &str = "timeout_ms";
const BATCH: &str = "batch";

/// Takes what is left of a subscription's section and has its adapter judge it.
pub(super) fn read(adapter: &str, timeout: Option<Duration>, section: &mut Section<'_>) -> Value {
    let entries = section.rest();
    let mut settings = Map::new();
    for entry in &entries {
        if entry.name == TIMEOUT_MS {
            section.refuse(entry.offset, TIMEOUT_MS, "write timeout = \"15s\" instead");
        } else if let Some(reason) = secret(entry) {
            section.refuse(entry.offset, entry.name, reason);
        } else {
            match value::json(entry.value.get_ref()) {
                Ok(value) => {
                    settings.insert(entry.name.to_owned(), value);
                }
                Err(reason) => section.refuse(entry.value.span().start, entry.name, reason),
            }
        }
    }
    if let Some(timeout) = timeout {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        settings.insert(TIMEOUT_MS.to_owned(), Value::from(millis));
    }
    let settings = Value::Object(settings);
    judge(adapter, settings.clone(), &entries, section);
    settings
}

/// A subscription's settings with what its stream says where it says nothing itself. A limit counts requests, so several
/// events go in one of them only where that was written beside it.
pub(super) fn with_defaults(
    adapter: &str,
    mut settings: Value,
    is_limited: bool,
    stream: &DeliveryDefaults,
) -> Value {
    let (timeout, batch) = adapter::takes(adapter, &settings);
    if let Some(settings) = settings.as_object_mut() {
        if let (Some(longest), Some(timeout)) = (timeout, stream.timeout) {
            let millis = u64::try_from(timeout.min(longest).as_millis()).unwrap_or(u64::MAX);
            settings
                .entry(TIMEOUT_MS)
                .or_insert_with(|| Value::from(millis));
        }
        if let (Some(most), Some(batch), true) = (batch, stream.batch, !is_limited) {
            settings
                .entry(BATCH)
                .or_insert_with(|| Value::from(batch.min(most)));
        }
    }
    settings
}

/// Reports what the adapter objects to. It names one unknown key at a time: asked again without
/// that one, it names the next. What it objects to after that may just follow from their absence.
fn judge(adapter: &str, mut settings: Value, entries: &[Entry<'_>], section: &mut Section<'_>) {
    let mut without_some = false;
    while let Err(error) = adapter::check(adapter, &settings) {
        let SettingsError::UnknownKey { key, .. } = &error else {
            if !without_some {
                refuse(&error, entries, section);
            }
            return;
        };
        refuse(&error, entries, section);
        let removed = settings
            .as_object_mut()
            .and_then(|settings| settings.remove(key));
        without_some = removed.is_some();
        if !without_some {
            return;
        }
    }
}

/// Why a key may not stand in a file whose content goes to the database.
fn secret(entry: &Entry<'_>) -> Option<String> {
    let name = entry.name.to_lowercase();
    if SECRETS
        .iter()
        .any(|secret| name == *secret || name.ends_with(&format!("_{secret}")))
    {
        return Some(
            "secrets never enter the database: put it into an environment variable of the worker \
             and name that with secret_env"
                .to_owned(),
        );
    }
    let url = entry
        .value
        .get_ref()
        .as_str()
        .and_then(|text| url::Url::parse(text).ok())?;
    url.password().is_some().then(|| {
        "a password in a URL would enter the database: authenticate otherwise, for example with \
         secret_env"
            .to_owned()
    })
}

fn refuse(error: &SettingsError, entries: &[Entry<'_>], section: &mut Section<'_>) {
    let entry_of = |key: &str| entries.iter().find(|entry| entry.name == key);
    match error {
        SettingsError::UnknownKey { key, known, .. } => match entry_of(key) {
            Some(entry) => {
                let known: Vec<_> = known
                    .iter()
                    .copied()
                    .filter(|key| *key != TIMEOUT_MS)
                    .collect();
                section.refuse_unknown(entry.offset, entry.name, &known);
            }
            None => section.refuse_whole(format!("the adapter takes no {}", written(key))),
        },
        SettingsError::Invalid { key, reason, .. } => {
            // A path such as `headers.accept` or `command[0]`: the entry is its first part.
            let root = key.split(['.', '[']).next().unwrap_or(key);
            match entry_of(root) {
                Some(entry) => section.refuse(entry.value.span().start, key, reason),
                None => section.refuse_whole(format!("{}: {reason}", written(key))),
            }
        }
        other => section.refuse_whole(other.to_string()),
    }
}

/// An adapter's key as the file spells it.
fn written(key: &str) -> &str {
    if key == TIMEOUT_MS { "timeout" } else { key }
}
