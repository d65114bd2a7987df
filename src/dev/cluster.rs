//! The database cluster itself: how it is made, and with what settings it runs.

use std::ffi::OsString;
use std::process::Stdio;

use super::account::command;
use super::binaries::Binaries;
use super::error::file;
use super::home::Home;
use super::{DevError, url};

const SETTINGS: [&str; 11] = [
    "cluster_name=lanekeeper-dev",
    "unix_socket_permissions=0700",
    "max_connections=200",
    // A worker holds an advisory lock per lane, all in the table that this sizes.
    "max_locks_per_transaction=256",
    // Producers may append in prepared transactions.
    "max_prepared_transactions=16",
    "shared_buffers=128MB",
    "log_line_prefix=%m [%p] ",
    "log_checkpoints=off",
    "client_min_messages=warning",
    "timezone=UTC",
    "log_timezone=UTC",
];

/// Runs initdb beside the final place, so that an interrupted one leaves nothing behind there.
pub(super) async fn create(
    home: &Home,
    binaries: &Binaries,
    durable: bool,
) -> Result<(), DevError> {
    let unfinished = home.unfinished_data();
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished).map_err(file("remove", &unfinished))?;
    }
    let program = binaries.program("initdb");
    let mut initdb = command(&program, home.account.as_ref());
    initdb
        .args([
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
        ])
        .arg(format!("--username={}", url::NAME))
        .args([OsString::from("--pwfile"), home.password_file().into()])
        .args([OsString::from("--pgdata"), unfinished.clone().into()])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if !durable {
        initdb.arg("--no-sync");
    }
    let output = initdb
        .output()
        .await
        .map_err(|source| DevError::Run { program, source })?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        return Err(DevError::Init {
            status: output.status,
            output: String::from_utf8_lossy(&text).into_owned(),
        });
    }
    std::fs::rename(&unfinished, home.data()).map_err(file("rename", &unfinished))
}

/// Settings go on the command line: they hold whatever the data directory's files say, and change
/// with the program.
pub(super) fn arguments(home: &Home, fsync: bool, tcp: Option<u16>, port: u16) -> Vec<OsString> {
    let mut arguments = vec![OsString::from("-D"), home.data().into()];
    let mut set = |setting: OsString| arguments.extend([OsString::from("-c"), setting]);
    for setting in SETTINGS {
        set(setting.into());
    }
    let mut socket_dirs = OsString::from("unix_socket_directories=");
    socket_dirs.push(&home.run);
    set(socket_dirs);
    set(format!(
        "listen_addresses={}",
        if tcp.is_some() { "127.0.0.1" } else { "" }
    )
    .into());
    set(format!("port={port}").into());
    if !fsync {
        for setting in [
            "fsync=off",
            "full_page_writes=off",
            "synchronous_commit=off",
        ] {
            set(setting.into());
        }
    }
    arguments
}
