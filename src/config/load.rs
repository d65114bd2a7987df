//! Puts the layers on top of each other and takes the configuration out, or every reason why not.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use figment::Figment;
use figment::providers::Serialized;
use figment::value::Value;
use lanekeeper_secret::MASK;

use super::mask::{masked_postgres_url, masked_redis_url};
use super::problem::{ConfigError, Origin, Origins, Problem};
use super::schema::{self, Schema, Setting};
use super::settings::Config;
use super::{check, environment, file};

/// A setting as it took effect, fit to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    pub key: String,
    /// `None`: not set. Secrets are masked.
    pub value: Option<String>,
    pub origin: Origin,
}

impl Config {
    /// Reads the file and this process's environment. A `file` that is given must exist.
    ///
    /// # Errors
    /// Everything that is wrong, each with its source.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        load(file, std::env::vars_os())
    }
}

fn load(
    named_file: Option<&Path>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Config, ConfigError> {
    let schema = Schema::new();
    let mut problems = Vec::new();
    let mut settings = file::read(named_file, &schema, &mut problems)?;
    settings.extend(environment::read(variables, &schema, &mut problems));

    let mut figment = Figment::from(Serialized::defaults(Config::default()));
    let mut origins = BTreeMap::new();
    let mut given = BTreeMap::new();
    for Setting { key, value, origin } in settings {
        origins.insert(key.clone(), origin);
        given.insert(key.clone(), value.clone());
        figment = figment.merge((key, value));
    }
    let origins = Origins(origins);
    match figment.extract::<Config>() {
        Ok(mut config) => {
            config.origins = origins;
            for (key, secret) in [
                ("database.url", &mut config.database.url),
                ("redis.url", &mut config.redis.url),
            ] {
                if let Origin::SecretFile { variable, path } = config.origins.of(key) {
                    *secret = secret.take().map(|secret| secret.of_file(&variable, &path));
                }
            }
            problems.extend(check::problems(&config));
            if problems.is_empty() {
                return Ok(config);
            }
        }
        Err(errors) => problems.extend(errors.into_iter().map(|error| {
            let key = error.path.join(".");
            let value = match given.get(&key) {
                _ if schema::is_secret(&key) => MASK.to_owned(),
                value => value.map(schema::shown).unwrap_or_default(),
            };
            let origin = origins.of(&key);
            Problem::Value {
                key,
                value,
                origin,
                reason: error.kind.to_string(),
            }
        })),
    }
    Err(ConfigError::Refused(problems))
}

impl Config {
    /// Every setting with its value and source, secrets masked, ordered by key.
    pub fn effective(&self) -> Vec<Effective> {
        schema::flatten(self)
            .into_iter()
            .map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    (_, Value::Empty(..)) => None,
                    ("database.url", _) => self
                        .database
                        .url
                        .as_ref()
                        .map(|url| masked_postgres_url(url.expose())),
                    ("redis.url", _) => self
                        .redis
                        .url
                        .as_ref()
                        .map(|url| masked_redis_url(url.expose())),
                    (_, value) => Some(schema::shown(&value)),
                };
                Effective {
                    origin: self.origins.of(&key),
                    key,
                    value,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    /// A configuration file that goes with the test.
    struct TempFile(PathBuf);

    impl TempFile {
        fn new(text: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("lanekeeper-{}.toml", uuid::Uuid::now_v7()));
            std::fs::File::create(&path)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
            Self(path)
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).unwrap();
        }
    }

    fn load_with(file: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        let file = TempFile::new(file);
        let variables = variables
            .iter()
            .map(|(name, text)| (name.into(), text.into()));
        load(Some(&file.0), variables).map_err(|error| {
            error
                .to_string()
                .replace(&file.0.display().to_string(), "FILE")
        })
    }

    #[test]
    fn the_defaults_alone_are_a_possible_configuration() {
        let config = load_with("", &[]).unwrap();
        assert_eq!(config.worker.max_lanes, 0);
        assert!(config.database.url.is_none());
        assert!(
            config
                .effective()
                .iter()
                .all(|setting| setting.origin == Origin::Default)
        );
    }

    #[test]
    fn the_environment_is_over_the_file_and_the_file_over_the_default() {
        let config = load_with(
            "[worker]\nbatch = 7\nmax_lanes = 9\n[database]\nurl = \"postgres://file\"",
            &[
                ("LANEKEEPER_WORKER__MAX_LANES", "11"),
                ("LANEKEEPER_DATABASE__URL", "postgres://own"),
                ("DATABASE_URL", "postgres://shared"),
            ],
        )
        .unwrap();
        assert_eq!(config.worker.batch, 7);
        assert_eq!(config.worker.max_lanes, 11);
        assert_eq!(config.database.url.unwrap().expose(), "postgres://own");
    }

    #[test]
    fn the_shared_variable_is_over_the_file() {
        let config = load_with(
            "[log]\nfilter = \"warn\"\n[database]\nurl = \"postgres://file\"",
            &[("DATABASE_URL", "postgres://shared"), ("RUST_LOG", "debug")],
        )
        .unwrap();
        assert_eq!(config.database.url.unwrap().expose(), "postgres://shared");
        assert_eq!(config.log.filter, "debug");
        assert_eq!(
            config.origins.of("log.filter"),
            Origin::Variable("RUST_LOG".into())
        );
    }

    #[test]
    fn all_digit_text_and_quoted_numbers_are_read_as_the_setting_wants() {
        let config = load_with(
            "[worker]\nbatch = \"12\"\n[spool]\ndir = 2024",
            &[
                ("LANEKEEPER_HOOK__ALLOW", "1, 2"),
                ("LANEKEEPER_DEV__DATA_DIR", "007"),
            ],
        )
        .unwrap();
        assert_eq!(config.worker.batch, 12);
        assert_eq!(config.spool.dir, Some(PathBuf::from("2024")));
        assert_eq!(config.hook.allow, ["1", "2"]);
        assert_eq!(config.dev.data_dir, Some(PathBuf::from("007")));
    }

    #[test]
    fn a_secret_comes_from_a_file_without_its_last_newline() {
        let secret = TempFile::new("postgres://me:12345@db/app\n");
        let path = secret.0.display().to_string();
        let config = load_with("", &[("DATABASE_URL_FILE", &path)]).unwrap();
        assert_eq!(
            config.database.url.as_ref().unwrap().expose(),
            "postgres://me:12345@db/app"
        );
        let shown = config.effective();
        let url = shown
            .iter()
            .find(|setting| setting.key == "database.url")
            .unwrap();
        assert_eq!(url.value.as_deref(), Some("postgres://me:***@db:5432/app"));
    }

    #[test]
    fn every_wrong_key_and_value_is_reported_at_once_with_its_source() {
        let refused = load_with(
            "[worker]\nbatch = \"many\"\nmax_lane = 3\n[log]\nformat = \"xml\"\n[wroker]\nbatch = 1",
            &[("LANEKEEPER_RETENTION__DAY", "1")],
        )
        .unwrap_err();
        assert_eq!(
            refused.lines().collect::<Vec<_>>(),
            [
                "the configuration is refused",
                "  FILE:2: worker.batch = many: must be a whole number, 0 or more",
                "  FILE:3: unknown key worker.max_lane (did you mean worker.max_lanes?)",
                "  FILE:7: unknown key wroker.batch (did you mean worker.batch?)",
                "  environment: unknown variable LANEKEEPER_RETENTION__DAY \
                 (did you mean LANEKEEPER_RETENTION__DAYS?)",
                "  FILE:5: log.format = xml: unknown variant: found `xml`, expected ``text` or `json``",
            ]
        );
    }

    #[test]
    fn a_file_that_is_not_toml_says_where() {
        let error = load_with("[worker]\nbatch = = 3", &[]).unwrap_err();
        assert!(error.starts_with("FILE:2:"), "{error}");
    }

    #[test]
    fn a_named_file_must_exist() {
        let error = load(Some(Path::new("no/such.toml")), []).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the configuration file no/such.toml does not exist"
        );
    }

    #[test]
    fn no_message_shows_a_secret() {
        let refused = load_with(
            "",
            &[
                ("DATABASE_URL", "postgres//me:hunter2@db"),
                ("REDIS_URL", "hunter2"),
            ],
        )
        .unwrap_err();
        assert!(refused.contains("database.url = ***"), "{refused}");
        assert!(refused.contains("redis.url = ***"), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }

    /// A key of the file or a variable of the environment: known, nearly known, or anything.
    fn key() -> impl Strategy<Value = String> {
        let known: Vec<String> = schema::flatten(&Config::default()).into_keys().collect();
        prop_oneof![
            4 => prop::sample::select(known.clone()),
            1 => (prop::sample::select(known), any::<prop::sample::Index>()).prop_map(|(key, at)| {
                let mut key = key;
                key.remove(at.index(key.len()));
                key
            }),
            1 => "[a-z_]{0,8}\\.[a-z_]{0,8}",
        ]
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            "[0-9]{1,25}",
            "-?[0-9]{1,3}",
            ".{0,20}",
            Just("true".to_owned()),
            Just("verify-full".to_owned()),
            Just("hunter2".to_owned()),
            Just("postgres://me:hunter2@db/app?sslmode=verify-full".to_owned()),
            Just("redis://:hunter2@cache:6379".to_owned()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn any_file_and_environment_is_taken_or_refused_with_reasons_and_no_secret(
            file in prop::collection::vec((key(), value(), any::<bool>()), 0..6),
            variables in prop::collection::vec((key(), value()), 0..6),
        ) {
            let mut text = String::new();
            for (key, value, quoted) in &file {
                let (section, name) = key.split_once('.').unwrap_or(("", key));
                let value = if *quoted { toml::Value::from(value.as_str()).to_string() } else { value.clone() };
                text.push_str(&format!("[{section}]\n{name} = {value}\n"));
            }
            let variables: Vec<(String, String)> = variables
                .into_iter()
                .map(|(key, value)| (format!("LANEKEEPER_{}", key.to_uppercase().replace('.', "__")), value.replace('\0', "")))
                .collect();
            let borrowed: Vec<(&str, &str)> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let secrets = |key: &str| key == "database.url" || key == "redis.url";
            match load_with(&text, &borrowed) {
                Ok(config) => {
                    for setting in config.effective() {
                        if secrets(&setting.key) {
                            prop_assert!(!setting.value.unwrap_or_default().contains("hunter2"));
                        }
                    }
                }
                Err(told) => {
                    prop_assert!(!told.is_empty());
                    for line in told.lines().filter(|line| line.contains("database.url =") || line.contains("redis.url =")) {
                        prop_assert!(!line.contains("hunter2"), "{}", line);
                    }
                }
            }
        }

        #[test]
        fn any_text_in_the_place_of_a_file_is_refused_or_taken(text in "[\\[\\]a-z_.=\"'{}#0-9\n, -]{0,80}") {
            let _ = load_with(&text, &[]);
        }
    }
}
