//! What can be wrong with a configuration, and where a setting came from.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use lanekeeper_core::toml_file::Position;

/// Where a setting's value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File {
        path: PathBuf,
        line: usize,
    },
    /// The environment variable's name.
    Variable(String),
    /// The file that a `…_FILE` variable named.
    SecretFile {
        variable: String,
        path: PathBuf,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::SecretFile { variable, path } => write!(f, "{variable} ({})", path.display()),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("{origin}: unknown key {key}{}", suggestion(nearest.as_deref()))]
    UnknownKey {
        key: String,
        origin: Origin,
        nearest: Option<String>,
    },
    #[error("environment: unknown variable {variable}{}", suggestion(nearest.as_deref()))]
    UnknownVariable {
        variable: String,
        nearest: Option<String>,
    },
    #[error("{origin}: {key} = {value}: {reason}")]
    Value {
        key: String,
        value: String,
        origin: Origin,
        reason: String,
    },
    #[error("{variable}: the file {} cannot be read: {reason}", path.display())]
    SecretFile {
        key: String,
        variable: String,
        path: PathBuf,
        reason: io::Error,
    },
    #[error("{variable} and {variable}_FILE are both set: keep one of them")]
    SecretTwice { key: String, variable: String },
    #[error("{variable}: the value is not valid UTF-8")]
    NotUnicode { key: String, variable: String },
}

impl Problem {
    /// The setting that it is about, if there is one.
    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::UnknownKey { .. } | Self::UnknownVariable { .. } => None,
            Self::Value { key, .. }
            | Self::SecretFile { key, .. }
            | Self::SecretTwice { key, .. }
            | Self::NotUnicode { key, .. } => Some(key),
        }
    }
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest
        .map(|known| format!(" (did you mean {known}?)"))
        .unwrap_or_default()
}

/// Why a file that is there is not read.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("it is {0}, and only a regular file is read")]
    NotRegular(&'static str),
    #[error("it is larger than {max} bytes")]
    TooLarge { max: u64 },
    #[error(
        "it is a symbolic link, which is not followed from the working directory. Name the file with --config"
    )]
    Link,
    #[error(
        "it belongs to user {owner}, and this is user {user}: in the working directory only a file of your own or of \
         root counts. Read it, then name it with --config"
    )]
    Owner { owner: u32, user: u32 },
    #[error(
        "others may write it (mode {mode:04o}): take that away with `chmod go-w`, or name it with --config"
    )]
    Writable { mode: u32 },
}

/// Why there is no configuration to start with.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the configuration file {} does not exist", path.display())]
    FileMissing { path: PathBuf },
    #[error("the configuration file {} cannot be read", path.display())]
    FileUnreadable { path: PathBuf, source: io::Error },
    #[error("the configuration file {} is refused: {reason}", path.display())]
    FileRefused { path: PathBuf, reason: Refusal },
    #[error("{}:{position}: not valid TOML: {message}", path.display())]
    FileSyntax {
        path: PathBuf,
        position: Position,
        message: String,
    },
    #[error("the configuration is refused{}", list(.0))]
    Refused(Vec<Problem>),
}

fn list(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|problem| format!("\n  {problem}"))
        .collect()
}

/// Where each setting came from that is not a default.
#[derive(Clone, Debug, Default)]
pub struct Origins(pub(super) BTreeMap<String, Origin>);

impl Origins {
    pub fn of(&self, key: &str) -> Origin {
        self.0.get(key).cloned().unwrap_or(Origin::Default)
    }
}
