//! Values that must not be printed, and that may be replaced in their files.

mod file;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};

pub use file::without_newline;

use file::SecretFile;

/// Shown in place of what is secret.
pub const MASK: &str = "***";

/// A value that neither `Debug` nor serialisation shows.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub struct Secret {
    value: String,
    /// Where it was read, if it may be replaced there.
    file: Option<SecretFile>,
}

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            file: None,
        }
    }

    /// The value itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// It was read from this file, which `variable` names.
    #[must_use]
    pub fn of_file(self, variable: &str, path: &Path) -> Self {
        let file = SecretFile::new(variable.to_owned(), path, &self.value);
        Self {
            file: Some(file),
            ..self
        }
    }

    /// Whether it may change while the process runs.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// The secret as its file holds it now, or as it was last when that could be used. `judge` says why a new
    /// value cannot be, without repeating it.
    pub async fn current(&self, judge: impl FnOnce(&str) -> Result<(), String>) -> Self {
        let value = match &self.file {
            Some(file) => file.read(judge).await,
            None => self.value.clone(),
        };
        Self {
            value,
            file: self.file.clone(),
        }
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_follows_its_file_as_far_as_that_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "first\n").unwrap();
        let secret = Secret::new("first").of_file("PW_FILE", &path);
        let judge = |text: &str| match text {
            "bad" => Err("it is bad".to_owned()),
            _ => Ok(()),
        };
        for (written, current) in [
            ("second\r\n", "second"),
            ("", "second"),
            (" \n", "second"),
            ("bad", "second"),
            ("third", "third"),
        ] {
            std::fs::write(&path, written).unwrap();
            assert_eq!(secret.current(judge).await.expose(), current, "{written:?}");
        }
        std::fs::remove_file(&path).unwrap();
        let last = secret.clone().current(judge).await;
        assert_eq!(last.expose(), "third", "copies share what was read");
        assert_eq!(format!("{last:?}"), MASK);
        assert_eq!(secret.expose(), "first");
        let fixed = Secret::new("fixed").current(|_| Ok(())).await;
        assert_eq!((fixed.expose(), fixed.is_in_file()), ("fixed", false));
    }

    #[test]
    fn a_secret_shows_itself_in_neither_debug_nor_json() {
        let secret = Secret::new("pw");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
        assert_eq!(secret.expose(), "pw");
    }
}
