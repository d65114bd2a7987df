//! Why a private server could not be started or stopped, and what to do about it.
//!
//! None of these loses data: a kept data directory is only ever added to, never removed.

use std::io;
use std::path::PathBuf;

use super::version::{MAX_MAJOR, MIN_MAJOR};

#[derive(Debug, thiserror::Error)]
pub enum DevError {
    #[error(
        "no PostgreSQL server ({MIN_MAJOR} to {MAX_MAJOR}) found on this machine. Install one, it need not be started:\n\
         \x20 Debian, Ubuntu   scripts/install-requirements.sh, or: apt-get install postgresql\n\
         \x20 Fedora, RHEL     dnf install postgresql-server\n\
         \x20 Arch             pacman -S postgresql\n\
         \x20 Alpine           apk add postgresql17\n\
         \x20 macOS            brew install postgresql@17\n\
         or name the directory of its programs with --postgres-bin or LANEKEEPER_DEV__POSTGRES_BIN"
    )]
    NoServer,

    #[error("{} holds no usable PostgreSQL server: {reason}", dir.display())]
    UnusableServer { dir: PathBuf, reason: String },

    #[error(
        "{} was written by PostgreSQL {wanted}, and this machine has only {found}. Nothing was changed. \
         Install PostgreSQL {wanted}, or choose another directory with --data-dir",
        data_dir.display()
    )]
    MajorGone {
        data_dir: PathBuf,
        wanted: u32,
        found: String,
    },

    #[error(
        "{} is in use by another `lanekeeper dev`, process {pid}. Stop that one, or choose another directory with --data-dir",
        data_dir.display()
    )]
    InUse { data_dir: PathBuf, pid: String },

    #[error(
        "{} has content that is not a `lanekeeper dev` data directory. Nothing was changed. Choose an empty or a new one with --data-dir",
        .0.display()
    )]
    NotOurs(PathBuf),

    #[error(
        "PostgreSQL refuses to run as root, and user {user}, chosen to run it, cannot enter {}. \
         Choose a directory that this user may reach with --data-dir",
        data_dir.display()
    )]
    Unreachable { data_dir: PathBuf, user: String },

    #[error(
        "PostgreSQL refuses to run as root, and neither user `postgres` nor `nobody` exists. Start `lanekeeper dev` as another user"
    )]
    NoAccount,

    #[error("neither XDG_DATA_HOME nor HOME is set. Say where the data goes with --data-dir")]
    NoHome,

    #[error("could not {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    #[error("could not run {}", program.display())]
    Run { program: PathBuf, source: io::Error },

    #[error("initdb failed ({status}):\n{output}")]
    Init {
        status: std::process::ExitStatus,
        output: String,
    },

    #[error("no free TCP port on 127.0.0.1")]
    NoPort(#[source] io::Error),

    #[error("PostgreSQL ended by itself ({status}). Its log, {}, ends with:\n{tail}", log.display())]
    Exited {
        status: std::process::ExitStatus,
        log: PathBuf,
        tail: String,
    },

    #[error("PostgreSQL was not ready after {seconds} s. Its log, {}, ends with:\n{tail}", log.display())]
    NotReady {
        seconds: u64,
        log: PathBuf,
        tail: String,
    },

    #[error("PostgreSQL runs, but refused {action}")]
    Query {
        action: &'static str,
        source: tokio_postgres::Error,
    },

    #[error("PostgreSQL was told to stop {seconds} s ago and still runs. See {}", log.display())]
    StillRunning { seconds: u64, log: PathBuf },
}

/// Attaches the path and the attempted action to an I/O error.
pub(super) fn file(
    action: &'static str,
    path: &std::path::Path,
) -> impl FnOnce(io::Error) -> DevError {
    move |source| DevError::File {
        action,
        path: path.to_owned(),
        source,
    }
}
