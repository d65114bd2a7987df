//! What needs somebody, the most urgent first: one sentence of what is wrong, one of what to do.

use std::time::Duration;

use lanekeeper_postgres::inspect::{Delivery, DeliveryState, SubscriptionStatus};
use maud::{Markup, html};

use super::{Overview, weight};
use crate::form::query;
use crate::part::badge::Tone;
use crate::part::{format, link};

/// Something that needs somebody.
#[derive(Debug)]
pub(super) struct Concern {
    tone: Tone,
    what: String,
    why: Option<String>,
    /// What to do: a page and its name.
    to: Option<(String, &'static str)>,
}

/// All of them, the most urgent first.
pub(super) fn concerns(overview: &Overview, frozen_after: Duration) -> Vec<Concern> {
    let mut found = Vec::new();
    if overview.live == 0 {
        found.push(Concern {
            tone: Tone::Bad,
            what: "No worker runs".to_owned(),
            why: Some("Nothing is delivered. Events are stored, and wait.".to_owned()),
            to: Some(("/workers".to_owned(), "Workers")),
        });
    }
    for lock in &overview.foreign_locks {
        found.push(Concern {
            tone: Tone::Bad,
            what: format!("A session of Postgres holds locks of ours: {lock}"),
            why: Some("Events may wait for it. `lanekeeper doctor` says how to end it.".to_owned()),
            to: None,
        });
    }
    for (status, delivery) in &overview.subscriptions {
        found.extend(of_subscription(status, delivery, overview.live > 0));
    }
    for worker in &overview.workers {
        if worker.silent_s > frozen_after.as_secs_f64() {
            found.push(Concern {
                tone: Tone::Warn,
                what: format!("Worker {} on {} is silent", worker.worker_id, worker.host),
                why: Some(format!(
                    "Its last heartbeat was {} ago.",
                    format::span(worker.silent_s)
                )),
                to: Some(("/workers".to_owned(), "Workers")),
            });
        }
    }
    // Stable: what comes first by name stays first among equals.
    found.sort_by_key(|concern| match concern.tone {
        Tone::Bad => 0,
        Tone::Warn => 1,
        _ => 2,
    });
    found
}

fn of_subscription(
    status: &SubscriptionStatus,
    delivery: &Delivery,
    has_worker: bool,
) -> Vec<Concern> {
    let name = &status.subscription;
    let page = link::subscription(name);
    let mut found = Vec::new();
    let waiting = match status.behind {
        0 => "Nothing waits for it.".to_owned(),
        behind => format!(
            "{} {} for it.",
            format::plural(behind, "event", "events"),
            if behind == 1 { "waits" } else { "wait" }
        ),
    };
    let reason = delivery.reason.as_deref().map(|it| format::short(it, 200));
    match delivery.state {
        DeliveryState::Refused => found.push(Concern {
            tone: Tone::Bad,
            what: format!("No worker can make the destination of {name}"),
            why: reason,
            to: Some((page, "Read why")),
        }),
        DeliveryState::CircuitOpen => found.push(Concern {
            tone: Tone::Bad,
            what: format!("The destination of {name} fails; it is only probed"),
            why: Some(match reason {
                Some(reason) => format!("{}. {waiting}", reason.trim_end_matches('.')),
                None => waiting,
            }),
            to: Some((page, "Read why")),
        }),
        DeliveryState::Paused => found.push(Concern {
            tone: Tone::Calm,
            what: format!("{name} is paused"),
            why: Some(match &status.pause_reason {
                Some(reason) => format!("{}. {waiting}", format::short(reason, 200)),
                None => waiting,
            }),
            to: Some((page, "Resume")),
        }),
        DeliveryState::Unreported if has_worker => found.push(Concern {
            tone: Tone::Warn,
            what: format!("No worker has said whether it delivers {name}"),
            why: reason,
            to: Some((page, "See its workers")),
        }),
        DeliveryState::Delivering if delivery.is_held_up() => found.push(Concern {
            tone: Tone::Warn,
            what: format!("Some workers do not deliver {name}"),
            why: reason,
            to: Some((page, "Read why")),
        }),
        _ => {}
    }
    let of_name = query([("subscription", name.as_str())]);
    if status.lanes.parked > 0 {
        found.push(Concern {
            tone: Tone::Bad,
            what: format!(
                "{} to {name} {} parked",
                format::plural(status.lanes.parked, "session", "sessions"),
                if status.lanes.parked == 1 {
                    "is"
                } else {
                    "are"
                }
            ),
            why: Some(match status.lanes.parked {
                1 => "It waits until somebody unparks it or skips its head.".to_owned(),
                _ => "They wait until somebody unparks them or skips their heads.".to_owned(),
            }),
            to: Some((format!("/lanes?{of_name}"), "Show them")),
        });
    }
    if status.lanes.blocked > 0 {
        found.push(Concern {
            tone: Tone::Warn,
            what: format!(
                "{} to {name} {} blocked by a failing event",
                format::plural(status.lanes.blocked, "session", "sessions"),
                if status.lanes.blocked == 1 {
                    "is"
                } else {
                    "are"
                }
            ),
            why: Some(match status.lanes.blocked {
                1 => "It is tried again by itself; nothing else is held up.".to_owned(),
                _ => "Each is tried again by itself; nothing else is held up.".to_owned(),
            }),
            to: Some((format!("/lanes?{of_name}"), "Show them")),
        });
    }
    if status.dead_letters > 0 {
        found.push(Concern {
            tone: Tone::Warn,
            what: format!(
                "{}{} of {name} {} for a decision",
                format::plural(status.dead_letters, "dead letter", "dead letters"),
                if status.dead_letters_partial {
                    " or more"
                } else {
                    ""
                },
                if status.dead_letters == 1 {
                    "waits"
                } else {
                    "wait"
                }
            ),
            why: Some("Requeue them when the destination is back, or drop them.".to_owned()),
            to: Some((format!("/dead?{of_name}"), "Decide")),
        });
    }
    found
}

/// The headline, and the list.
pub(super) fn shown(overview: &Overview, concerns: &[Concern]) -> Markup {
    let now = concerns.iter().filter(|it| it.tone == Tone::Bad).count();
    let soon = concerns.iter().filter(|it| it.tone == Tone::Warn).count();
    let (tone, headline) = match (now, soon) {
        (0, 0) => ("good", "Nothing needs you".to_owned()),
        (0, soon) => (
            "warn",
            format::plural(soon as i64, "thing to look at", "things to look at"),
        ),
        (now, _) => (
            "bad",
            format!(
                "{} somebody now",
                match now {
                    1 => "1 thing needs".to_owned(),
                    _ => format!("{now} things need"),
                }
            ),
        ),
    };
    html! {
        div.headline data-tone=(tone) {
            h1 #headline { (headline) }
            p.muted { (sum(overview)) }
        }
        @if !concerns.is_empty() {
            ol.concerns {
                @for concern in concerns {
                    li {
                        (weight(concern.tone))
                        div {
                            strong { (concern.what) }
                            @if let Some(why) = &concern.why { p { (why) } }
                        }
                        @if let Some((path, name)) = &concern.to { a.button href=(path) { (name) } }
                    }
                }
            }
        }
    }
}

/// The state of everything in one line.
fn sum(overview: &Overview) -> String {
    let statuses = || overview.subscriptions.iter().map(|(status, _)| status);
    let is_partial = statuses().any(|it| it.partial);
    let behind: i64 = statuses().map(|it| it.behind).sum();
    let oldest = statuses().filter_map(|it| it.oldest_undelivered_age_s);
    let oldest = oldest.fold(None, |oldest: Option<f64>, age| {
        Some(oldest.unwrap_or(0.0).max(age))
    });
    let workers = format::plural(overview.live as i64, "worker", "workers");
    match (behind, oldest) {
        (0, _) | (_, None) => format!("{workers}, every event is delivered"),
        (behind, Some(oldest)) => format!(
            "{workers}, {} behind, the oldest of them {}",
            match is_partial {
                true => format!("{} events", format::count(behind, true)),
                false => format::plural(behind, "event", "events"),
            },
            format::span(oldest)
        ),
    }
}
