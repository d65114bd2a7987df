//! Whether a folder is the user's own: that of the spool, and that of attachments.
//!
//! Prompts and people's files lie in it, and what lies in it is sent, or given to agents, under the user's name. So a
//! folder that everybody may write to, that belongs to another user, or that another user's symbolic link leads to is not
//! used: whoever made the link could have it lead elsewhere at any time. Root's links and folders are taken, for root may
//! do all of that anyway; and root may use any user's folder. Nor is one used below a folder that everybody may write to
//! without the sticky bit: everybody could put another one in its place.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;

/// As many as Linux follows.
const MAX_LINKS: u32 = 40;

const WRITABLE_BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Why a folder is not to be used.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// Somebody else could change what lies in it.
    #[error("{0}")]
    Refused(String),
    /// It cannot be looked at.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Refuses a folder that is not to be used. One that does not exist yet is fine.
///
/// # Errors
/// Why not, without the folder's name.
pub fn check(dir: &Path) -> Result<(), Untrusted> {
    let user = geteuid().as_raw();
    match walk(dir, user)?.map_err(Untrusted::Refused)? {
        Some(meta) => judge(meta.uid(), meta.mode(), user).map_err(Untrusted::Refused),
        None => Ok(()),
    }
}

/// What the path leads to, `None` where it ends early; or why a link on the way is not followed.
fn walk(dir: &Path, user: u32) -> io::Result<Result<Option<fs::Metadata>, String>> {
    let absolute = std::path::absolute(dir)?;
    let mut ahead = parts(&absolute);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = ahead.pop_front() {
        if part.as_os_str() == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let mode = fs::symlink_metadata(&at)?.mode();
        if mode & WRITABLE_BY_ALL != 0 && mode & STICKY == 0 {
            return Ok(Err(format!(
                "every user may write to {}, which it lies in (mode {:04o})",
                at.display(),
                mode & 0o7777
            )));
        }
        let meta = match fs::symlink_metadata(&next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(None)),
            // A file in the place of a folder: whoever makes the folder meets it as well.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Ok(None)),
            meta => meta?,
        };
        if !meta.is_symlink() {
            at = next;
            continue;
        }
        if ![user, 0].contains(&meta.uid()) {
            let link = next.display();
            return Ok(Err(format!(
                "the symbolic link {link} on its path belongs to another user (uid {})",
                meta.uid()
            )));
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::other("too many symbolic links"));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        let mut path = parts(&target);
        path.append(&mut ahead);
        ahead = path;
    }
    fs::symlink_metadata(&at).map(|meta| Ok(Some(meta)))
}

fn parts(path: &Path) -> VecDeque<PathBuf> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

fn judge(owner: u32, mode: u32, user: u32) -> Result<(), String> {
    let is_own = owner == user;
    if !is_own && owner != 0 && user != 0 {
        return Err(format!("it belongs to another user (uid {owner})"));
    }
    if mode & WRITABLE_BY_ALL != 0 && !(is_own && mode & STICKY != 0) {
        return Err(format!(
            "every user may write to it (mode {:04o})",
            mode & 0o7777
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    #[test]
    fn a_folder_is_the_users_own_or_roots_and_not_everybodys() {
        for (owner, mode, user) in [
            (7, 0o40700, 7),
            (7, 0o40775, 7),
            (7, 0o41777, 7),
            (0, 0o40770, 7),
            (7, 0o40700, 0),
        ] {
            assert_eq!(judge(owner, mode, user), Ok(()), "{owner} {mode:o} {user}");
        }
        for (owner, mode, user) in [
            (7, 0o40777, 7),
            (0, 0o41777, 7),
            (7, 0o41777, 0),
            (8, 0o40700, 7),
            (8, 0o40770, 7),
        ] {
            assert!(judge(owner, mode, user).is_err(), "{owner} {mode:o} {user}");
        }
    }

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let name = format!("lanekeeper-trust-{}", uuid::Uuid::now_v7());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir(&dir).unwrap();
            fs::create_dir(dir.join("spool")).unwrap();
            Self(dir)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn allow(dir: &Path, mode: u32) {
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_folder_is_judged_that_the_path_leads_to() {
        let scratch = Scratch::new();
        let spool = scratch.0.join("spool");
        check(&spool).unwrap();
        check(&spool.join("not-yet")).unwrap();
        symlink("./spool/../spool", scratch.0.join("link")).unwrap();
        symlink(scratch.0.join("link"), scratch.0.join("absolute")).unwrap();
        check(&scratch.0.join("absolute")).unwrap();
        allow(&spool, 0o777);
        for path in [
            spool.clone(),
            scratch.0.join("absolute"),
            spool.join("../spool"),
        ] {
            let error = check(&path).unwrap_err().to_string();
            assert!(error.contains("every user may write"), "{error}");
        }
        allow(&spool, 0o1777);
        check(&spool).unwrap();
    }

    #[test]
    fn links_that_lead_in_a_circle_are_an_error() {
        let scratch = Scratch::new();
        symlink("b", scratch.0.join("a")).unwrap();
        symlink("a", scratch.0.join("b")).unwrap();
        let error = check(&scratch.0.join("a")).unwrap_err().to_string();
        assert!(error.contains("too many symbolic links"), "{error}");
    }

    #[test]
    fn another_users_link_is_not_followed() {
        let scratch = Scratch::new();
        let link = scratch.0.join("link");
        symlink("spool", &link).unwrap();
        let own = fs::symlink_metadata(&link).unwrap().uid();
        let user = own + 1;
        // Root may give the link away; others pretend to be somebody else.
        let refused = match lchown(&link, Some(user), None) {
            Ok(()) => walk(&link, own).unwrap(),
            Err(_) => walk(&link, user).unwrap(),
        };
        let reason = refused.unwrap_err();
        assert!(reason.contains("belongs to another user"), "{reason}");
        walk(&scratch.0.join("spool"), user).unwrap().unwrap();
    }
}
