//! `timeout`, `batch` and `poll_floor` of `[stream.NAME]`: what holds for subscriptions that say nothing of their own.

use std::time::Duration;

use lanekeeper_core::subscription::{DeliveryDefaults, duration};
use toml::de::DeValue;

use super::section::Section;
use super::value;

/// What a file says. `None`: nothing; `Some(None)`, which is written `false`: the stream says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliverySection {
    pub timeout: Option<Option<Duration>>,
    pub batch: Option<Option<u32>>,
    pub poll_floor: Option<Option<Duration>>,
}

pub(super) fn take(section: &mut Section<'_>) -> DeliverySection {
    DeliverySection {
        timeout: section.take("timeout", |value| unless_false(value, timeout)),
        batch: section.take("batch", |value| {
            unless_false(value, value::whole(1..=DeliveryDefaults::LARGEST_BATCH))
        }),
        poll_floor: section.take("poll_floor", |value| unless_false(value, poll_floor)),
    }
}

impl DeliverySection {
    /// What holds from now on.
    pub(super) fn over(self, before: DeliveryDefaults) -> DeliveryDefaults {
        DeliveryDefaults {
            timeout: self.timeout.unwrap_or(before.timeout),
            batch: self.batch.unwrap_or(before.batch),
            poll_floor: self.poll_floor.unwrap_or(before.poll_floor),
        }
    }
}

fn unless_false<T>(
    value: &DeValue<'_>,
    read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
) -> Result<Option<T>, String> {
    match value {
        DeValue::Boolean(false) => Ok(None),
        DeValue::Boolean(true) => {
            Err("must be a value, or false for a stream that says nothing".to_owned())
        }
        value => read(value).map(Some),
    }
}

fn timeout(value: &DeValue<'_>) -> Result<Duration, String> {
    up_to(value, DeliveryDefaults::LONGEST_TIMEOUT)
}

fn poll_floor(value: &DeValue<'_>) -> Result<Duration, String> {
    let shortest = DeliveryDefaults::SHORTEST_POLL_FLOOR;
    let floor = up_to(value, DeliveryDefaults::LONGEST_POLL_FLOOR)?;
    match floor < shortest {
        true => Err(format!(
            "must be at least {}: each connection of an idle worker asks Postgres so often",
            duration::written(shortest)
        )),
        false => Ok(floor),
    }
}

fn up_to(value: &DeValue<'_>, longest: Duration) -> Result<Duration, String> {
    match value {
        DeValue::String(text) => duration::parse_up_to(text, longest),
        other => value::duration(other),
    }
}

#[cfg(test)]
mod tests;
