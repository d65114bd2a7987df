//! The layer of the environment: `LANEKEEPER_<SECTION>__<KEY>` over `DATABASE_URL`, `REDIS_URL`,
//! `RUST_LOG` and libpq's `PGSSL…`, and `…_FILE` for secrets.
//!
//! An empty variable counts as unset: deployment tools set what they have no value for.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use figment::value::Value;
use lanekeeper_secret::{MASK, without_newline};

use super::problem::{Origin, Problem};
use super::schema::{self, Schema, Setting};

const PREFIX: &str = "LANEKEEPER_";
const FILE_SUFFIX: &str = "_FILE";

/// What the adapter `exec` tells its programs of the event. They may run `lanekeeper`.
const EVENT_PREFIX: &str = "LANEKEEPER_EVENT_";

/// Read by the command line and by producers over HTTP: no settings.
const OTHERS: [&str; 4] = [
    "LANEKEEPER_CONFIG",
    "LANEKEEPER_URL",
    "LANEKEEPER_TOKEN",
    "LANEKEEPER_TOKEN_FILE",
];

/// Variables that other programs read too; our own are stronger.
const SHARED: [(&str, &str); 7] = [
    ("DATABASE_URL", "database.url"),
    ("PGSSLMODE", "database.sslmode"),
    ("PGSSLROOTCERT", "database.sslrootcert"),
    ("PGSSLCERT", "database.sslcert"),
    ("PGSSLKEY", "database.sslkey"),
    ("REDIS_URL", "redis.url"),
    ("RUST_LOG", "log.filter"),
];

/// The variables that set a key, the strongest first. A list is written with commas.
pub(super) fn variables(key: &str) -> Vec<String> {
    let own = format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"));
    let shared = SHARED.iter().filter(|(_, shared)| *shared == key);
    let mut names: Vec<String> = std::iter::once(own)
        .chain(shared.map(|(name, _)| (*name).to_owned()))
        .collect();
    if schema::is_secret(key) {
        let files: Vec<String> = names
            .iter()
            .map(|name| format!("{name}{FILE_SUFFIX}"))
            .collect();
        names.extend(files);
    }
    names
}

/// The settings of the environment, the stronger ones last.
pub(super) fn read(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    schema: &Schema,
    problems: &mut Vec<Problem>,
) -> Vec<Setting> {
    let variables = relevant(variables, schema, problems);
    let (own, shared): (Vec<_>, Vec<_>) = variables
        .iter()
        .partition(|(name, _)| name.starts_with(PREFIX));
    let mut settings = Vec::new();
    for (name, text) in shared.into_iter().chain(own) {
        let setting = match target(name, schema) {
            Some(Target {
                key,
                in_file: false,
            }) => value(name, key, text, schema),
            Some(Target { key, in_file: true }) => secret_file(name, key, text, &variables),
            None => Err(unknown(name, schema)),
        };
        match setting {
            Ok(setting) => settings.push(setting),
            Err(problem) => problems.push(problem),
        }
    }
    settings
}

/// The variables that are ours to read.
fn relevant(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    schema: &Schema,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (name, text) in variables {
        let Ok(name) = name.into_string() else {
            continue;
        };
        let own = name.starts_with(PREFIX)
            && !name.starts_with(EVENT_PREFIX)
            && !OTHERS.contains(&name.as_str())
            && !is_service_link(&name);
        if text.is_empty() || !(own || shared_key(&name).is_some()) {
            continue;
        }
        match text.into_string() {
            Ok(text) => {
                found.insert(name, text);
            }
            Err(_) => problems.push(Problem::NotUnicode {
                key: target(&name, schema).map_or_else(|| key_of(&name), |target| target.key),
                variable: name,
            }),
        }
    }
    found
}

/// What a variable sets.
struct Target {
    key: String,
    /// The variable holds the path of a file, and the file the value.
    in_file: bool,
}

fn target(name: &str, schema: &Schema) -> Option<Target> {
    if let Some(target) = shared_key(name) {
        return Some(target);
    }
    let key = key_of(name);
    if schema.kind(&key).is_some() {
        return Some(Target {
            key,
            in_file: false,
        });
    }
    let key = key_of(name.strip_suffix(FILE_SUFFIX)?);
    schema::is_secret(&key).then_some(Target { key, in_file: true })
}

fn shared_key(name: &str) -> Option<Target> {
    SHARED.iter().find_map(|(shared, key)| {
        let in_file = match name.strip_prefix(shared)? {
            "" => false,
            FILE_SUFFIX if schema::is_secret(key) => true,
            _ => return None,
        };
        Some(Target {
            key: (*key).to_owned(),
            in_file,
        })
    })
}

fn value(name: &str, key: String, text: &str, schema: &Schema) -> Result<Setting, Problem> {
    let origin = Origin::Variable(name.to_owned());
    match schema
        .kind(&key)
        .unwrap_or(schema::Kind::Text)
        .read_text(text)
    {
        Ok(value) => Ok(Setting { key, value, origin }),
        Err(reason) => {
            let value = if schema::is_secret(&key) { MASK } else { text }.to_owned();
            Err(Problem::Value {
                key,
                value,
                origin,
                reason,
            })
        }
    }
}

fn secret_file(
    name: &str,
    key: String,
    path: &str,
    variables: &BTreeMap<String, String>,
) -> Result<Setting, Problem> {
    let plain = name.strip_suffix(FILE_SUFFIX).unwrap_or(name);
    if variables.contains_key(plain) {
        return Err(Problem::SecretTwice {
            key,
            variable: plain.to_owned(),
        });
    }
    let variable = name.to_owned();
    let path = PathBuf::from(path);
    match std::fs::read_to_string(&path) {
        Ok(secret) => Ok(Setting {
            key,
            value: Value::from(without_newline(&secret)),
            origin: Origin::SecretFile { variable, path },
        }),
        Err(reason) => Err(Problem::SecretFile {
            key,
            variable,
            path,
            reason,
        }),
    }
}

fn unknown(name: &str, schema: &Schema) -> Problem {
    Problem::UnknownVariable {
        variable: name.to_owned(),
        nearest: schema.nearest(&key_of(name)).map(variable_of),
    }
}

fn key_of(variable: &str) -> String {
    variable
        .strip_prefix(PREFIX)
        .unwrap_or(variable)
        .to_lowercase()
        .replace("__", ".")
}

fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

/// Kubernetes describes every service of the namespace to each pod in variables such as
/// `LANEKEEPER_SERVICE_HOST` and `LANEKEEPER_PORT_8080_TCP_ADDR`, after the service's name.
fn is_service_link(name: &str) -> bool {
    let after_port = |rest: &str| {
        let parts: Vec<&str> = rest.split('_').collect();
        match parts.as_slice() {
            [""] => true,
            ["", port, "TCP" | "UDP" | "SCTP"]
            | ["", port, "TCP" | "UDP" | "SCTP", "PROTO" | "PORT" | "ADDR"] => {
                port.bytes().all(|b| b.is_ascii_digit())
            }
            _ => false,
        }
    };
    !name.contains("__")
        && (name.ends_with("_SERVICE_HOST")
            || name.contains("_SERVICE_PORT")
            || name
                .match_indices("_PORT")
                .any(|(at, port)| after_port(&name[at + port.len()..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(variables: &[(&str, &str)]) -> Vec<String> {
        let mut problems = Vec::new();
        let variables = variables
            .iter()
            .map(|(name, text)| (name.into(), text.into()));
        read(variables, &Schema::new(), &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_wrong_variable_is_named_with_the_one_that_was_meant() {
        assert_eq!(
            problems(&[("LANEKEEPER_DATABASE_URL", "postgres://x")]),
            ["environment: unknown variable LANEKEEPER_DATABASE_URL \
                 (did you mean LANEKEEPER_DATABASE__URL?)"]
        );
    }

    #[test]
    fn what_kubernetes_says_about_services_is_no_setting() {
        for name in [
            "LANEKEEPER_SERVICE_HOST",
            "LANEKEEPER_SERVICE_PORT_HTTP",
            "LANEKEEPER_PORT",
            "LANEKEEPER_POSTGRES_PORT_5432_TCP",
            "LANEKEEPER_PORT_8080_TCP_ADDR",
        ] {
            assert_eq!(problems(&[(name, "tcp://10.0.0.1:80")]), [""; 0], "{name}");
        }
        assert_eq!(problems(&[("LANEKEEPER_HTTP__PORT", "80")]).len(), 1);
        assert_eq!(problems(&[("LANEKEEPER_PORTS", "80")]).len(), 1);
    }

    #[test]
    fn what_a_program_is_told_of_its_event_is_no_setting() {
        for name in [
            "LANEKEEPER_EVENT_TYPE",
            "LANEKEEPER_EVENT_SESSION",
            "LANEKEEPER_EVENT_LATER",
        ] {
            assert_eq!(problems(&[(name, "x")]), [""; 0], "{name}");
        }
        assert_eq!(problems(&[("LANEKEEPER_EVENTS", "x")]).len(), 1);
    }

    #[test]
    fn only_a_secret_may_be_given_as_a_file() {
        let found = problems(&[("LANEKEEPER_WORKER__BATCH_FILE", "/run/batch")]);
        assert_eq!(
            found,
            [
                "environment: unknown variable LANEKEEPER_WORKER__BATCH_FILE \
                 (did you mean LANEKEEPER_WORKER__BATCH?)"
            ]
        );
    }

    #[test]
    fn a_secret_given_twice_is_refused_rather_than_guessed() {
        let found = problems(&[
            ("DATABASE_URL", "postgres://a"),
            ("DATABASE_URL_FILE", "/b"),
        ]);
        assert_eq!(
            found,
            ["DATABASE_URL and DATABASE_URL_FILE are both set: keep one of them"]
        );
    }

    #[test]
    fn an_empty_variable_and_a_strangers_variable_are_passed_over() {
        assert_eq!(
            problems(&[("LANEKEEPER_NONSENSE", ""), ("LANE", "x")]),
            [""; 0]
        );
    }
}
