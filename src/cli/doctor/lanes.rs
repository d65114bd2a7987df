//! Lanes that are blocked, because their head fails or waits for an operator; and dead letters.

use std::collections::BTreeMap;

use lanekeeper_postgres::inspect::{LaneStatus, SubscriptionStatus};

use super::check::Check;
use crate::output;

/// Lanes whose head failed, by subscription. `lanes`: those that have something to do, as far as they were looked at.
pub(super) fn failing(lanes: &[LaneStatus]) -> Vec<Check> {
    const NAME: &str = "failing lanes";
    let mut failing: BTreeMap<&str, Vec<&LaneStatus>> = BTreeMap::new();
    for lane in lanes {
        if lane.attempts > 0 && lane.parked_at.is_none() && lane.state != "paused" {
            failing.entry(&lane.subscription).or_default().push(lane);
        }
    }
    if failing.is_empty() {
        return vec![Check::ok(NAME, "none")];
    }
    failing
        .into_iter()
        .map(|(subscription, lanes)| {
            let attempts = lanes.iter().map(|lane| lane.attempts).max().unwrap_or(0);
            let ages = lanes.iter().filter_map(|lane| lane.head_age_s);
            let oldest = ages.fold(0.0, f64::max);
            let error = lanes.iter().find_map(|lane| lane.last_error.as_deref());
            let count = lanes.len();
            Check::warn(
                NAME,
                format!(
                    "{subscription}: {count} fail, after up to {attempts} attempts, the oldest event is {} old: {}",
                    output::age(oldest),
                    error.unwrap_or("no error is recorded"),
                ),
                format!(
                    "see whether the destination is up, and `lanekeeper lane list --blocked --subscription {subscription}`"
                ),
            )
        })
        .collect()
}

/// Lanes that wait for an operator.
pub(super) fn parked(subscriptions: &[SubscriptionStatus]) -> Vec<Check> {
    const NAME: &str = "parked lanes";
    each(NAME, subscriptions, |it| {
        let more = if it.partial { "+" } else { "" };
        (it.lanes.parked > 0).then(|| {
            Check::warn(
                NAME,
                format!("{}: {}{more} wait for an operator", it.subscription, it.lanes.parked),
                format!(
                    "`lanekeeper lane list --blocked --subscription {}`, then `lane unpark` or `lane skip`",
                    it.subscription
                ),
            )
        })
    })
}

/// Dead letters that wait for an operator.
pub(super) fn dead_letters(subscriptions: &[SubscriptionStatus]) -> Vec<Check> {
    const NAME: &str = "dead letters";
    each(NAME, subscriptions, |it| {
        (it.dead_letters > 0).then(|| {
            Check::warn(
                NAME,
                format!(
                    "{}: {} wait for an operator",
                    it.subscription,
                    it.dead_letters_text()
                ),
                format!(
                    "`lanekeeper dead list --subscription {}`, then `dead requeue` or `dead drop`",
                    it.subscription
                ),
            )
        })
    })
}

fn each(
    name: &'static str,
    subscriptions: &[SubscriptionStatus],
    judge: impl Fn(&SubscriptionStatus) -> Option<Check>,
) -> Vec<Check> {
    let found: Vec<Check> = subscriptions.iter().filter_map(judge).collect();
    match found.is_empty() {
        true => vec![Check::ok(name, "none")],
        false => found,
    }
}
