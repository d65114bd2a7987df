//! Peers: how long a worker relies on its locks, and what it does about other workers that died (I2, I5, I13).
//!
//! Locks belong to a Postgres session on a direct connection. A nonce in the start-up message shows whether a
//! pooler stands in between; then the worker refuses to start.
//!
//! | event | noticed by | how |
//! |---|---|---|
//! | the process dies | the server at once | the socket closes, the locks are released; survivors check every 500 ms |
//! | the node vanishes | the server after 11 s | keepalives and TCP user time-out of these connections |
//! | the process is frozen | a peer after `worker.frozen_after_ms` | it terminates the connections of the silent worker (pid and backend start compared) |
//! | the connection is cut | both sides | the worker drops the connection's lanes and opens another |
//! | the connection hangs: something on the way keeps it open and silent, and answers the server's keepalives | the worker after `worker.trust_ms`, a handler connection after `worker.frozen_after_ms` | it drops the lanes, opens another connection, and terminates the old backend over its control connection until it is gone; then the lanes are woken |
//! | a backend does not end: its process is stopped | the worker, as above | it sends the termination with every tick and waits for none: heartbeat, routes and takeover go on, also on a new control connection, because the old one's liveness lock stands for the same worker |
//!
//! | module | what it does |
//! |---|---|
//! | [`lock_validity`] | how long a worker relies on the locks of a connection |
//! | [`abandoned`] | ends the backends of connections that this worker abandoned |
//! | [`clock`] | the clock of Postgres, for figures |
//! | [`control`] | heartbeat, takeover, routes; starts maintenance |
//! | [`foreign_lock`] | says who holds locks that are not his to have |
//! | [`live`] | the lane connections that this worker uses |
//! | [`reports`] | what this worker tells of each subscription: delivering, refused, circuit open |
//! | [`lock_table`] | how many lanes this worker may hold |

pub mod abandoned;
pub mod clock;
pub mod control;
pub mod foreign_lock;
pub mod live;
pub mod lock_table;
pub mod lock_validity;
pub mod reports;

use lanekeeper_postgres::worker::Identity;

use self::abandoned::AbandonedBackends;
use self::clock::ServerClock;
use self::live::LiveConnections;

/// What a worker is to the others, and the connections that it must still have ended.
pub struct Peers {
    pub identity: Identity,
    pub abandoned: AbandonedBackends,
    pub live: LiveConnections,
    pub clock: ServerClock,
}

impl Peers {
    pub fn new(identity: Identity, clock: ServerClock) -> Self {
        Self {
            identity,
            clock,
            abandoned: AbandonedBackends::default(),
            live: LiveConnections::default(),
        }
    }

    pub fn worker_id(&self) -> i64 {
        self.identity.worker_id
    }
}
