//! What a run takes beside time: CPU of the server and of its clients, and the log that is written.
//!
//! The server's CPU is that of all its processes, read from /proc: known only where the server runs on
//! this machine under Linux, and to a hundredth of a second.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use super::{BenchError, measure};

/// Kernel ticks of /proc/PID/stat in a second: fixed in the kernel's interface to programs.
const TICKS: f64 = 100.0;
const SELECT: &str = "
    SELECT pg_backend_pid(), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8";

/// Totals since the server was started.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// `None`: the server's processes cannot be seen from here.
    cpu: Option<(Duration, Duration)>,
    wal_bytes: f64,
}

/// What one event cost.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Cost {
    pub server_cpu_us: Option<f64>,
    pub client_cpu_us: Option<f64>,
    pub wal_bytes: f64,
}

/// The median of each figure.
pub fn median(costs: &[Cost]) -> Cost {
    let of = |figure: fn(&Cost) -> Option<f64>| {
        let all: Option<Vec<f64>> = costs.iter().map(figure).collect();
        all.map(|all| measure::median(&all))
    };
    Cost {
        server_cpu_us: of(|cost| cost.server_cpu_us),
        client_cpu_us: of(|cost| cost.client_cpu_us),
        wal_bytes: of(|cost| Some(cost.wal_bytes)).unwrap_or(f64::NAN),
    }
}

impl Reading {
    /// With this process as the client.
    pub async fn take(client: &Client) -> Result<Self, BenchError> {
        Self::of(client, &[std::process::id()]).await
    }

    /// With these processes as the clients. Those that ended meanwhile are not counted.
    pub async fn of(client: &Client, clients: &[u32]) -> Result<Self, BenchError> {
        let row = client
            .query_one(SELECT, &[])
            .await
            .map_err(BenchError::on("reading what the server wrote"))?;
        let stats: Vec<Stat> = clients.iter().copied().filter_map(stat).collect();
        let own = (!stats.is_empty()).then(|| stats.iter().map(|stat| stat.cpu).sum());
        let server = u32::try_from(row.get::<_, i32>(0))
            .ok()
            .and_then(|backend| server_cpu(stat(backend)?.parent));
        Ok(Self {
            cpu: server.zip(own),
            wal_bytes: row.get(1),
        })
    }

    /// What happened since, for each of `events`.
    pub async fn cost(self, client: &Client, events: usize) -> Result<Cost, BenchError> {
        Ok(Self::take(client).await?.since(self, events))
    }

    /// What happened from the earlier reading to this one, for each of `events`.
    pub fn since(self, earlier: Self, events: usize) -> Cost {
        let each = |before: Duration, after: Duration| {
            after.saturating_sub(before).as_secs_f64() * 1e6 / events as f64
        };
        let cpu = earlier.cpu.zip(self.cpu);
        Cost {
            server_cpu_us: cpu.map(|(before, after)| each(before.0, after.0)),
            client_cpu_us: cpu.map(|(before, after)| each(before.1, after.1)),
            wal_bytes: (self.wal_bytes - earlier.wal_bytes) / events as f64,
        }
    }
}

struct Stat {
    parent: u32,
    cpu: Duration,
    /// Of children that have ended.
    children: Duration,
}

/// The postmaster's processes: those that run, and those that have ended since it was started.
fn server_cpu(postmaster: u32) -> Option<Duration> {
    loop {
        let before = stat(postmaster)?.children;
        let total = sum(postmaster)?;
        // Whoever ended in between may have been counted twice, or not at all.
        if stat(postmaster)?.children == before {
            return Some(total);
        }
    }
}

fn sum(postmaster: u32) -> Option<Duration> {
    let mut total = stat(postmaster).map(|own| own.cpu + own.children)?;
    for entry in std::fs::read_dir("/proc").ok()? {
        let pid = entry
            .ok()?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(child) = pid.and_then(stat)
            && child.parent == postmaster
        {
            total += child.cpu;
        }
    }
    Some(total)
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything: the fields are counted from its end.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = |field: usize| {
        let ticks: f64 = fields.get(field)?.parse().ok()?;
        Some(Duration::from_secs_f64(ticks / TICKS))
    };
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        cpu: ticks(11)? + ticks(12)?,
        children: ticks(13)? + ticks(14)?,
    })
}

/// What came of draining twice.
pub struct Drained {
    /// Events per second of a worker that starts, from its first claim.
    pub started: f64,
    /// Of one that runs, and what each event cost then.
    pub running: (f64, Cost),
}
