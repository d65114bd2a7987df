//! Which keys exist and how their values are written.
//!
//! Derived from the defaults, so that no second list of keys can fall behind. Values are read by
//! the kind of the setting and not by their own looks: an all-digit password stays text and a
//! quoted number is a number, in the file as in the environment.

use std::collections::BTreeMap;

use figment::value::{Dict, Value};
use lanekeeper_core::toml_file::nearest;
use toml::de::DeValue;

use super::problem::Origin;
use super::settings::Config;

/// Keys whose values are never shown and may be given as the path of a file.
const SECRETS: [&str; 3] = ["database.url", "database.password", "redis.url"];

/// Keys of lists that `true` and `false` stand for too: everything and nothing.
const FLAGS_OR_LISTS: [&str; 1] = ["worker.allow_private_targets"];

pub(super) fn is_secret(key: &str) -> bool {
    SECRETS.contains(&key)
}

/// One value that a layer gives.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// How the value of a setting is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Flag,
    List,
    FlagOrList,
}

/// The known keys, as `section.key`.
pub(super) struct Schema {
    kinds: BTreeMap<String, Kind>,
}

impl Schema {
    pub(super) fn new() -> Self {
        let kinds = flatten(&Config::default())
            .into_iter()
            .map(|(key, default)| {
                let kind = match default {
                    _ if FLAGS_OR_LISTS.contains(&&*key) => Kind::FlagOrList,
                    Value::Bool(..) => Kind::Flag,
                    Value::Num(..) => Kind::Number,
                    Value::Array(..) => Kind::List,
                    // An optional setting without a default is text: a URL or a path.
                    _ => Kind::Text,
                };
                (key, kind)
            })
            .collect();
        Self { kinds }
    }

    pub(super) fn kind(&self, key: &str) -> Option<Kind> {
        self.kinds.get(key).copied()
    }

    /// The key that was probably meant: the same name in another section, else the most similar
    /// of its own section, else the most similar of all.
    pub(super) fn nearest(&self, wrong: &str) -> Option<&str> {
        let keys = || self.kinds.keys().map(String::as_str);
        let (section, name) = wrong.split_once('.').unwrap_or(("", wrong));
        let in_section = |key: &&str| key.split_once('.').is_some_and(|(own, _)| own == section);
        keys()
            .find(|key| key.split_once('.').is_some_and(|(_, known)| known == name))
            .or_else(|| {
                let siblings: Vec<&str> = keys().filter(in_section).collect();
                let names = siblings.iter().filter_map(|key| key.split_once('.'));
                let sibling = nearest(name, names.map(|(_, known)| known))?;
                siblings
                    .into_iter()
                    .find(|key| key.ends_with(&format!(".{sibling}")))
            })
            .or_else(|| nearest(wrong, keys()))
    }
}

/// Every setting of a configuration with its value; absent ones are empty.
pub(super) fn flatten(config: &Config) -> BTreeMap<String, Value> {
    let sections = Value::serialize(config).expect("a configuration holds plain values only");
    let mut settings = BTreeMap::new();
    for (section, values) in sections.into_dict().unwrap_or_default() {
        for (key, value) in values.into_dict().unwrap_or_default() {
            settings.insert(format!("{section}.{key}"), value);
        }
    }
    settings
}

impl Kind {
    /// Reads a value that is text: from the environment, a secret's file or quotes.
    pub(super) fn read_text(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Text => Ok(Value::from(text)),
            Self::Number => text
                .parse::<u64>()
                .map(Value::from)
                .map_err(|_| "must be a whole number, 0 or more".to_owned()),
            Self::Flag => match text {
                "true" | "1" => Ok(Value::from(true)),
                "false" | "0" => Ok(Value::from(false)),
                _ => Err("must be true or false".to_owned()),
            },
            Self::FlagOrList => match Self::Flag.read_text(text) {
                Ok(flag) => Ok(flag),
                Err(_) => Self::List.read_text(text),
            },
            Self::List => Ok(text
                .split(',')
                .map(str::trim)
                .filter(|entry| !entry.is_empty())
                .map(Value::from)
                .collect::<Vec<_>>()
                .into()),
        }
    }

    /// Reads a value of the file.
    pub(super) fn read_toml(self, value: &DeValue<'_>) -> Result<Value, String> {
        match (self, value) {
            (Self::List | Self::FlagOrList, DeValue::Array(entries)) => entries
                .iter()
                .map(|entry| Self::Text.read_toml(entry.get_ref()))
                .collect::<Result<Vec<_>, _>>()
                .map(Value::from),
            (Self::List, _) => Err("must be a list, such as [\"a\", \"b\"]".to_owned()),
            (_, DeValue::String(text)) => self.read_text(text),
            (Self::Text | Self::Number, DeValue::Integer(digits)) if digits.radix() == 10 => {
                self.read_text(digits.as_str())
            }
            (Self::Flag | Self::FlagOrList, DeValue::Boolean(flag)) => Ok(Value::from(*flag)),
            (Self::Text, other) => Err(format!("must be text, but is a {}", other.type_str())),
            (Self::Number, _) => Err("must be a whole number, 0 or more".to_owned()),
            (Self::Flag, _) => Err("must be true or false".to_owned()),
            (Self::FlagOrList, _) => {
                Err("must be true, false or a list, such as [\"a\", \"b\"]".to_owned())
            }
        }
    }
}

/// A value as a message or `lanekeeper config` shows it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(_, text) => text.clone(),
        Value::Char(_, char) => char.to_string(),
        Value::Bool(_, flag) => flag.to_string(),
        Value::Num(_, number) => number.to_u128().map(|n| n.to_string()).unwrap_or_default(),
        Value::Empty(..) => String::new(),
        Value::Array(_, entries) => entries.iter().map(shown).collect::<Vec<_>>().join(","),
        Value::Dict(_, entries) => shown_keys(entries),
    }
}

fn shown_keys(entries: &Dict) -> String {
    entries
        .keys()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_known_with_its_kind() {
        let schema = Schema::new();
        assert_eq!(schema.kind("database.url"), Some(Kind::Text));
        assert_eq!(schema.kind("worker.batch"), Some(Kind::Number));
        assert_eq!(
            schema.kind("worker.allow_private_targets"),
            Some(Kind::FlagOrList)
        );
        assert_eq!(schema.kind("worker.registry"), Some(Kind::Flag));
        let listed = |key: &&str| schema.kind(key) == Some(Kind::FlagOrList);
        assert!(FLAGS_OR_LISTS.iter().all(listed));
        assert_eq!(schema.kind("hook.allow"), Some(Kind::List));
        assert_eq!(schema.kind("http.listen"), Some(Kind::Text));
        assert_eq!(schema.kind("worker"), None);
        assert!(SECRETS.iter().all(|key| schema.kind(key).is_some()));
    }

    #[test]
    fn a_wrong_key_finds_its_namesake_its_sibling_or_what_resembles_it() {
        let schema = Schema::new();
        assert_eq!(schema.nearest("worker.max_lane"), Some("worker.max_lanes"));
        assert_eq!(schema.nearest("database.batch"), Some("worker.batch"));
        assert_eq!(schema.nearest("workers.batch"), Some("worker.batch"));
        assert_eq!(schema.nearest("database_url"), Some("database.url"));
        assert_eq!(schema.nearest("batch"), Some("worker.batch"));
        assert_eq!(schema.nearest("zzzzzz.qqqqqq"), None);
    }

    #[test]
    fn digits_are_text_where_text_is_wanted_and_numbers_where_numbers_are() {
        assert_eq!(Kind::Text.read_text("0123"), Ok(Value::from("0123")));
        assert_eq!(Kind::Number.read_text("0123"), Ok(Value::from(123_u64)));
        assert!(Kind::Number.read_text("-1").is_err());
        assert!(Kind::Number.read_text("").is_err());
        assert!(Kind::Flag.read_text("yes").is_err());
    }
}
