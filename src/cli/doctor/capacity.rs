//! Whether the server has enough locks and connections for the workers.

use lanekeeper_config::{Config, WorkerConfig};
use lanekeeper_engine as engine;
use lanekeeper_postgres::diagnose::Server;

use super::check::Check;

/// Connections that a worker holds besides its lane connections and its pools: control, doorbell,
/// listener, the session registry's, and one in reserve for a reconnect. The archive's comes and goes, one
/// worker's at a time: it is among the reserves.
const OTHER_CONNECTIONS: i64 = 5;

/// Below what one subscription may use by default, a worker's part of the lock table holds it up.
const FEW_LANES: usize = 64;

/// Lane locks live in the table that all sessions of the server share; when it is full, statements
/// of everybody fail.
pub(super) fn locks(server: &Server, worker: &WorkerConfig, replicas: i64) -> Check {
    let room = server.lock_table();
    let lanes = match worker.max_lanes {
        0 => engine::lanes_each(
            u64::try_from(room).unwrap_or(0),
            u32::try_from(replicas).unwrap_or(u32::MAX),
        ),
        lanes => lanes,
    };
    // Lanes that wait for a limit, and those of handlers, hold their locks beside the others.
    let most = lanes + engine::most_waiting(lanes) + engine::handler_lanes(lanes);
    let wanted = replicas.saturating_mul(count(most));
    let found = format!(
        "{replicas} × {most} lanes may hold {wanted} locks, the server's table has room for {room}, shared with everybody"
    );
    let raise = format!(
        "raise max_locks_per_transaction (now {}) and restart the server",
        server.max_locks_per_transaction
    );
    let by_itself = worker.max_lanes == 0;
    let advice = match by_itself {
        true => format!("{raise}, or run fewer workers"),
        false => format!("{raise}, or lower LANEKEEPER_WORKER__MAX_LANES"),
    };
    if wanted > room / 10 * 9 {
        Check::fail("lock table", found, advice)
    } else if wanted > room / 2 {
        Check::warn("lock table", found, advice)
    } else if by_itself && lanes < FEW_LANES {
        let found = format!("{found}: {lanes} lanes are few for a worker");
        Check::warn("lock table", found, advice)
    } else {
        Check::ok("lock table", found)
    }
}

pub(super) fn connections(server: &Server, config: &Config, replicas: i64) -> Check {
    let each = count(config.worker.lane_connections)
        + OTHER_CONNECTIONS
        + count(config.database.pool_size)
        + count(config.http.pool_size)
        + count(lanekeeper_http::operate::CONNECTIONS);
    let wanted = replicas.saturating_mul(each);
    let room = server.max_connections - server.reserved_connections;
    let others = server.other_connections;
    let found = format!(
        "{replicas} × {each} of workers make {wanted}, others hold {others}, the server takes {room}"
    );
    let advice = "raise max_connections, or lower LANEKEEPER_DATABASE__POOL_SIZE, LANEKEEPER_HTTP__POOL_SIZE or the number of replicas";
    if wanted > room {
        Check::fail("connections", found, advice)
    } else if wanted + others > room {
        Check::warn("connections", found, advice)
    } else {
        Check::ok("connections", found)
    }
}

fn count(setting: usize) -> i64 {
    i64::try_from(setting).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::super::server::tests::healthy;
    use super::*;

    #[test]
    fn lane_locks_must_leave_room_for_others() {
        let worker = WorkerConfig {
            max_lanes: 512,
            ..WorkerConfig::default()
        };
        let of = |replicas| locks(&healthy(), &worker, replicas).status;
        // 64 × 100 slots, 512 lanes each, a quarter more that wait and 64 of handlers.
        assert_eq!(
            [of(4), of(5), of(9)],
            [Status::Ok, Status::Warn, Status::Fail]
        );
    }

    #[test]
    fn workers_that_divide_the_lock_table_fit_it_until_their_parts_are_small() {
        let worker = WorkerConfig::default();
        let of = |replicas| locks(&healthy(), &worker, replicas).status;
        // A third of 6,400 entries.
        assert_eq!(
            [of(1), of(5), of(33), of(34)],
            [Status::Ok, Status::Ok, Status::Ok, Status::Warn]
        );
    }

    #[test]
    fn prepared_transactions_make_the_lock_table_larger() {
        let mut server = healthy();
        server.max_prepared_transactions = 100;
        assert_eq!(server.lock_table(), 12_800);
    }

    #[test]
    fn connections_of_all_replicas_must_fit_beside_those_of_others() {
        let config = Config::default();
        let of = |others, replicas| {
            let mut server = healthy();
            server.other_connections = others;
            connections(&server, &config, replicas).status
        };
        // 17 each, of 97: those for requests over HTTP count, whether there are any yet or not.
        assert_eq!(of(0, 5), Status::Ok);
        assert_eq!(of(20, 5), Status::Warn);
        assert_eq!(of(0, 6), Status::Fail);
    }
}
