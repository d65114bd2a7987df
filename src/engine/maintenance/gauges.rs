//! What is read off a worker when somebody asks for its metrics.
//!
//! The callbacks stay with the process's meter provider, so they hold the worker weakly.

use std::sync::{Arc, Weak};

use lanekeeper_limit::Passage;
use lanekeeper_postgres::inspect::SubscriptionStatus;
use lanekeeper_telemetry::instruments::of_subscription;
use lanekeeper_telemetry::names::{self, Name, key};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use crate::shared::Shared;

/// Registers the gauges of one worker.
pub fn register(meter: &Meter, shared: &Arc<Shared>) {
    let gauge = |name, read: fn(&Shared, &dyn AsyncInstrument<f64>)| {
        observe(meter, name, Arc::downgrade(shared), read);
    };
    gauge(names::HELD, |shared, to| {
        to.observe(count(shared.claiming.held()), &[])
    });
    gauge(names::MAX_HELD, |shared, to| {
        to.observe(count(shared.claiming.max_lanes()), &[]);
    });
    gauge(names::PREFETCHED, |shared, to| {
        to.observe(count(shared.delivering.budget.used()), &[]);
    });
    gauge(names::SILENT, |shared, to| {
        if let Some(silent) = shared.maintenance.health.since_answered() {
            to.observe(silent.as_secs_f64(), &[]);
        }
    });
    gauge(names::WORKERS, |shared, to| {
        to.observe(f64::from(shared.delivering.limiter.replicas()), &[]);
    });
    gauge(names::LIMIT_SHARED, |shared, to| {
        to.observe(flag(shared.delivering.limiter.view().shared), &[]);
    });
    gauge(names::BREAKER_OPEN, |shared, to| {
        for route in shared.claiming.routes().iter() {
            let shut = shared.delivering.limiter.passage(&route.destination_name) != Passage::Free;
            let subscription = &route.subscription;
            let attributes = of_subscription(&subscription.stream, &subscription.name);
            to.observe(flag(shut), &attributes);
        }
    });
    gauge(names::LAG_EVENTS, |shared, to| {
        each(shared, to, |seen| Some(wide(seen.behind)));
    });
    gauge(names::LAG_AGE, |shared, to| {
        each(shared, to, |seen| {
            Some(seen.oldest_undelivered_age_s.unwrap_or(0.0))
        });
    });
    gauge(names::DEAD_LETTERS, |shared, to| {
        each(shared, to, |seen| Some(wide(seen.dead_letters)));
    });
    gauge(names::PAUSED, |shared, to| {
        each(shared, to, |seen| Some(flag(seen.paused_at.is_some())));
    });
    gauge(names::REPLAY_LEFT, |shared, to| {
        shared.maintenance.statistics.with_replays(|replay| {
            let [stream, subscription] = of_subscription(&replay.stream, &replay.subscription);
            let id = KeyValue::new(key::REPLAY, replay.replay_id);
            to.observe(wide(replay.left()), &[stream, subscription, id]);
        });
    });
    gauge(names::STALLED, |shared, to| {
        shared.maintenance.statistics.with_stalled(|seen, stalled| {
            to.observe(
                flag(stalled),
                &of_subscription(&seen.stream, &seen.subscription),
            );
        });
    });
    gauge(names::STANDING, |shared, to| {
        to.observe(
            flag(shared.maintenance.health.standing_for().is_some()),
            &[],
        );
    });
    gauge(names::MESSAGES, messages);
    gauge(names::LANES, lanes);
}

fn lanes(shared: &Shared, to: &dyn AsyncInstrument<f64>) {
    shared.maintenance.statistics.with(|seen| {
        let lanes = &seen.lanes;
        for (state, lanes) in [
            ("idle", lanes.idle),
            ("ready", lanes.ready),
            ("held", lanes.held),
            ("blocked", lanes.blocked),
            ("sent", lanes.sent),
            ("parked", lanes.parked),
        ] {
            let [stream, subscription] = of_subscription(&seen.stream, &seen.subscription);
            let state = KeyValue::new(key::STATE, state);
            to.observe(wide(lanes), &[stream, subscription, state]);
        }
    });
}

fn messages(shared: &Shared, to: &dyn AsyncInstrument<f64>) {
    shared.maintenance.statistics.with(|seen| {
        let so_far = &seen.messages;
        for (state, messages) in [
            ("pending", seen.behind),
            // A lane has one event at its destination at a time.
            ("sending", seen.lanes.held),
            ("sent", so_far.sent),
            ("acked", so_far.acked),
            ("retried", so_far.retried),
            ("failed", so_far.failed),
            ("expired", so_far.expired),
            ("dropped", so_far.dropped),
        ] {
            let [stream, subscription] = of_subscription(&seen.stream, &seen.subscription);
            let state = KeyValue::new(key::STATE, state);
            to.observe(wide(messages), &[stream, subscription, state]);
        }
    });
}

fn each(
    shared: &Shared,
    to: &dyn AsyncInstrument<f64>,
    read: impl Fn(&SubscriptionStatus) -> Option<f64>,
) {
    shared.maintenance.statistics.with(|seen| {
        if let Some(value) = read(seen) {
            to.observe(value, &of_subscription(&seen.stream, &seen.subscription));
        }
    });
}

fn observe(
    meter: &Meter,
    name: Name,
    shared: Weak<Shared>,
    read: impl Fn(&Shared, &dyn AsyncInstrument<f64>) + Send + Sync + 'static,
) {
    meter
        .f64_observable_gauge(name.name)
        .with_unit(name.unit)
        .with_description(name.says)
        .with_callback(move |to| {
            if let Some(shared) = shared.upgrade() {
                read(&shared, to);
            }
        })
        .build();
}

fn count(number: usize) -> f64 {
    number as f64
}

fn wide(number: i64) -> f64 {
    number as f64
}

fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}
