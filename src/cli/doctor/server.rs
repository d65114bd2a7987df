//! The server's version, settings, clock and old transactions.

use lanekeeper_postgres::diagnose::Server;
use lanekeeper_postgres::migrate::OLDEST_POSTGRES;

use super::check::Check;
use crate::output;

/// The newest major version that the tests run against.
const NEWEST_POSTGRES: i32 = 18;
/// What clocks may differ by before people are misled. Nothing is decided by a worker's clock.
const CLOCK_WARN_S: f64 = 2.0;
/// A transaction as old as this keeps dead rows of every table from being removed.
const OLD_TRANSACTION_S: f64 = 300.0;

pub(super) fn judge(server: &Server) -> Vec<Check> {
    vec![
        version(server),
        encoding(server),
        durability(server),
        autovacuum(server),
        clock(server),
        transactions(server),
        prepared(server),
    ]
}

fn version(server: &Server) -> Check {
    let found = format!("PostgreSQL {}", server.version);
    match server.version_num / 10_000 {
        major if major < OLDEST_POSTGRES => Check::fail(
            "server",
            found,
            format!("upgrade to {OLDEST_POSTGRES} or newer"),
        ),
        major if major > NEWEST_POSTGRES => Check::warn(
            "server",
            found,
            format!("this release was tested with {OLDEST_POSTGRES} to {NEWEST_POSTGRES}"),
        ),
        _ => Check::ok("server", found),
    }
}

fn encoding(server: &Server) -> Check {
    let found = format!("the database's encoding is {}", server.encoding);
    match server.encoding.as_str() {
        "UTF8" => Check::ok("encoding", found),
        _ => Check::fail(
            "encoding",
            found,
            "payloads need any character: create the database with ENCODING 'UTF8'",
        ),
    }
}

/// A1: events that were confirmed to a producer survive a crash.
fn durability(server: &Server) -> Check {
    let Server {
        fsync,
        synchronous_commit,
        ..
    } = server;
    let found = format!("fsync {fsync}, synchronous_commit {synchronous_commit}");
    if fsync != "on" {
        Check::fail(
            "durability",
            found,
            "a crash of the host may lose the whole database: set fsync = on",
        )
    } else if synchronous_commit == "off" {
        Check::fail(
            "durability",
            found,
            "a crash of the server may lose enqueued events: set synchronous_commit = on for producers",
        )
    } else {
        Check::ok("durability", found)
    }
}

fn autovacuum(server: &Server) -> Check {
    match server.autovacuum.as_str() {
        "on" => Check::ok("autovacuum", "on"),
        found => Check::fail(
            "autovacuum",
            found,
            "every settlement leaves a dead row, and claims slow down with them: set autovacuum = on",
        ),
    }
}

fn clock(server: &Server) -> Check {
    let ahead = server.clock_ahead.as_secs_f64();
    let found = format!(
        "the server's clock is {} {} this host's (give or take {})",
        output::age(ahead.abs()),
        if ahead < 0.0 { "behind" } else { "ahead of" },
        output::age(server.round_trip.as_secs_f64() / 2.0),
    );
    if ahead.abs() < CLOCK_WARN_S {
        Check::ok("clock", found)
    } else {
        Check::warn(
            "clock",
            found,
            "delivery goes by the server's clock alone, but logs, signatures' timestamps and certificates go by \
             this one: run NTP on both",
        )
    }
}

fn transactions(server: &Server) -> Check {
    let whose = server.oldest_transaction.as_deref().unwrap_or("none");
    match server.oldest_transaction_s {
        Some(age) if age > OLD_TRANSACTION_S => Check::warn(
            "old transactions",
            format!("one is {} old: {whose}", output::age(age)),
            "no dead row is removed while it is open: end it, or set idle_in_transaction_session_timeout",
        ),
        _ if server.idle_slots > 0 => Check::warn(
            "old transactions",
            format!(
                "{} replication slots without a reader hold dead rows back",
                server.idle_slots
            ),
            "start their readers, or drop them with pg_drop_replication_slot",
        ),
        _ if !server.sees_others => Check::warn(
            "old transactions",
            "this role sees its own transactions only",
            "GRANT pg_read_all_stats to it",
        ),
        age => Check::ok(
            "old transactions",
            format!("the oldest is {} old", output::age(age.unwrap_or(0.0))),
        ),
    }
}

fn prepared(server: &Server) -> Check {
    let count = server.prepared_transactions;
    match server.oldest_prepared_s {
        Some(age) if age > OLD_TRANSACTION_S => Check::warn(
            "prepared transactions",
            format!("{count}, the oldest {} old", output::age(age)),
            "it keeps its locks and holds dead rows back: COMMIT PREPARED or ROLLBACK PREPARED it (pg_prepared_xacts)",
        ),
        _ => Check::ok("prepared transactions", format!("{count} open")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::SignedDuration;

    use super::super::check::Status;
    use super::*;

    /// A server that nothing is wrong with.
    pub(in crate::doctor) fn healthy() -> Server {
        Server {
            version: "16.2".to_owned(),
            version_num: 160_002,
            encoding: "UTF8".to_owned(),
            fsync: "on".to_owned(),
            synchronous_commit: "on".to_owned(),
            autovacuum: "on".to_owned(),
            max_connections: 100,
            reserved_connections: 3,
            max_locks_per_transaction: 64,
            max_prepared_transactions: 0,
            other_connections: 0,
            oldest_transaction_s: Some(0.1),
            oldest_transaction: Some("pid 1, active, application 'x'".to_owned()),
            prepared_transactions: 0,
            oldest_prepared_s: None,
            idle_slots: 0,
            sees_others: true,
            clock_ahead: SignedDuration::from_millis(3),
            round_trip: SignedDuration::from_millis(1),
        }
    }

    fn complaints(change: impl FnOnce(&mut Server)) -> Vec<(&'static str, Status)> {
        let mut server = healthy();
        change(&mut server);
        judge(&server)
            .into_iter()
            .filter(|check| check.status != Status::Ok)
            .map(|check| (check.check, check.status))
            .collect()
    }

    #[test]
    fn a_healthy_server_has_no_complaint() {
        assert!(complaints(|_| {}).is_empty());
    }

    #[test]
    fn each_thing_that_is_wrong_is_one_complaint() {
        use Status::{Fail, Warn};
        type Fault = (fn(&mut Server), &'static str, Status);
        let faults: [Fault; 10] = [
            (|s| s.version_num = 130_001, "server", Fail),
            (|s| s.version_num = 190_000, "server", Warn),
            (|s| s.encoding = "SQL_ASCII".into(), "encoding", Fail),
            (|s| s.fsync = "off".into(), "durability", Fail),
            (|s| s.synchronous_commit = "off".into(), "durability", Fail),
            (|s| s.autovacuum = "off".into(), "autovacuum", Fail),
            (
                |s| s.clock_ahead = SignedDuration::from_secs(-60),
                "clock",
                Warn,
            ),
            (
                |s| s.oldest_transaction_s = Some(3_600.0),
                "old transactions",
                Warn,
            ),
            (|s| s.sees_others = false, "old transactions", Warn),
            (
                |s| s.oldest_prepared_s = Some(3_600.0),
                "prepared transactions",
                Warn,
            ),
        ];
        for (fault, check, status) in faults {
            assert_eq!(complaints(fault), [(check, status)]);
        }
    }
}
