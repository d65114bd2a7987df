//! What subscriptions share and have to agree on: limits of one key, and the rates of one bot. Else whoever
//! asked last would decide for all.

use std::collections::BTreeMap;
use std::sync::Arc;

use lanekeeper_adapters::{PlatformRate, platform_rates};
use lanekeeper_core::bucket::Bucket;
use lanekeeper_core::subscription::{ChangeKind, Current, Definition, Plan, Problem};

use super::file::SubscriptionFile;

/// What is shared, and who named it first.
#[derive(Default)]
struct Agreed<'a> {
    buckets: BTreeMap<Arc<str>, (Bucket, &'a str)>,
    rates: Vec<(PlatformRate, &'a str)>,
}

impl<'a> Agreed<'a> {
    /// Enters what a subscription shares; the settings that say something else than those before, and why.
    fn enter(&mut self, name: &'a str, definition: &Definition) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        for bucket in definition.buckets() {
            let key = Arc::clone(&bucket.key);
            let (first, whose) = self.buckets.entry(key).or_insert((bucket.clone(), name));
            if *first != bucket {
                let reason = format!(
                    "{whose:?} has the same limit {:?} with rate {} and burst {}: they share it, so write the \
                     same in both, or give one a key of its own",
                    bucket.key, first.rate, first.burst
                );
                problems.push(("limit", reason));
            }
        }
        for rate in platform_rates(&definition.adapter, &definition.settings) {
            let mut others = self.rates.iter();
            match others.find(|(other, _)| other.contradicts(&rate)) {
                Some((other, whose)) => {
                    let reason = format!(
                        "{whose:?} sends with the secret of {} too, and its rate {:?} is {} and not {}: the platform \
                         counts both together, so write the same in both",
                        rate.secret_env, rate.name, other.rate, rate.rate
                    );
                    problems.push(("rates", reason));
                }
                None => self.rates.push((rate, name)),
            }
        }
        problems
    }
}

/// What the file's subscriptions say that contradicts others, in it or in force.
pub(super) fn contradictions(
    plan: &Plan,
    current: &Current,
    file: &SubscriptionFile,
) -> Vec<Problem> {
    let listed = |name: &str| file.subscriptions.iter().find(|one| one.name == name);
    let steps = &plan.subscriptions;
    let leaves = |name: &str| {
        let mut steps = steps.iter();
        steps.any(|step| step.name == name && step.kind == ChangeKind::Removed)
    };
    let mut agreed = Agreed::default();
    for (name, other) in &current.live {
        if listed(name).is_none() && !leaves(name) {
            // These are in force, and nobody asks for them now.
            agreed.enter(name, &other.definition);
        }
    }
    let mut problems = Vec::new();
    for step in steps.iter().filter(|step| step.kind != ChangeKind::Removed) {
        let Some(section) = listed(&step.name) else {
            continue;
        };
        let found = agreed.enter(&step.name, &step.definition);
        problems.extend(found.into_iter().map(|(key, reason)| Problem {
            position: section.position,
            key: format!("subscription.{}.{key}", step.name),
            reason,
        }));
    }
    problems
}
