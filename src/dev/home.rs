//! The directory of a private server, and the lock on it.
//!
//! ```text
//! <root>/            0700, owned by the user that runs the server
//!   lock             held by flock from before the first look until the server is gone
//!   postgres/        PostgreSQL's own data directory
//!   postgres.new/    the same while initdb writes it: renamed when complete
//!   password         0600: the superuser's, for connections over TCP
//!   postgres.log     of this run; postgres.log.1 of the one before
//!   run/             0700: the Unix socket
//! ```
//!
//! The lock is shared with the server's processes: when their owner dies by SIGKILL it stays held
//! for as long as one of them runs. Holding it therefore proves that no server of ours does.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::DevError;
use super::account::{Account, command};
use super::error::file;
use super::lock::{is_alive, lock};
use super::scratch::{Scratch, fits, make_private, random, short_dir};

pub(super) struct Home {
    pub(super) root: PathBuf,
    pub(super) account: Option<Account>,
    pub(super) lock: File,
    /// The directory of the Unix socket.
    pub(super) run: PathBuf,
    /// What goes when the server ends: all of an ephemeral home, else the socket's directory.
    pub(super) scratch: Scratch,
}

impl Home {
    /// A new home in a temporary place.
    pub(super) async fn ephemeral(account: Option<Account>) -> Result<Self, DevError> {
        let root = short_dir(&std::env::temp_dir(), "/run")?;
        let scratch = Scratch::new(root.clone());
        let lock = Self::claim(&root, account.as_ref()).await?;
        let run = root.join("run");
        make_private(&run, account.as_ref())?;
        Ok(Self {
            root,
            account,
            lock,
            run,
            scratch,
        })
    }

    /// The home in `root`, made where it is missing.
    pub(super) async fn kept(root: &Path, account: Option<Account>) -> Result<Self, DevError> {
        let created = !root.exists();
        if created {
            let parent = root.parent().unwrap_or(root);
            std::fs::create_dir_all(parent).map_err(file("create", parent))?;
            make_private(root, None)?;
        }
        let root = root.canonicalize().map_err(file("open", root))?;
        // What is there is handed to another user as root: it must be ours, or nothing.
        let mut entries = std::fs::read_dir(&root).map_err(file("list", &root))?;
        if !root.join("lock").exists() && entries.next().is_some() {
            return Err(DevError::NotOurs(root));
        }
        let claimed = Self::claim(&root, account.as_ref()).await;
        if claimed.is_err() && created {
            // The reason of the refusal is what matters; an empty directory may stay.
            let _ = std::fs::remove_dir_all(&root);
        }
        let lock = claimed?;
        let mut run = root.join("run");
        if fits(&run, "") {
            // Left by a machine that went down.
            match std::fs::remove_dir_all(&run) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(file("remove", &run)(error));
                }
                _ => make_private(&run, account.as_ref())?,
            }
        } else {
            run = short_dir(&std::env::temp_dir(), "")?;
            if let Some(account) = &account {
                account.own(&run)?;
            }
        }
        Ok(Self {
            scratch: Scratch::new(run.clone()),
            root,
            account,
            lock,
            run,
        })
    }

    /// Takes the lock, then gives the directory to the server's user.
    async fn claim(root: &Path, account: Option<&Account>) -> Result<File, DevError> {
        let lock = lock(root).await?;
        if let Some(account) = account {
            account.own(root)?;
            let entered = command(Path::new("sh"), Some(account))
                .args(["-c", "cd -- \"$1\" && test -w .", "sh"])
                .arg(root)
                .stderr(std::process::Stdio::null())
                .status()
                .await
                .map_err(|source| DevError::Run {
                    program: "sh".into(),
                    source,
                })?;
            if !entered.success() {
                return Err(DevError::Unreachable {
                    data_dir: root.to_owned(),
                    user: account.name.to_owned(),
                });
            }
        }
        Ok(lock)
    }

    /// The superuser's password, made at the first call.
    pub(super) fn password(&self) -> Result<String, DevError> {
        let path = self.password_file();
        match std::fs::read_to_string(&path) {
            Ok(password) => return Ok(password),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(file("read", &path)(error));
            }
            Err(_) => {}
        }
        let password = random(18)?;
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut created| created.write_all(password.as_bytes()))
            .map_err(file("write", &path))?;
        if let Some(account) = &self.account {
            account.own(&path)?;
        }
        Ok(password)
    }

    pub(super) fn password_file(&self) -> PathBuf {
        self.root.join("password")
    }

    pub(super) fn data(&self) -> PathBuf {
        self.root.join("postgres")
    }

    pub(super) fn unfinished_data(&self) -> PathBuf {
        self.root.join("postgres.new")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.root.join("postgres.log")
    }

    /// Removes a postmaster.pid whose process is gone, or is another program by now.
    ///
    /// PostgreSQL takes any process of that number for its old self, even a zombie, and refuses to
    /// start. A postmaster works in its data directory, which tells it from others where there is
    /// a /proc; elsewhere the decision stays with PostgreSQL.
    pub(super) fn remove_stale_pid(&self) -> Result<(), DevError> {
        let path = self.data().join("postmaster.pid");
        let Ok(text) = std::fs::read_to_string(&path) else {
            return Ok(());
        };
        let pid = text.lines().next().unwrap_or_default().trim();
        let runs = match std::fs::read_link(format!("/proc/{pid}/cwd")) {
            Ok(cwd) => cwd == self.data(),
            Err(error)
                if error.kind() == ErrorKind::NotFound && Path::new("/proc/self/cwd").exists() =>
            {
                false
            }
            Err(_) => is_alive(pid),
        };
        if runs {
            Ok(())
        } else {
            std::fs::remove_file(&path).map_err(file("remove", &path))
        }
    }

    /// The major version that wrote the data directory; `None` where there is none yet.
    pub(super) fn major(&self) -> Result<Option<u32>, DevError> {
        let path = self.data().join("PG_VERSION");
        match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map(Some).map_err(|error| {
                file("understand", &path)(std::io::Error::new(ErrorKind::InvalidData, error))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file("read", &path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch_dir() -> PathBuf {
        short_dir(Path::new("/tmp"), "").unwrap()
    }

    #[tokio::test]
    async fn a_directory_with_foreign_content_is_refused_and_left_as_it_is() {
        let dir = scratch_dir();
        std::fs::write(dir.join("thesis.tex"), "years of work").unwrap();
        let refused = Home::kept(&dir, None).await.err();
        let entries = std::fs::read_dir(&dir).unwrap().count();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(matches!(refused, Some(DevError::NotOurs(_))), "{refused:?}");
        assert_eq!(entries, 1);
    }

    #[tokio::test]
    async fn a_second_owner_is_refused_with_the_pid_of_the_first() {
        let dir = scratch_dir();
        let first = Home::kept(&dir, None).await.unwrap();
        let second = Home::kept(&dir, None).await.err();
        drop(first);
        let third = Home::kept(&dir, None).await.map(drop);
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(
            matches!(&second, Some(DevError::InUse { pid, .. }) if *pid == std::process::id().to_string()),
            "{second:?}"
        );
        third.expect("the lock goes with its owner");
    }

    #[tokio::test]
    async fn a_socket_that_does_not_fit_the_data_directory_goes_to_a_short_one() {
        let dir = scratch_dir();
        let deep = dir.join("d".repeat(100));
        let home = Home::kept(&deep, None).await.unwrap();
        let run = home.run.clone();
        drop(home);
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(!run.starts_with(&dir) && fits(&run, ""), "{run:?}");
        assert!(!run.exists());
    }
}
