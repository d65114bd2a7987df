//! What an adapter may take from the process that runs it: secrets by name, and what the operator
//! allows. Subscriptions live in the database and name their secrets only; the values never do.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use super::memory::{Memory, ProcessMemory};

/// The worker's side of an adapter's settings.
pub struct Environment {
    /// Whether a webhook may reach loopback, private and link-local addresses.
    pub allow_private_targets: bool,
    variables: Variables,
    memory: Arc<dyn Memory>,
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
    pub fn of_process(allow_private_targets: bool) -> Self {
        Self {
            allow_private_targets,
            variables: Variables::Process,
            memory: Arc::new(ProcessMemory::default()),
        }
    }

    /// Looks secrets up in `variables` instead, for embedding programs and tests.
    pub fn with_variables<K: Into<String>, V: Into<String>>(
        allow_private_targets: bool,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let variables = variables.into_iter().map(|(k, v)| (k.into(), v.into()));
        Self {
            allow_private_targets,
            variables: Variables::Given(variables.collect()),
            memory: Arc::new(ProcessMemory::default()),
        }
    }

    /// Has adapters remember there what they sent. Without it they forget it with the process, and its
    /// successor sends anew what it should edit.
    #[must_use]
    pub fn with_memory(mut self, memory: Arc<dyn Memory>) -> Self {
        self.memory = memory;
        self
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
            (None, Some(path)) => match std::fs::read_to_string(&path) {
                Ok(content) => Ok(content.trim().to_owned()),
                Err(source) => Err(SecretError::Unreadable { name, path, source }),
            },
            (None, None) => Err(SecretError::Missing { name }),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        match &self.variables {
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
