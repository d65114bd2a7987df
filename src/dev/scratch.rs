//! Private directories in temporary places, short enough for a Unix socket in them.

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::DevError;
use super::account::Account;
use super::error::file;

/// macOS has 104 bytes for the path of a socket, Linux 108; both count the final NUL.
const SOCKET_PATH_LIMIT: usize = 103;
/// What PostgreSQL adds to the directory, with the longest port.
const SOCKET_NAME: &str = "/.s.PGSQL.65535";
/// A directory that is removed on drop unless somebody else took that over.
pub(super) struct Scratch {
    path: PathBuf,
    ours: bool,
}

impl Scratch {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, ours: true }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the removal to the supervisor.
    pub(super) fn hand_over(mut self) {
        self.ours = false;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.ours {
            // The start has failed, and says why; what may be left is in a temporary place.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

pub(super) fn make_private(dir: &Path, account: Option<&Account>) -> Result<(), DevError> {
    DirBuilder::new()
        .mode(0o700)
        .create(dir)
        .map_err(file("create", dir))?;
    account.map_or(Ok(()), |account| account.own(dir))
}

/// A new private directory in `parent`, or in /tmp where a socket in its `sub` would not fit.
pub(super) fn short_dir(parent: &Path, sub: &str) -> Result<PathBuf, DevError> {
    let name = format!("lanekeeper-{}", random(6)?);
    let mut dir = parent.join(&name);
    if !fits(&dir, sub) {
        dir = Path::new("/tmp").join(&name);
    }
    make_private(&dir, None)?;
    Ok(dir)
}

pub(super) fn fits(dir: &Path, sub: &str) -> bool {
    dir.as_os_str().len() + sub.len() + SOCKET_NAME.len() <= SOCKET_PATH_LIMIT
}

/// Unguessable text of `bytes` random bytes that is safe in file names and URLs.
pub(super) fn random(bytes: usize) -> Result<String, DevError> {
    let path = Path::new("/dev/urandom");
    let mut buffer = vec![0; bytes];
    File::open(path)
        .and_then(|mut source| source.read_exact(&mut buffer))
        .map_err(file("read", path))?;
    Ok(URL_SAFE_NO_PAD.encode(buffer))
}
