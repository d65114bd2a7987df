//! Who runs the server.
//!
//! PostgreSQL refuses to run as root, and containers and CI machines are root: the server then
//! runs as an unprivileged user, who owns the data directory. Names are looked up with `id`,
//! which also knows users that are not in /etc/passwd.

use std::path::Path;
use std::process::{Command, Stdio};

use super::DevError;

/// The unprivileged user of a server that root starts.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) name: &'static str,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Account {
    /// `None`: the current user runs the server.
    pub(super) fn choose() -> Result<Option<Self>, DevError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        ["postgres", "nobody"]
            .into_iter()
            .find_map(Self::look_up)
            .map(Some)
            .ok_or(DevError::NoAccount)
    }

    fn look_up(name: &'static str) -> Option<Self> {
        let id = |flag| -> Option<u32> {
            let output = Command::new("id")
                .args([flag, name])
                .stderr(Stdio::null())
                .output()
                .ok()?;
            String::from_utf8_lossy(&output.stdout).trim().parse().ok()
        };
        Some(Self {
            name,
            uid: id("-u")?,
            gid: id("-g")?,
        })
    }

    pub(super) fn own(&self, path: &Path) -> Result<(), DevError> {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .map_err(super::error::file("hand over", path))
    }
}

/// A command that runs as `account`, free of what the environment says about other servers.
///
/// Setting the user as root also clears the supplementary groups: `std` does both.
pub(super) fn command(program: &Path, account: Option<&Account>) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    // macOS: without a locale the server finds itself multithreaded at start-up and gives up.
    command.env("LC_ALL", "C").current_dir("/");
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    command
}
