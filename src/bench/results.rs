//! Results that were kept as JSON, read again.

use std::path::{Path, PathBuf};

use super::report::Line;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {}", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    #[error("line {line} of {} is no result of `lanekeeper bench --output json`", path.display())]
    Line {
        path: PathBuf,
        line: usize,
        source: serde_json::Error,
    },
}

/// The lines of one file.
///
/// # Errors
/// Where it cannot be read, or holds anything else.
pub fn read(path: &Path) -> Result<Vec<Line>, ReadError> {
    let text = std::fs::read_to_string(path).map_err(|e| ReadError::File(path.to_owned(), e))?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, text)| !text.trim().is_empty());
    lines
        .map(|(number, text)| {
            serde_json::from_str(text).map_err(|source| ReadError::Line {
                path: path.to_owned(),
                line: number + 1,
                source,
            })
        })
        .collect()
}
