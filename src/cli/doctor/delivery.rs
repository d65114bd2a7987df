//! The log's partitions, the workers' heartbeats, and the subscriptions' settings.

use std::time::Duration;

use lanekeeper_adapters as adapter;
use lanekeeper_config::WorkerConfig;
use lanekeeper_core::error::chain;
use lanekeeper_core::subscription::built_in::is_built_in;
use lanekeeper_core::subscription::limit;
use lanekeeper_postgres::inspect::{ForeignLock, SubscriptionSummary, WorkerStatus};

use super::check::{Check, Status};
use crate::output;

/// An append makes a partition that it lacks: nothing is lost without one, but the first event of
/// the day waits for it.
pub(super) fn partitions(today: bool) -> Check {
    if today {
        return Check::ok("partitions", "today's is there");
    }
    Check::warn(
        "partitions",
        "today's is missing",
        "a running worker makes them ahead: see whether one runs and what it logs",
    )
}

/// Days that wait for a file, where there is an archive. A round comes every ten minutes: one may just have
/// come of age.
pub(super) fn archive(waiting: i64) -> Check {
    const NAME: &str = "archive";
    if waiting <= 1 {
        return Check::ok(NAME, format!("{waiting} days past retention wait for it"));
    }
    Check::warn(
        NAME,
        format!("{waiting} days past retention wait for it, and stay in Postgres"),
        "see what the workers log about the folder of retention.archive_dir; a day that a lane still needs waits for that lane: `lanekeeper status`",
    )
}

pub(super) fn workers(workers: &[WorkerStatus], config: &WorkerConfig) -> Check {
    const NAME: &str = "workers";
    let frozen_after = Duration::from_millis(config.frozen_after_ms).as_secs_f64();
    // One may come late.
    let late_after = Duration::from_millis(config.heartbeat_ms).as_secs_f64() * 2.5;
    let silent_for = |limit: f64| {
        let silent = workers.iter().filter(move |worker| worker.silent_s > limit);
        let named: Vec<String> = silent
            .map(|worker| {
                let silent = output::age(worker.silent_s);
                format!(
                    "{} on {} silent for {silent}",
                    worker.worker_id, worker.host
                )
            })
            .collect();
        named.join(", ")
    };
    if workers.is_empty() {
        return Check::warn(
            NAME,
            "none is running",
            "events wait until one does: start `lanekeeper worker`",
        );
    }
    let (frozen, late) = (silent_for(frozen_after), silent_for(late_after));
    if !frozen.is_empty() {
        Check::fail(
            NAME,
            frozen,
            "its peers end its connections and take its lanes over: restart it, and see why it is stuck",
        )
    } else if !late.is_empty() {
        Check::warn(
            NAME,
            late,
            "see whether it is overloaded or cut off from the server",
        )
    } else {
        let held: i64 = workers.iter().map(|worker| worker.held_lanes).sum();
        Check::ok(
            NAME,
            format!("{} running, {held} lanes held", workers.len()),
        )
    }
}

/// A foreign backend that holds a lane's lock blocks that lane.
pub(super) fn foreign_locks(found: &[ForeignLock]) -> Check {
    const NAME: &str = "locks";
    if found.is_empty() {
        return Check::ok(
            NAME,
            "nobody but workers and producers holds locks of Lanekeeper's",
        );
    }
    let named: Vec<String> = found.iter().map(ToString::to_string).collect();
    let advice = "events may wait for it: end it with pg_terminate_backend(pid), and see who lets that role connect";
    match found.iter().any(|one| one.blocks || one.held > 0) {
        true => Check::fail(NAME, named.join("; "), advice),
        false => Check::warn(NAME, named.join("; "), advice),
    }
}

/// Subscriptions that have a limit.
pub(super) fn limited(subscriptions: &[SubscriptionSummary]) -> usize {
    let limited = |one: &&SubscriptionSummary| one.settings.get(limit::LIMIT).is_some();
    subscriptions.iter().filter(limited).count()
}

/// Whether the settings can be used: one check for all that are well, one for each that is not. What the workers make of
/// them is another check.
pub(super) fn subscriptions(subscriptions: &[SubscriptionSummary]) -> Vec<Check> {
    const NAME: &str = "subscriptions";
    const APPLY: &str = "events are recorded and delivered nowhere: `lanekeeper apply` adds some";
    if subscriptions.is_empty() {
        return vec![Check::warn(NAME, "there is none", APPLY)];
    }
    let mut checks: Vec<Check> = subscriptions.iter().map(subscription).collect();
    let all = checks.len();
    checks.retain(|check| check.status != Status::Ok);
    if subscriptions.iter().all(|it| is_built_in(&it.adapter)) {
        let found = "there is none but the built-in agent registry";
        checks.insert(0, Check::warn(NAME, found, APPLY));
    } else if checks.len() < all {
        let well = all - checks.len();
        checks.insert(
            0,
            Check::ok(NAME, format!("the settings of {well} of {all} are sound")),
        );
    }
    checks
}

fn subscription(subscription: &SubscriptionSummary) -> Check {
    const NAME: &str = "subscription";
    let name = &subscription.subscription;
    let settings = match limit::split(subscription.settings.clone()) {
        Ok((_, settings)) => settings,
        Err(error) => {
            return Check::fail(
                NAME,
                format!("{name}: its limit cannot be read: {error}"),
                "apply its file again with this release; its events wait",
            );
        }
    };
    if !is_built_in(&subscription.adapter)
        && let Err(error) = adapter::check(&subscription.adapter, &settings)
    {
        return Check::fail(
            NAME,
            format!("{name}: {}", chain(&error)),
            "correct the file and apply it again; its events wait",
        );
    }
    match (subscription.paused_at, &subscription.pause_reason) {
        (Some(at), reason) => Check::warn(
            NAME,
            format!(
                "{name}: paused since {} ({})",
                output::time(at),
                reason.as_deref().unwrap_or("no reason given")
            ),
            format!("go on with `lanekeeper subscription resume {name}`"),
        ),
        (None, _) => Check::ok(NAME, name.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn worker(silent_s: f64) -> WorkerStatus {
        WorkerStatus {
            worker_id: 7,
            host: "host".to_owned(),
            pid: 1,
            release: "0".to_owned(),
            state: "running".to_owned(),
            started_at: Timestamp::UNIX_EPOCH,
            beat_at: Timestamp::UNIX_EPOCH,
            silent_s,
            lane_connections: 2,
            held_lanes: 3,
        }
    }

    fn webhook(settings: Value) -> SubscriptionSummary {
        SubscriptionSummary {
            subscription_id: 1,
            subscription: "audit".to_owned(),
            stream: "hooks".to_owned(),
            adapter: "webhook".to_owned(),
            version: 1,
            events: None,
            settings,
            paused_at: None,
            pause_reason: None,
        }
    }

    #[test]
    fn days_that_pile_up_before_the_archive_are_told() {
        let of = |waiting| archive(waiting).status;
        assert_eq!(
            [of(0), of(1), of(2)],
            [Status::Ok, Status::Ok, Status::Warn]
        );
    }

    #[test]
    fn silence_is_judged_by_the_configured_heartbeat() {
        let config = WorkerConfig::default();
        let of = |silent_s| workers(&[worker(1.0), worker(silent_s)], &config).status;
        assert_eq!(
            [of(6.0), of(20.0), of(31.0)],
            [Status::Ok, Status::Warn, Status::Fail]
        );
        assert_eq!(workers(&[], &config).status, Status::Warn);
    }

    #[test]
    fn a_subscription_is_well_where_its_settings_can_be_used() {
        let url = "https://example.com";
        let mut paused = webhook(json!({"url": url}));
        paused.paused_at = Some(Timestamp::UNIX_EPOCH);
        for (subscription, status) in [
            // Whether the workers have the secret is not for this process to say.
            (
                webhook(json!({"url": url, "secret_env": "UNSET"})),
                Status::Ok,
            ),
            (webhook(json!({"url": 5})), Status::Fail),
            (paused, Status::Warn),
        ] {
            let checks = subscriptions(&[subscription]);
            assert_eq!(checks.len(), 1);
            assert_eq!(checks[0].status, status, "{checks:?}");
        }
    }

    #[test]
    fn the_agent_registry_alone_is_no_subscription_of_anybody() {
        let mut registry = webhook(json!({}));
        registry.adapter = "registry".to_owned();
        let alone = subscriptions(std::slice::from_ref(&registry));
        assert_eq!((alone.len(), alone[0].status), (1, Status::Warn));
        let beside = subscriptions(&[registry, webhook(json!({"url": "https://example.com"}))]);
        assert_eq!((beside.len(), beside[0].status), (1, Status::Ok));
    }
}
