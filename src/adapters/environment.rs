//! What an adapter may use of its process: secrets by name, and what the operator allows. Subscriptions in the database
//! contain only the names of their secrets, never the values.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lanekeeper_core::memory::{Memory, ProcessMemory};
use lanekeeper_core::network::PrivateTargets;
use lanekeeper_core::terminal::{NoTerminals, Terminals};
use thiserror::Error;

use super::attachments::Attachments;
use super::file_system;

/// The worker's side of an adapter's settings.
#[derive(Clone)]
pub struct Environment {
    /// Which loopback, private and link-local addresses deliveries may reach.
    pub allow_private_targets: PrivateTargets,
    variables: Arc<Variables>,
    memory: Arc<dyn Memory>,
    terminals: Arc<dyn Terminals>,
    attachments: Option<Attachments>,
    /// The files that secrets were read from, by all copies.
    marks: Arc<Mutex<Vec<Mark>>>,
}

/// A secret's file as it was at a moment.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    path: PathBuf,
    stamp: Option<Stamp>,
}

/// What distinguishes the contents that a path has over time: a file that replaced another has another inode, one that
/// was written to another time. `None`: there is none that may be looked at.
type Stamp = (u64, u64, u64, [i64; 4]);

impl Mark {
    fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            stamp: stamp(path),
        }
    }

    /// Whether the file is still the one that it was.
    ///
    /// # Errors
    /// Its file system does not answer.
    pub(super) fn stands(&self) -> io::Result<bool> {
        file_system::ask(&self.path, stamp).map(|stamp| stamp == self.stamp)
    }
}

/// Through symlinks, so that a link that leads elsewhere is another file.
fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    let times = [
        file.mtime(),
        file.mtime_nsec(),
        file.ctime(),
        file.ctime_nsec(),
    ];
    Some((file.dev(), file.ino(), file.size(), times))
}

enum Variables {
    Process,
    Given(HashMap<String, String>),
}

/// Why a secret could not be had. Holds names and paths, never a value.
#[derive(Debug, Error)]
pub enum SecretError {
    #[error("neither {name} nor {name}_FILE is set for this process")]
    Missing { name: String },
    #[error("both {name} and {name}_FILE are set; keep one")]
    Ambiguous { name: String },
    #[error("{name}_FILE names {}, which cannot be read", path.display())]
    Unreadable {
        name: String,
        path: PathBuf,
        source: std::io::Error,
    },
}

impl Environment {
    /// Looks secrets up in the environment of this process, at every build anew.
    pub fn of_process(allow_private_targets: impl Into<PrivateTargets>) -> Self {
        Self {
            allow_private_targets: allow_private_targets.into(),
            variables: Arc::new(Variables::Process),
            memory: Arc::new(ProcessMemory::default()),
            terminals: Arc::new(NoTerminals),
            attachments: None,
            marks: Arc::default(),
        }
    }

    /// Looks secrets up in `variables` instead, for embedding programs and tests.
    pub fn with_variables<K: Into<String>, V: Into<String>>(
        allow_private_targets: impl Into<PrivateTargets>,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let variables = variables.into_iter().map(|(k, v)| (k.into(), v.into()));
        Self {
            allow_private_targets: allow_private_targets.into(),
            variables: Arc::new(Variables::Given(variables.collect())),
            memory: Arc::new(ProcessMemory::default()),
            terminals: Arc::new(NoTerminals),
            attachments: None,
            marks: Arc::default(),
        }
    }

    /// Has adapters remember there what they sent. Without it they forget it with the process, and its
    /// successor sends anew what it should edit.
    #[must_use]
    pub fn with_memory(mut self, memory: Arc<dyn Memory>) -> Self {
        self.memory = memory;
        self
    }

    /// Has adapters that type into terminals keep their record there. Without it they type nothing.
    #[must_use]
    pub fn with_terminals(mut self, terminals: Arc<dyn Terminals>) -> Self {
        self.terminals = terminals;
        self
    }

    /// Has attachments of messages fetched there. Without it none is.
    #[must_use]
    pub fn with_attachments(mut self, attachments: Option<Attachments>) -> Self {
        self.attachments = attachments;
        self
    }

    /// Where attachments are kept.
    pub fn attachments(&self) -> Option<&Attachments> {
        self.attachments.as_ref()
    }

    /// A copy that takes note of the files that it reads.
    pub(super) fn recording(&self) -> Self {
        Self {
            marks: Arc::default(),
            ..self.clone()
        }
    }

    /// The files that were read, as they were before that.
    pub(super) fn marks(&self) -> Vec<Mark> {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.clone()
    }

    pub(super) fn terminals(&self) -> Arc<dyn Terminals> {
        Arc::clone(&self.terminals)
    }

    pub(super) fn memory(&self) -> Arc<dyn Memory> {
        Arc::clone(&self.memory)
    }

    /// The secret `name`: the variable of that name, or the content of the file that `name_FILE`
    /// names, without the white space around it.
    pub fn secret(&self, name: &str) -> Result<String, SecretError> {
        let file = self.variable(&format!("{name}_FILE")).map(PathBuf::from);
        let name = name.to_owned();
        match (self.variable(&name), file) {
            (Some(_), Some(_)) => Err(SecretError::Ambiguous { name }),
            (Some(value), None) => Ok(value),
            (None, Some(path)) => {
                let read = file_system::ask(&path, |path| {
                    Ok((Mark::of(path), std::fs::read_to_string(path)?))
                });
                match read.and_then(std::convert::identity) {
                    Ok((mark, content)) => {
                        self.note(mark);
                        Ok(content.trim().to_owned())
                    }
                    Err(source) => Err(SecretError::Unreadable { name, path, source }),
                }
            }
            (None, None) => Err(SecretError::Missing { name }),
        }
    }

    fn note(&self, mark: Mark) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.push(mark);
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        match &*self.variables {
            Variables::Process => std::env::var(name).ok(),
            Variables::Given(given) => given.get(name).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn secret_comes_from_the_variable_or_from_the_file_it_names() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "from-file").unwrap();
        let path = file.path().to_str().unwrap();
        let environment = Environment::with_variables(
            false,
            [("PLAIN", "from-variable"), ("MOUNTED_FILE", path)],
        );
        assert_eq!(environment.secret("PLAIN").unwrap(), "from-variable");
        assert_eq!(environment.secret("MOUNTED").unwrap(), "from-file");
    }

    #[test]
    fn absent_doubled_and_unreadable_secrets_are_told_apart() {
        let environment = Environment::with_variables(
            false,
            [
                ("TWICE", "a"),
                ("TWICE_FILE", "/b"),
                ("LOST_FILE", "/nonexistent/secret"),
            ],
        );
        let absent = environment.secret("ABSENT").unwrap_err();
        assert_eq!(
            absent.to_string(),
            "neither ABSENT nor ABSENT_FILE is set for this process"
        );
        assert!(matches!(
            environment.secret("TWICE"),
            Err(SecretError::Ambiguous { .. })
        ));
        assert!(matches!(
            environment.secret("LOST"),
            Err(SecretError::Unreadable { .. })
        ));
    }
}
