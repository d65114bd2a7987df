use std::io::Write as _;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

/// A configuration file that goes with the test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lanekeeper-{}.toml", uuid::Uuid::now_v7()));
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

fn hook_with(file: &str, variables: &[(&str, &str)]) -> (Config, Vec<String>) {
    let file = TempFile::new(file);
    let variables = variables
        .iter()
        .map(|(name, text)| (name.into(), text.into()));
    load_for_hook(Some(&file.0), variables)
}

#[test]
fn a_broken_file_leaves_the_hook_its_environment() {
    let variables = [
        ("DATABASE_URL", "postgres://me@db/app"),
        ("LANEKEEPER_HOOK__TIMEOUT_MS", "70"),
    ];
    let (config, unusable) = hook_with("[hook\nallow = ", &variables);
    assert_eq!(
        config.database.url.unwrap().expose(),
        "postgres://me@db/app"
    );
    assert_eq!(config.hook.timeout_ms, 70);
    assert!(unusable[0].contains("not valid TOML"), "{unusable:?}");
}

#[test]
fn the_hook_goes_on_with_what_is_right_and_names_what_is_not() {
    let (config, unusable) = hook_with(
        "[hook]\ntimeout_ms = \"soon\"\nallow = [\"tool_use\"]\nalow = []\n[log]\nformat = \"xml\"",
        &[
            ("LANEKEEPER_NO_SUCH", "1"),
            ("LANEKEEPER_WORKER__HEARTBEAT_MS", "10001"),
            ("LANEKEEPER_SPOOL__DIR", "/spool"),
        ],
    );
    assert_eq!(config.hook.timeout_ms, Config::default().hook.timeout_ms);
    assert_eq!(config.hook.allow, ["tool_use"]);
    assert_eq!(config.spool.dir, Some(PathBuf::from("/spool")));
    for part in [
        "hook.timeout_ms = soon",
        "hook.alow",
        "LANEKEEPER_NO_SUCH",
        "log.format = xml",
        "frozen_after_ms",
    ] {
        let times = unusable.iter().filter(|text| text.contains(part)).count();
        assert_eq!(times, 1, "{part}: {unusable:?}");
    }
}

#[test]
fn the_hook_takes_no_weaker_database_for_one_that_cannot_be_used() {
    let file = "[database]\nurl = \"postgres://elsewhere\"";
    for variables in [
        &[
            ("LANEKEEPER_DATABASE__URL_FILE", "/no/such/file"),
            ("DATABASE_URL", "postgres://other"),
        ][..],
        &[("DATABASE_URL", "postgres//typo")],
        &[
            ("DATABASE_URL", "postgres://a"),
            ("DATABASE_URL_FILE", "/b"),
        ],
    ] {
        let (config, unusable) = hook_with(file, variables);
        assert!(config.database.url.is_none(), "{variables:?}");
        assert_eq!(unusable.len(), 1, "{unusable:?}");
    }
    let (config, _) = hook_with(
        "[database]\nurl = [1]",
        &[("DATABASE_URL", "postgres://right")],
    );
    assert_eq!(config.database.url.unwrap().expose(), "postgres://right");
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

#[test]
fn a_host_label_is_one_word() {
    let with = |label: &str| {
        load_with("", &[("LANEKEEPER_WORKER__HOST_LABEL", label)])
            .map(|config| config.worker.host_label)
    };
    assert_eq!(with("build-7"), Ok(Some("build-7".to_owned())));
    for bad in ["a b", "/", &"x".repeat(256)] {
        let refused = with(bad).unwrap_err();
        assert!(refused.contains("without spaces and slashes"), "{refused}");
    }
}
