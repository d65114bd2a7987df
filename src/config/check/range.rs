//! The range of every number.

use super::Check;
use crate::Config;

const DAY_MS: u64 = 86_400_000;
const MEBIBYTE: u64 = 1024 * 1024;

pub(super) fn check(check: &mut Check<'_>) {
    let Config {
        database,
        redis,
        worker,
        retention,
        http,
        live,
        durable_streams,
        dashboard,
        hook,
        spool,
        ..
    } = check.config;
    let connections = "PostgreSQL serves a limited number of connections";
    let memory = "it bounds the memory of the process";
    let records = "a record that is forgotten at once tells nobody anything";
    for (key, value, allowed, why) in [
        (
            "database.pool_size",
            database.pool_size as u64,
            1..=1_000,
            connections,
        ),
        (
            "database.connect_timeout_ms",
            database.connect_timeout_ms,
            1..=DAY_MS,
            "it is a wait",
        ),
        (
            "redis.timeout_ms",
            redis.timeout_ms,
            10..=10_000,
            "a round trip takes its time, and a lane waits that long",
        ),
        (
            "worker.lane_connections",
            worker.lane_connections as u64,
            1..=100,
            connections,
        ),
        (
            "worker.max_lanes",
            worker.max_lanes as u64,
            0..=1_000_000,
            "each lane takes an entry of the server's lock table",
        ),
        (
            "worker.prefetch_bytes",
            worker.prefetch_bytes as u64,
            MEBIBYTE..=1 << 40,
            memory,
        ),
        (
            "http.max_connections",
            http.max_connections as u64,
            32..=100_000,
            "the last 16 are for probes and metrics, and each is an open file",
        ),
        (
            "http.read_timeout_ms",
            http.read_timeout_ms,
            100..=DAY_MS,
            "clients need a moment, and those that never send would stay",
        ),
        (
            "live.max_followers",
            live.max_followers as u64,
            0..=1_000_000,
            "each is an open file",
        ),
        (
            "live.buffer_bytes",
            live.buffer_bytes as u64,
            MEBIBYTE..=1 << 40,
            memory,
        ),
        (
            "live.heartbeat_ms",
            live.heartbeat_ms,
            100..=3_600_000,
            "proxies close what is silent, and each heartbeat is sent to every follower",
        ),
        (
            "live.max_lag_events",
            live.max_lag_events,
            100..=1 << 40,
            "events come in batches",
        ),
        (
            "durable_streams.long_poll_ms",
            durable_streams.long_poll_ms,
            100..=300_000,
            "a wait of no time asks without pause, and proxies close what is silent",
        ),
        (
            "durable_streams.sse_ms",
            durable_streams.sse_ms,
            1_000..=DAY_MS,
            "each end makes a client come again",
        ),
        (
            "dashboard.sign_in_hours",
            u64::from(dashboard.sign_in_hours),
            1..=8_760,
            "whoever finds the browser open may act for as long",
        ),
        ("worker.batch", worker.batch as u64, 1..=10_000, memory),
        (
            "worker.poll_floor_ms",
            worker.poll_floor_ms,
            1..=60_000,
            "0 would ask without pause, and more leaves work lying when notifications fail",
        ),
        (
            "worker.heartbeat_ms",
            worker.heartbeat_ms,
            100..=DAY_MS,
            "each heartbeat is written",
        ),
        (
            "worker.trust_ms",
            worker.trust_ms,
            100..=DAY_MS,
            "a round trip takes its time",
        ),
        (
            "worker.stalled_after_ms",
            worker.stalled_after_ms,
            1_000..=DAY_MS,
            "it is looked at every ten seconds",
        ),
        (
            "worker.mark_after_ms",
            worker.mark_after_ms,
            1..=DAY_MS,
            "every mark is written",
        ),
        (
            "worker.shutdown_grace_ms",
            worker.shutdown_grace_ms,
            0..=DAY_MS,
            "it is a wait",
        ),
        (
            "worker.max_crashes",
            u64::from(worker.max_crashes),
            1..=1_000,
            "an event must be tried once, and must not take down workers for ever",
        ),
        (
            "worker.breaker_lanes",
            worker.breaker_lanes as u64,
            0..=10_000,
            "each of them fails first",
        ),
        (
            "worker.breaker_open_ms",
            worker.breaker_open_ms,
            100..=DAY_MS,
            "it is the time between two probes",
        ),
        (
            "retention.days",
            u64::from(retention.days),
            1..=36_500,
            "partitions are whole days",
        ),
        (
            "retention.dedupe_days",
            u64::from(retention.dedupe_days),
            1..=36_500,
            "a key that is forgotten at once recognises nothing",
        ),
        (
            "retention.outcome_days",
            u64::from(retention.outcome_days),
            1..=36_500,
            records,
        ),
        (
            "retention.history_days",
            u64::from(retention.history_days),
            1..=36_500,
            records,
        ),
        (
            "retention.document_days",
            u64::from(retention.document_days),
            1..=36_500,
            records,
        ),
        (
            "retention.dead_letter_days",
            u64::from(retention.dead_letter_days),
            1..=36_500,
            records,
        ),
        (
            "retention.operation_days",
            u64::from(retention.operation_days),
            1..=36_500,
            records,
        ),
        (
            "retention.session_days",
            u64::from(retention.session_days),
            1..=36_500,
            "lanes that go at once are added again at the next event",
        ),
        (
            "hook.timeout_ms",
            hook.timeout_ms,
            1..=10_000,
            "it is time taken from the agent",
        ),
        (
            "hook.stdin_timeout_ms",
            hook.stdin_timeout_ms,
            1..=60_000,
            "it is time taken from the agent",
        ),
        (
            "hook.max_input_bytes",
            hook.max_input_bytes as u64,
            1_024..=1 << 30,
            memory,
        ),
        (
            "spool.interval_ms",
            spool.interval_ms,
            10..=3_600_000,
            "spooled events wait that long",
        ),
        (
            "spool.max_bytes",
            spool.max_bytes,
            MEBIBYTE..=1 << 50,
            "it bounds the disk",
        ),
        (
            "spool.max_record_bytes",
            spool.max_record_bytes,
            65_536..=1 << 30,
            "it bounds the memory of whoever sends the spool, and agents' calls must fit",
        ),
    ] {
        check.range(key, value, allowed, why);
    }
}
