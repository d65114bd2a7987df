//! The events of a subscription that a program delivers which embeds Lanekeeper, to code of its own: its handlers and
//! adapters. No adapter: the program's `DestinationSource` chooses by the subscription's name. `lanekeeper worker` refuses
//! it, and the events wait for the program.

use serde::Deserialize;
use serde_json::Value;

use super::{SettingsError, settings};

/// What a subscription's `adapter` names.
pub const KIND: &str = "embedded";

/// What the program needs to know is the program's own: a key that nobody reads would be a mistake that nobody notices.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {}

pub(super) fn check(given: &Value) -> Result<(), SettingsError> {
    settings::parse::<Given>(KIND, given).map(drop)
}
