//! A private PostgreSQL of one's own: what `lanekeeper dev` and the tests run on.
//!
//! It shares nothing with a server that the machine may run: data directory, socket directory and
//! log are its own, it listens on no TCP port unless asked, and its data is kept between runs
//! (or removed at the end: [`Options::ephemeral`]).
//!
//! The server never outlives its owner. It is the child of a few lines of `sh` that wait for the
//! end of a pipe that the owner holds; the kernel closes it even when the owner dies by SIGKILL.
//! `prctl(PR_SET_PDEATHSIG)` would need `unsafe` and Linux, and would stop the server without a
//! shutdown of its clients first. Stopping, removal of what is ephemeral and the recovery from a
//! killed owner are thus one path: closing the pipe.
//!
//! Left out: tuning, backups, upgrades between majors. It is no server for production.

mod account;
mod binaries;
mod cluster;
mod error;
mod home;
mod lock;
mod scratch;
mod server;
mod url;
mod version;

use std::path::{Path, PathBuf};

pub use self::binaries::Binaries;
pub use self::error::DevError;
pub use self::server::Postgres;

/// How a private server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    pub data: Data,
    /// Where `postgres` and `initdb` are; found by themselves if not given.
    pub postgres_bin: Option<PathBuf>,
    /// Off loses data when the machine (not a process) goes down, and falsifies every measurement.
    pub fsync: bool,
    /// A port on 127.0.0.1 for programs that cannot use a Unix socket; 0 takes a free one.
    pub port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// In this directory, for the next run.
    Kept(PathBuf),
    /// In a temporary directory that goes when the server stops, whatever stops it.
    Ephemeral,
}

impl Options {
    pub fn kept(dir: impl Into<PathBuf>) -> Self {
        Self {
            data: Data::Kept(dir.into()),
            postgres_bin: None,
            fsync: true,
            port: None,
        }
    }

    pub fn ephemeral() -> Self {
        Self {
            data: Data::Ephemeral,
            postgres_bin: None,
            fsync: true,
            port: None,
        }
    }
}

/// Where `lanekeeper dev` keeps its data unless told otherwise.
///
/// Root's own home is closed to the user that runs the server for it, hence /var/lib.
pub fn default_data_dir() -> Result<PathBuf, DevError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/lanekeeper/dev"));
    }
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path: &PathBuf| path.is_absolute())
    };
    set("XDG_DATA_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join(Path::new("lanekeeper/dev")))
        .ok_or(DevError::NoHome)
}
