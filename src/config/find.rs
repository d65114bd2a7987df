//! Which file is read, and how it is opened: nothing that lies at its path can hang the process or fill its memory.
//!
//! | place | read by |
//! |---|---|
//! | `--config`, `LANEKEEPER_CONFIG` | all; nothing else is looked for. `/dev/null` stands for no file |
//! | `lanekeeper.toml` of the working directory | all but `hook` |
//! | `lanekeeper/lanekeeper.toml` in `$XDG_CONFIG_HOME`, else in `~/.config` | all |
//! | `/etc/lanekeeper/lanekeeper.toml` | all |
//!
//! The first that exists counts. Agents run `hook` in directories that somebody else filled, a cloned repository for
//! instance: what lies there must not say where prompts go. Other commands are started by a person or a service
//! there, and take a file of the user or of root that nobody else can write. Judged is the open file, not its path,
//! which may lead elsewhere by then.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use lanekeeper_core::bounded_file::{BoundedFile, Links, ReadError};
use rustix::process::geteuid;

use super::problem::{ConfigError, Refusal};

const NAME: &str = "lanekeeper.toml";
const SYSTEM: &str = "/etc/lanekeeper/lanekeeper.toml";
const NO_FILE: &str = "/dev/null";
/// Above any configuration that a person writes.
const MAX_BYTES: u64 = 1 << 20;

/// Who reads the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Command,
    Hook,
}

/// How a configuration file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// By `--config` or `LANEKEEPER_CONFIG`.
    Named,
    WorkingDirectory,
    /// In the user's own configuration directory.
    User,
    System,
}

/// A configuration file that is read if it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    pub path: PathBuf,
    pub place: Place,
}

/// A configuration file that was read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) file: ConfigFile,
    pub(super) text: String,
}

/// Where a file is looked for, the strongest place first.
pub(super) fn places(
    named: Option<&Path>,
    reader: Reader,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<ConfigFile> {
    let at = |place, path: PathBuf| ConfigFile { path, place };
    match named {
        Some(path) if path.as_os_str() == OsStr::new(NO_FILE) => return Vec::new(),
        Some(path) => return vec![at(Place::Named, path.to_owned())],
        None => {}
    }
    let mut places = Vec::new();
    if reader != Reader::Hook {
        places.push(at(Place::WorkingDirectory, PathBuf::from(NAME)));
    }
    // A relative one would lead into the working directory.
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let own =
        absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    if let Some(own) = own {
        places.push(at(Place::User, own.join("lanekeeper").join(NAME)));
    }
    places.push(at(Place::System, PathBuf::from(SYSTEM)));
    places
}

/// The first file that exists; one that is named must.
pub(super) fn read(places: Vec<ConfigFile>) -> Result<Option<Found>, ConfigError> {
    for file in places {
        match read_one(&file) {
            Ok(text) => return Ok(Some(Found { file, text })),
            Err(error) if is_absent(&error) => {
                if file.place == Place::Named {
                    return Err(ConfigError::FileMissing { path: file.path });
                }
            }
            Err(source) => {
                let path = file.path;
                return Err(match source.downcast::<Refusal>() {
                    Ok(reason) => ConfigError::FileRefused { path, reason },
                    Err(source) => ConfigError::FileUnreadable { path, source },
                });
            }
        }
    }
    Ok(None)
}

/// A file where a folder of the path should be is an absent path too.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn read_one(file: &ConfigFile) -> io::Result<String> {
    let in_working_directory = file.place == Place::WorkingDirectory;
    let links = match in_working_directory {
        true => Links::Refused,
        false => Links::Followed,
    };
    let opened = BoundedFile::open(&file.path, links).map_err(unread)?;
    let metadata = opened.metadata();
    if in_working_directory {
        let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
        judge_owner(owner, group, mode, geteuid().as_raw()).map_err(refused)?;
    }
    opened.read(MAX_BYTES).map_err(unread)
}

fn unread(error: ReadError) -> io::Error {
    match error {
        ReadError::NotRegular(kind) => refused(Refusal::NotRegular(kind)),
        ReadError::Link => refused(Refusal::Link),
        ReadError::TooLarge { max } => refused(Refusal::TooLarge { max }),
        ReadError::Io(error) => error,
    }
}

fn refused(reason: Refusal) -> io::Error {
    io::Error::other(reason)
}

/// Whether nobody but the user and root decides what the file says.
fn judge_owner(owner: u32, group: u32, mode: u32, user: u32) -> Result<(), Refusal> {
    if owner != user && owner != 0 {
        return Err(Refusal::Owner { owner, user });
    }
    // Where each user has a group of the same number, new files are writable for it, which has no other member.
    let by_group = mode & 0o020 != 0 && group != owner && group != 0;
    match by_group || mode & 0o002 != 0 {
        true => Err(Refusal::Writable {
            mode: mode & 0o7777,
        }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{Mode, mkfifoat};

    use super::*;

    fn paths(named: Option<&str>, reader: Reader, variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let places = places(named.map(Path::new), reader, variable);
        places
            .into_iter()
            .map(|file| file.path.display().to_string())
            .collect()
    }

    fn read_at(path: &Path, place: Place) -> Result<String, String> {
        let path = path.to_owned();
        let found = read(vec![ConfigFile { path, place }]).map_err(|error| error.to_string())?;
        Ok(found.map(|found| found.text).unwrap_or_default())
    }

    #[test]
    fn only_the_hook_passes_the_working_directory_over() {
        let home = [("HOME", "/home/me")];
        let others = ["/home/me/.config/lanekeeper/lanekeeper.toml", SYSTEM];
        assert_eq!(paths(None, Reader::Hook, &home), others);
        assert_eq!(
            paths(None, Reader::Command, &home),
            [&["lanekeeper.toml"], &others[..]].concat()
        );
    }

    #[test]
    fn a_relative_directory_of_the_user_is_passed_over_since_it_lies_in_the_working_directory() {
        for variables in [
            &[("XDG_CONFIG_HOME", "."), ("HOME", "")][..],
            &[("XDG_CONFIG_HOME", ""), ("HOME", "home")],
            &[],
        ] {
            assert_eq!(
                paths(None, Reader::Hook, variables),
                [SYSTEM],
                "{variables:?}"
            );
        }
        let both = [("XDG_CONFIG_HOME", "/xdg"), ("HOME", "/home/me")];
        assert_eq!(
            paths(None, Reader::Hook, &both),
            ["/xdg/lanekeeper/lanekeeper.toml", SYSTEM]
        );
    }

    #[test]
    fn a_file_that_is_named_is_the_only_one_and_dev_null_is_none() {
        let home = [("HOME", "/home/me")];
        assert_eq!(paths(Some("a.toml"), Reader::Command, &home), ["a.toml"]);
        assert_eq!(paths(Some("/dev/null"), Reader::Command, &home), [""; 0]);
    }

    #[test]
    fn the_first_file_that_exists_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let second = dir.path().join("second");
        std::fs::write(&second, "# second").unwrap();
        std::fs::write(dir.path().join("plain"), "").unwrap();
        let places = ["missing", "plain/below", "second"].map(|name| ConfigFile {
            path: dir.path().join(name),
            place: Place::User,
        });
        let found = read(places.to_vec()).unwrap().unwrap();
        assert_eq!(
            (found.file.path, found.text),
            (second, "# second".to_owned())
        );
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once_in_every_place() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let zero = dir.path().join("zero");
        symlink("/dev/zero", &zero).unwrap();
        for place in [Place::Named, Place::User, Place::System] {
            let told = read_at(&fifo, place).unwrap_err();
            assert!(told.contains("it is a FIFO"), "{told}");
            let told = read_at(&zero, place).unwrap_err();
            assert!(told.contains("it is a device"), "{told}");
            let told = read_at(dir.path(), place).unwrap_err();
            assert!(told.contains("it is a directory"), "{told}");
        }
        let told = read_at(&fifo, Place::WorkingDirectory).unwrap_err();
        assert!(told.contains("it is a FIFO"), "{told}");
    }

    #[test]
    fn a_link_is_followed_where_the_user_said_so_and_not_in_the_working_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "# text").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read_at(&link, Place::Named).unwrap(), "# text");
        let told = read_at(&link, Place::WorkingDirectory).unwrap_err();
        assert!(told.contains("it is a symbolic link"), "{told}");
    }

    #[test]
    fn a_file_above_the_bound_is_refused_and_one_at_the_bound_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let comment = |bytes: usize| "#".repeat(bytes);
        let max = usize::try_from(MAX_BYTES).unwrap();
        std::fs::write(&path, comment(max)).unwrap();
        assert_eq!(read_at(&path, Place::Named).unwrap().len(), max);
        std::fs::write(&path, comment(max + 1)).unwrap();
        let told = read_at(&path, Place::Named).unwrap_err();
        assert!(told.contains("larger than 1048576 bytes"), "{told}");
    }

    #[test]
    fn in_the_working_directory_nobody_but_the_user_and_root_decides() {
        let me = 1000;
        for (owner, group, mode, fits) in [
            (me, me, 0o644, true),
            (me, me, 0o664, true),
            (me, 50, 0o644, true),
            (me, 50, 0o664, false),
            (me, me, 0o646, false),
            (0, 0, 0o644, true),
            (0, 0, 0o664, true),
            (0, me, 0o664, false),
            (1001, me, 0o644, false),
        ] {
            let judged = judge_owner(owner, group, mode, me);
            assert_eq!(judged.is_ok(), fits, "{owner}:{group} {mode:o}");
        }
        assert!(
            judge_owner(me, me, 0o600, 0).is_err(),
            "root obeys nobody else"
        );
    }
}
