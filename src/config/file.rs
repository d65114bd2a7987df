//! The layer of the TOML file: sections of keys, each setting with the line it stands in.

use std::path::PathBuf;

use lanekeeper_core::toml_file::Position;
use toml::de::{DeTable, DeValue};

use super::find::Found;
use super::problem::{ConfigError, Origin, Problem};
use super::schema::{self, Schema, Setting};

/// The settings of the file.
pub(super) fn read(
    found: &Found,
    schema: &Schema,
    problems: &mut Vec<Problem>,
) -> Result<Vec<Setting>, ConfigError> {
    let (text, path) = (&found.text, found.file.path.clone());
    match DeTable::parse(text) {
        Ok(table) => Ok(Reader {
            path,
            text,
            schema,
            problems,
        }
        .sections(table.get_ref())),
        Err(error) => Err(ConfigError::FileSyntax {
            position: Position::of_error(text, &error),
            message: error.message().to_owned(),
            path,
        }),
    }
}

struct Reader<'r> {
    path: PathBuf,
    text: &'r str,
    schema: &'r Schema,
    problems: &'r mut Vec<Problem>,
}

impl Reader<'_> {
    fn sections(mut self, table: &DeTable<'_>) -> Vec<Setting> {
        let mut settings = Vec::new();
        for (section, content) in table {
            let Some(keys) = content.get_ref().as_table() else {
                self.unknown(section.get_ref().to_string(), section.span().start);
                continue;
            };
            for (name, value) in keys {
                let key = format!("{}.{}", section.get_ref(), name.get_ref());
                settings.extend(self.setting(key, name.span().start, value.get_ref()));
            }
        }
        settings
    }

    fn setting(&mut self, key: String, offset: usize, value: &DeValue<'_>) -> Option<Setting> {
        let Some(kind) = self.schema.kind(&key) else {
            self.unknown(key, offset);
            return None;
        };
        let origin = self.origin(offset);
        match kind.read_toml(value) {
            Ok(value) => Some(Setting { key, value, origin }),
            Err(reason) => {
                let value = match value {
                    _ if schema::is_secret(&key) => lanekeeper_secret::MASK.to_owned(),
                    DeValue::String(text) => text.to_string(),
                    DeValue::Integer(digits) => digits.to_string(),
                    other => format!("a {}", other.type_str()),
                };
                self.problems.push(Problem::Value {
                    key,
                    value,
                    origin,
                    reason,
                });
                None
            }
        }
    }

    fn unknown(&mut self, key: String, offset: usize) {
        let nearest = self.schema.nearest(&key).map(str::to_owned);
        let origin = self.origin(offset);
        self.problems.push(Problem::UnknownKey {
            key,
            origin,
            nearest,
        });
    }

    fn origin(&self, offset: usize) -> Origin {
        Origin::File {
            path: self.path.clone(),
            line: Position::of(self.text, offset).line,
        }
    }
}
