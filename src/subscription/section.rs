//! One table of the file while it is read: known keys are taken out of it, and what is left over
//! is either the adapter's or wrong.

use lanekeeper_core::subscription::Problem;
use lanekeeper_core::toml_file::{Position, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key that nobody has taken yet.
pub(super) struct Entry<'t> {
    pub(super) name: &'t str,
    pub(super) offset: usize,
    pub(super) value: &'t Spanned<DeValue<'t>>,
}

pub(super) struct Section<'t> {
    pub(super) text: &'t str,
    pub(super) path: String,
    offset: usize,
    entries: Vec<Entry<'t>>,
    /// The keys that were asked for: what a wrong one may have meant.
    known: Vec<&'static str>,
    pub(super) problems: Vec<Problem>,
}

impl<'t> Section<'t> {
    pub(super) fn new(text: &'t str, path: String, offset: usize, table: &'t DeTable<'t>) -> Self {
        let entries = table
            .iter()
            .map(|(key, value)| Entry {
                name: key.get_ref(),
                offset: key.span().start,
                value,
            })
            .collect();
        Self {
            entries,
            ..Self::without_entries(text, path, offset)
        }
    }

    /// For a value that should have been a table.
    pub(super) fn without_entries(text: &'t str, path: String, offset: usize) -> Self {
        Self {
            text,
            path,
            offset,
            entries: Vec::new(),
            known: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Whether a key is there, and was not taken.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == key)
    }

    pub(super) fn position(&self) -> Position {
        Position::of(self.text, self.offset)
    }

    /// Takes an optional key; a value that cannot be read is a problem and counts as absent.
    pub(super) fn take<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.remove(key)?;
        match read(value.get_ref()) {
            Ok(value) => Some(value),
            Err(reason) => {
                self.refuse(value.span().start, key, reason);
                None
            }
        }
    }

    /// Takes a key that must be there.
    pub(super) fn require<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<T> {
        if !self.entries.iter().any(|entry| entry.name == key) {
            self.known.push(key);
            self.refuse(self.offset, key, "is missing");
            return None;
        }
        self.take(key, read)
    }

    /// Refuses what resembles a key that is not there; without it nobody would judge that entry.
    pub(super) fn refuse_misspelt(&mut self, key: &'static str) -> bool {
        if self.entries.iter().any(|entry| entry.name == key) {
            return false;
        }
        let similar = nearest(key, self.entries.iter().map(|entry| entry.name));
        let Some(at) = self
            .entries
            .iter()
            .position(|entry| Some(entry.name) == similar)
        else {
            return false;
        };
        let entry = self.entries.remove(at);
        self.refuse(
            entry.offset,
            entry.name,
            format!("unknown key; did you mean {key}?"),
        );
        true
    }

    /// Takes a table inside this one, written `key = { … }` or `[section.key]`.
    pub(super) fn section(&mut self, key: &'static str) -> Option<Section<'t>> {
        let value = self.remove(key)?;
        let offset = value.span().start;
        match value.get_ref() {
            DeValue::Table(table) => Some(Section::new(
                self.text,
                format!("{}.{key}", self.path),
                offset,
                table,
            )),
            other => {
                let reason = format!("must be a table, but is a {}", other.type_str());
                self.refuse(offset, key, reason);
                None
            }
        }
    }

    /// Takes all that is left.
    pub(super) fn rest(&mut self) -> Vec<Entry<'t>> {
        std::mem::take(&mut self.entries)
    }

    /// Records that `key`, at `offset` in the file, is wrong.
    pub(super) fn refuse(&mut self, offset: usize, key: &str, reason: impl Into<String>) {
        self.problems.push(Problem {
            position: Position::of(self.text, offset),
            key: if key.is_empty() {
                self.path.clone()
            } else {
                format!("{}.{key}", self.path)
            },
            reason: reason.into(),
        });
    }

    /// Records that the section as a whole is wrong.
    pub(super) fn refuse_whole(&mut self, reason: impl Into<String>) {
        self.refuse(self.offset, "", reason);
    }

    /// Records an unknown key; `more` are known beside those that were asked for.
    pub(super) fn refuse_unknown(&mut self, offset: usize, name: &str, more: &[&'static str]) {
        let known = self.known.iter().chain(more).copied();
        let reason = match nearest(name, known.clone()) {
            Some(meant) => format!("unknown key; did you mean {meant}?"),
            None => format!(
                "unknown key; known are {}",
                known.collect::<Vec<_>>().join(", ")
            ),
        };
        self.refuse(offset, name, reason);
    }

    /// Refuses all that is left.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        for entry in self.rest() {
            self.refuse_unknown(entry.offset, entry.name, &[]);
        }
        self.problems
    }

    /// Takes what an optional key has, to be read elsewhere.
    pub(super) fn remove(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known.push(key);
        let index = self.entries.iter().position(|entry| entry.name == key)?;
        Some(self.entries.remove(index).value)
    }
}
