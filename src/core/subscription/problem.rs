//! What is wrong with a subscription file, and where.

use std::fmt;

use crate::toml_file::Position;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub position: Position,
    /// The key's full path; empty where the text is no TOML at all.
    pub key: String,
    pub reason: String,
}

/// Everything that is wrong with a file. Nothing of it was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", list(origin, problems))]
pub struct FileError {
    /// The file's name as the user gave it.
    pub origin: String,
    pub problems: Vec<Problem>,
}

fn list(origin: &str, problems: &[Problem]) -> String {
    match problems {
        [only] => format!("{origin}:{only}"),
        _ => {
            let lines = problems
                .iter()
                .map(|problem| format!("\n  {origin}:{problem}"));
            format!(
                "{} problems in {origin}{}",
                problems.len(),
                lines.collect::<String>()
            )
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            position,
            key,
            reason,
        } = self;
        match key.as_str() {
            "" => write!(f, "{position}: {reason}"),
            _ => write!(f, "{position}: {key}: {reason}"),
        }
    }
}
