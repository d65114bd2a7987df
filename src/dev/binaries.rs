//! Where PostgreSQL's server programs are.
//!
//! Distributions keep them off the PATH, one directory per major version. All places are looked
//! at before one is chosen: a data directory can only be opened by the major that wrote it, and a
//! new one goes to the newest.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::DevError;

/// The majors that Lanekeeper is tested with.
pub const MIN_MAJOR: u32 = 14;
pub const MAX_MAJOR: u32 = 18;

/// `PARENT/PREFIX*/SUFFIX` of the packages that we know.
const PLACES: [(&str, &str, &str); 7] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/opt/homebrew/opt", "postgresql", "bin"),
    ("/usr/local/opt", "postgresql", "bin"),
    ("/usr/local", "pgsql", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// One installation: a directory with `postgres` and `initdb` of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    pub dir: PathBuf,
    pub major: u32,
    /// As the server prints it, e.g. `15.14 (Debian 15.14-0+deb12u1)`.
    pub version: String,
}

impl Binaries {
    /// The installation in `explicit`, which must be usable, else all that are found, newest first.
    pub(super) fn find(explicit: Option<&Path>) -> Result<Vec<Self>, DevError> {
        if let Some(path) = explicit {
            let dir = if path.is_file() {
                path.parent().unwrap_or(path)
            } else {
                path
            };
            return Self::probe(dir)
                .map(|binaries| vec![binaries])
                .map_err(|reason| DevError::UnusableServer {
                    dir: dir.to_owned(),
                    reason,
                });
        }
        let mut dirs: Vec<PathBuf> = candidates()
            .iter()
            .filter_map(|dir| dir.canonicalize().ok())
            .collect();
        dirs.sort();
        dirs.dedup();
        // A place without a server, or with one that is too old, is no error: another may do.
        let mut found: Vec<Self> = dirs
            .iter()
            .filter_map(|dir| Self::probe(dir).ok())
            .collect();
        found.sort_by_key(|binaries| std::cmp::Reverse(binaries.major));
        if found.is_empty() {
            Err(DevError::NoServer)
        } else {
            Ok(found)
        }
    }

    /// Picks the one for a data directory written by `major`; for a new one, the first.
    pub(super) fn choose(
        found: Vec<Self>,
        major: Option<u32>,
        data_dir: &Path,
    ) -> Result<Self, DevError> {
        let versions: Vec<String> = found
            .iter()
            .map(|binaries| format!("{} in {}", binaries.version, binaries.dir.display()))
            .collect();
        found
            .into_iter()
            .find(|binaries| major.is_none_or(|major| binaries.major == major))
            .ok_or_else(|| match major {
                Some(wanted) => DevError::MajorGone {
                    data_dir: data_dir.to_owned(),
                    wanted,
                    found: versions.join(", "),
                },
                None => DevError::NoServer,
            })
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn probe(dir: &Path) -> Result<Self, String> {
        for name in ["postgres", "initdb"] {
            if !dir.join(name).is_file() {
                return Err(format!("it has no program `{name}`"));
            }
        }
        let output = Command::new(dir.join("postgres"))
            .arg("--version")
            .output()
            .map_err(|error| format!("`postgres --version` does not run: {error}"))?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let version = printed
            .trim()
            .trim_start_matches("postgres (PostgreSQL) ")
            .to_owned();
        let digits = version
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(version.len());
        let major: u32 = version[..digits]
            .parse()
            .map_err(|_| format!("`postgres --version` printed {printed:?}"))?;
        if !(MIN_MAJOR..=MAX_MAJOR).contains(&major) {
            return Err(format!(
                "it is PostgreSQL {major}; {MIN_MAJOR} to {MAX_MAJOR} are supported"
            ));
        }
        Ok(Self {
            dir: dir.to_owned(),
            major,
            version,
        })
    }
}

fn candidates() -> Vec<PathBuf> {
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .collect();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        dirs.push(PathBuf::from(
            String::from_utf8_lossy(&output.stdout).trim(),
        ));
    }
    for (parent, prefix, suffix) in PLACES {
        let Ok(entries) = std::fs::read_dir(parent) else {
            continue;
        };
        dirs.extend(
            entries
                .flatten()
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
                .map(|entry| entry.path().join(suffix)),
        );
    }
    dirs
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// An installation that only knows its version.
    fn fake(name: &str, version: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("lanekeeper-binaries-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for program in ["postgres", "initdb"] {
            let path = dir.join(program);
            std::fs::write(&path, format!("#!/bin/sh\necho '{version}'\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        dir
    }

    fn found(majors: &[u32]) -> Vec<Binaries> {
        majors
            .iter()
            .map(|&major| Binaries {
                dir: format!("/pg/{major}").into(),
                major,
                version: major.to_string(),
            })
            .collect()
    }

    #[test]
    fn reads_the_major_of_releases_and_of_pre_releases() {
        for (name, printed, major) in [
            (
                "release",
                "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)",
                15,
            ),
            ("beta", "postgres (PostgreSQL) 18beta1", 18),
        ] {
            let dir = fake(name, printed);
            let probed = Binaries::find(Some(&dir)).unwrap();
            std::fs::remove_dir_all(&dir).unwrap();
            assert_eq!(probed[0].major, major);
        }
    }

    #[test]
    fn an_explicit_directory_is_used_or_refused_but_never_replaced_by_another() {
        let old = fake("old", "postgres (PostgreSQL) 12.4");
        let error = Binaries::find(Some(&old)).unwrap_err().to_string();
        std::fs::remove_dir_all(&old).unwrap();
        assert!(error.contains("it is PostgreSQL 12"), "{error}");
        let error = Binaries::find(Some(Path::new("/nonexistent")))
            .unwrap_err()
            .to_string();
        assert!(error.contains("no program `postgres`"), "{error}");
    }

    #[test]
    fn a_new_data_directory_gets_the_newest_and_an_old_one_the_major_that_wrote_it() {
        let dir = Path::new("/data");
        assert_eq!(
            Binaries::choose(found(&[17, 15]), None, dir).unwrap().major,
            17
        );
        assert_eq!(
            Binaries::choose(found(&[17, 15]), Some(15), dir)
                .unwrap()
                .major,
            15
        );
        let error = Binaries::choose(found(&[17, 15]), Some(14), dir)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("written by PostgreSQL 14") && error.contains("17 in /pg/17, 15 in"),
            "{error}"
        );
    }
}
