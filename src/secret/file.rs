//! A secret's file, which may be replaced while the process runs, as Kubernetes does with a mounted Secret.
//!
//! It is read where the secret is used next, a connection for instance. What cannot be used (no file, an empty
//! one, a value of the wrong form) changes nothing: the last value that could be used stays, and the log says so,
//! once for each reason, and never what the file holds.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Copies share what was read last.
#[derive(Clone)]
pub(super) struct SecretFile(Arc<Inner>);

struct Inner {
    /// The variable that names it.
    variable: String,
    path: PathBuf,
    kept: Mutex<Kept>,
}

struct Kept {
    value: String,
    /// Why what it holds now is not used, as it was said.
    trouble: Option<Trouble>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Trouble {
    Unreadable(ErrorKind),
    Empty,
    Refused(String),
}

impl Trouble {
    fn reason(&self) -> String {
        match self {
            Self::Unreadable(kind) => format!("it cannot be read: {kind}"),
            Self::Empty => "it is empty".to_owned(),
            Self::Refused(reason) => reason.clone(),
        }
    }
}

/// What a file says, without the newline that editors and `echo` end it with.
pub fn without_newline(text: &str) -> &str {
    text.trim_end_matches(['\r', '\n'])
}

impl SecretFile {
    /// `value`: what it held when the process started.
    pub(super) fn new(variable: String, path: &Path, value: &str) -> Self {
        Self(Arc::new(Inner {
            variable,
            path: path.to_owned(),
            kept: Mutex::new(Kept {
                value: value.to_owned(),
                trouble: None,
            }),
        }))
    }

    /// What it holds, if `judge` finds that it can be used, else what it held before.
    pub(super) async fn read(&self, judge: impl FnOnce(&str) -> Result<(), String>) -> String {
        let found = match tokio::fs::read_to_string(&self.0.path).await {
            Ok(text) if text.trim().is_empty() => Err(Trouble::Empty),
            Ok(text) => Ok(without_newline(&text).to_owned()),
            Err(error) => Err(Trouble::Unreadable(error.kind())),
        };
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let judged = found.and_then(|value| match value == kept.value {
            true => Ok(None),
            false => judge(&value)
                .map(|()| Some(value))
                .map_err(Trouble::Refused),
        });
        let (variable, path) = (&*self.0.variable, self.0.path.display());
        match judged {
            Ok(renewed) => {
                if let Some(value) = renewed {
                    tracing::info!(variable, %path, "a secret was replaced in its file, and is used from now on");
                    kept.value = value;
                }
                kept.trouble = None;
            }
            Err(trouble) if kept.trouble.as_ref() != Some(&trouble) => {
                let reason = trouble.reason();
                tracing::warn!(
                    variable, %path, reason,
                    "the file of a secret cannot be used: what it held before stays in use. Mend the file"
                );
                kept.trouble = Some(trouble);
            }
            Err(_) => {}
        }
        kept.value.clone()
    }
}
