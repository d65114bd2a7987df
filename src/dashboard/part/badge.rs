//! States in a word and a colour; the word alone says it too.

use lanekeeper_postgres::inspect::DeliveryState;
use maud::{Markup, html};

/// How much a state concerns an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Busy,
    Calm,
    Warn,
    Bad,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Good => "badge good",
            Self::Busy => "badge busy",
            Self::Calm => "badge calm",
            Self::Warn => "badge warn",
            Self::Bad => "badge bad",
        }
    }
}

pub(crate) fn badge(tone: Tone, word: &str) -> Markup {
    html! { span class=(tone.class()) { (word) } }
}

/// Of a lane.
pub(crate) fn lane(state: &str) -> Markup {
    let tone = match state {
        "parked" => Tone::Bad,
        "blocked" => Tone::Warn,
        "held" | "ready" | "sent" => Tone::Busy,
        "idle" => Tone::Good,
        _ => Tone::Calm,
    };
    badge(tone, state)
}

/// Of a subscription.
pub(crate) fn delivery(state: DeliveryState) -> Markup {
    let (tone, word) = match state {
        DeliveryState::Delivering => (Tone::Good, "delivering"),
        DeliveryState::Paused => (Tone::Warn, "paused"),
        DeliveryState::CircuitOpen => (Tone::Bad, "circuit open"),
        DeliveryState::Refused => (Tone::Bad, "refused"),
        DeliveryState::Unreported => (Tone::Calm, "not reported"),
        DeliveryState::NoWorker => (Tone::Bad, "no worker"),
    };
    badge(tone, word)
}

/// What became of an event at a destination.
pub(crate) fn fate(state: &str) -> (Tone, &'static str) {
    match state {
        "delivered" | "acked" => (Tone::Good, "✓"),
        "sending" | "sent" => (Tone::Busy, "→"),
        "retrying" => (Tone::Warn, "↻"),
        "parked" => (Tone::Bad, "‖"),
        "failed" => (Tone::Bad, "✕"),
        "requeued" => (Tone::Busy, "↺"),
        "skipped" | "dropped" | "expired" | "cancelled" | "superseded" => (Tone::Warn, "⇥"),
        "coalesced" => (Tone::Calm, "≡"),
        "filtered" | "unsubscribed" => (Tone::Calm, "–"),
        _ => (Tone::Calm, "·"),
    }
}
