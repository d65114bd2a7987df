//! Every setting as docs/reference/settings.md describes it.

use lanekeeper_dashboard::config::DashboardConfig;
use lanekeeper_http::config::HttpConfig;
use lanekeeper_http::durable::config::DurableStreamsConfig;
use lanekeeper_http::live::config::LiveConfig;
use lanekeeper_limit::config::RedisConfig;
use lanekeeper_postgres::config::DatabaseConfig;
use lanekeeper_producer::spool::SpoolConfig;
use lanekeeper_streams::hooks::config::HookConfig;
use lanekeeper_telemetry::config::LogConfig;

use super::environment;
use super::schema::{self, Kind, Schema};
use super::settings::{Config, DevConfig, RetentionConfig, WorkerConfig};

type Meanings = &'static [(&'static str, &'static str)];

/// The sections with what they are about and their settings, in the order of [`Config`].
const SECTIONS: [(&str, &str, Meanings); 12] = [
    ("database", DatabaseConfig::ABOUT, DatabaseConfig::MEANINGS),
    ("redis", RedisConfig::ABOUT, RedisConfig::MEANINGS),
    ("worker", WorkerConfig::ABOUT, WorkerConfig::MEANINGS),
    (
        "retention",
        RetentionConfig::ABOUT,
        RetentionConfig::MEANINGS,
    ),
    ("http", HttpConfig::ABOUT, HttpConfig::MEANINGS),
    ("live", LiveConfig::ABOUT, LiveConfig::MEANINGS),
    (
        "durable_streams",
        DurableStreamsConfig::ABOUT,
        DurableStreamsConfig::MEANINGS,
    ),
    (
        "dashboard",
        DashboardConfig::ABOUT,
        DashboardConfig::MEANINGS,
    ),
    ("hook", HookConfig::ABOUT, HookConfig::MEANINGS),
    ("spool", SpoolConfig::ABOUT, SpoolConfig::MEANINGS),
    ("dev", DevConfig::ABOUT, DevConfig::MEANINGS),
    ("log", LogConfig::ABOUT, LogConfig::MEANINGS),
];

/// A section with its settings.
#[derive(Clone, Debug)]
pub struct Section {
    pub name: &'static str,
    pub about: &'static str,
    pub settings: Vec<Described>,
}

/// A setting with everything that a reader needs to set it.
#[derive(Clone, Debug)]
pub struct Described {
    /// `section.key`.
    pub key: String,
    /// As it would be written; `None`: not set.
    pub default: Option<String>,
    /// The unit of a number, else the kind of value.
    pub unit: &'static str,
    /// The variables that set it, the strongest first.
    pub variables: Vec<String>,
    pub meaning: &'static str,
}

impl Config {
    /// Every section and setting, with defaults and meanings.
    pub fn described() -> Vec<Section> {
        let schema = Schema::new();
        let defaults = schema::flatten(&Self::default());
        let describe = |section: &str, (name, meaning): &(&str, &'static str)| {
            let key = format!("{section}.{name}");
            let kind = schema.kind(&key).unwrap_or(Kind::Text);
            Described {
                default: defaults
                    .get(&key)
                    .map(schema::shown)
                    .filter(|shown| !shown.is_empty()),
                unit: unit(name, kind),
                variables: environment::variables(&key),
                meaning: meaning.trim(),
                key,
            }
        };
        SECTIONS
            .iter()
            .map(|(name, about, meanings)| Section {
                name,
                about: about.trim(),
                settings: meanings
                    .iter()
                    .map(|setting| describe(name, setting))
                    .collect(),
            })
            .collect()
    }
}

/// Names of settings end in their unit.
fn unit(name: &str, kind: Kind) -> &'static str {
    match kind {
        Kind::Number if name.ends_with("_ms") => "milliseconds",
        Kind::Number if name.ends_with("bytes") => "bytes",
        Kind::Number if name == "days" || name.ends_with("_days") => "days",
        Kind::Number => "number",
        Kind::Flag => "true or false",
        Kind::List => "list",
        Kind::FlagOrList => "true, false or a list",
        Kind::Text => "text",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_setting_is_described() {
        let described: BTreeSet<String> = Config::described()
            .into_iter()
            .flat_map(|section| section.settings)
            .map(|setting| setting.key)
            .collect();
        let known: BTreeSet<String> = schema::flatten(&Config::default()).into_keys().collect();
        assert_eq!(described, known);
    }
}
