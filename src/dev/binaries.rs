//! Where PostgreSQL's server programs are.
//!
//! Distributions keep them off the PATH, one directory per major version. All places are looked
//! at before one is chosen: a data directory can only be opened by the major that wrote it, and a
//! new one goes to the newest.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::DevError;
use super::version::{MAX_MAJOR, MIN_MAJOR};

/// `PARENT/PREFIX*/SUFFIX` of the packages that we know, below the root.
const PLACES: [(&str, &str, &str); 14] = [
    // Debian and Ubuntu, RPMs of PostgreSQL's own, Alpine, SUSE, Gentoo, MacPorts.
    ("usr/lib/postgresql", "", "bin"),
    ("usr", "pgsql-", "bin"),
    ("usr/libexec", "postgresql", ""),
    ("usr/lib", "postgresql", "bin"),
    ("usr/lib64", "postgresql-", "bin"),
    ("opt/local/lib", "postgresql", "bin"),
    // Homebrew on Apple silicon, on Intel, on Linux.
    ("opt/homebrew/opt", "postgresql", "bin"),
    ("usr/local/opt", "postgresql", "bin"),
    ("home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),
    // From source, installers.
    ("usr/local", "pgsql", "bin"),
    ("opt/PostgreSQL", "", "bin"),
    ("opt", "pgsql", "bin"),
    ("Library/PostgreSQL", "", "bin"),
    ("Applications/Postgres.app/Contents/Versions", "", "bin"),
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
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = usable(&candidates(&path, Path::new("/")));
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

/// Everywhere that a server may be: the PATH, what `pg_config` of the PATH says, and the places of
/// packages below `root`.
fn candidates(path: &OsStr, root: &Path) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .collect();
    let pg_config = dirs.iter().map(|dir| dir.join("pg_config"));
    if let Some(pg_config) = pg_config.into_iter().find(|file| file.is_file())
        && let Ok(output) = Command::new(pg_config).arg("--bindir").output()
    {
        dirs.push(PathBuf::from(
            String::from_utf8_lossy(&output.stdout).trim(),
        ));
    }
    for (parent, prefix, suffix) in PLACES {
        let Ok(entries) = std::fs::read_dir(root.join(parent)) else {
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

/// Those that can be used, newest first. A place without a server, or with one that is too old, is
/// no error: another may do.
fn usable(candidates: &[PathBuf]) -> Vec<Binaries> {
    let mut dirs: Vec<PathBuf> = candidates
        .iter()
        .filter_map(|dir| dir.canonicalize().ok())
        .collect();
    dirs.sort();
    dirs.dedup();
    let mut found: Vec<Binaries> = dirs
        .iter()
        .filter_map(|dir| Binaries::probe(dir).ok())
        .collect();
    found.sort_by_key(|binaries| std::cmp::Reverse(binaries.major));
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// An installation that only knows its version.
    fn fake(name: &str, version: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("lanekeeper-binaries-{}-{name}", std::process::id()));
        install(&dir, version);
        dir
    }

    fn install(dir: &Path, version: &str) {
        for program in ["postgres", "initdb"] {
            write_program(&dir.join(program), version);
        }
    }

    fn write_program(path: &Path, prints: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("#!/bin/sh\necho '{prints}'\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
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

    #[test]
    fn every_major_is_found_where_packages_put_it_on_the_path_and_where_pg_config_says() {
        let root = fake("root", "postgres (PostgreSQL) 9.6");
        for (dir, version) in [
            ("usr/lib/postgresql/14/bin", "14.23"),
            ("usr/lib/postgresql/13/bin", "13.1"),
            ("usr/pgsql-15/bin", "15.18"),
            ("usr/libexec/postgresql16", "16.14"),
            ("usr/lib/postgresql17/bin", "17.10"),
            ("opt/homebrew/opt/postgresql@18/bin", "18.4"),
            ("Library/PostgreSQL/17/bin", "17.2"),
            ("somewhere/else/bin", "16.1"),
            ("told/by/pg_config", "15.1"),
        ] {
            install(&root.join(dir), &format!("postgres (PostgreSQL) {version}"));
        }
        let told = root.join("told/by/pg_config");
        write_program(&root.join("tools/pg_config"), told.to_str().unwrap());
        let path = [root.join("somewhere/else/bin"), root.join("tools")];
        let path = std::env::join_paths(path).unwrap();
        let found = usable(&candidates(&path, &root));
        std::fs::remove_dir_all(&root).unwrap();
        let mut versions: Vec<&str> = found.iter().map(|one| one.version.as_str()).collect();
        let majors: Vec<u32> = found.iter().map(|one| one.major).collect();
        assert_eq!(majors, [18, 17, 17, 16, 16, 15, 15, 14]);
        versions.sort_unstable();
        assert_eq!(
            versions,
            [
                "14.23", "15.1", "15.18", "16.1", "16.14", "17.10", "17.2", "18.4"
            ]
        );
    }
}
