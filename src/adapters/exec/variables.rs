//! The environment of a command: an allow list, never the worker's environment.
//!
//! A worker's environment holds its secrets, and a list of variables to withhold would always be incomplete. So a
//! command gets [`PASSED`], the variables that its subscription names in `env`, and those that describe its event. A
//! subscription may name variables of the worker, except those that configure the worker itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::KIND;
use crate::{Environment, SettingsError, signature};

/// Variables of the worker that every command gets.
const PASSED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// `env`: a table of values, or a list in which `NAME` is the worker's value and `NAME=value` a value of its own.
#[derive(Debug, Default)]
pub(super) struct Given(Vec<(String, Option<String>)>);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TableOrList)
    }
}

struct TableOrList;

impl<'de> Visitor<'de> for TableOrList {
    type Value = Given;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a table of variables, or a list of \"NAME\" and \"NAME=value\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Given, A::Error> {
        let mut given = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, String>()? {
            given.insert(name, Some(value));
        }
        Ok(Given(given.into_iter().collect()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Given, A::Error> {
        let mut given = Vec::new();
        while let Some(entry) = list.next_element::<String>()? {
            given.push(match entry.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (entry, None),
            });
        }
        Ok(Given(given))
    }
}

impl Given {
    /// Refuses names that are none, and variables of the worker that it is configured by.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        for (name, value) in &self.0 {
            if name.is_empty() || name.contains(['=', '\0']) {
                let reason = format!("{name:?} is not the name of a variable");
                return Err(SettingsError::invalid(KIND, "env", reason));
            }
            if value.is_none() && configures_the_worker(name) {
                return Err(refused(name));
            }
        }
        Ok(())
    }

    /// All variables of the command but those of its event. `home`: of the user that it runs as, where that is not
    /// the worker's.
    pub(super) fn resolve(
        self,
        home: Option<&str>,
        environment: &Environment,
    ) -> Result<Vec<(OsString, OsString)>, SettingsError> {
        let passed = PASSED.iter().filter_map(|name| {
            let value = std::env::var_os(name)?;
            Some((name.into(), value))
        });
        let mut variables: Vec<(OsString, OsString)> = passed.collect();
        variables.extend(home.map(|home| ("HOME".into(), home.into())));
        for (name, value) in self.0 {
            let value = match value {
                Some(value) => value,
                None => of_worker(&name, environment)?,
            };
            variables.push((name.into(), value.into()));
        }
        Ok(variables)
    }
}

fn of_worker(name: &str, environment: &Environment) -> Result<String, SettingsError> {
    let Some(value) = environment.variable(name) else {
        let reason = format!("{name} is not set for this worker: set it, or give a value here");
        return Err(SettingsError::invalid(KIND, "env", reason));
    };
    // Signing keys have any name, and tell themselves by their prefix.
    if value.starts_with(signature::PREFIX) {
        return Err(refused(name));
    }
    Ok(value)
}

fn refused(name: &str) -> SettingsError {
    let reason = format!(
        "{name} is the worker's own and is not handed to programs; give the program a value of its own ({name}=value)"
    );
    SettingsError::invalid(KIND, "env", reason)
}

/// Its databases, its own settings, and the credentials of its collector.
fn configures_the_worker(name: &str) -> bool {
    matches!(
        name,
        "DATABASE_URL" | "REDIS_URL" | "PGPASSWORD" | "PGPASSFILE"
    ) || name.starts_with("LANEKEEPER_")
        || name.starts_with("OTEL_EXPORTER_OTLP_")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn given(env: Value) -> Given {
        serde_json::from_value(env).unwrap()
    }

    fn resolved(env: Value, worker: &[(&str, &str)]) -> Result<Vec<(OsString, OsString)>, String> {
        let environment = Environment::with_variables(false, worker.iter().copied());
        given(env)
            .resolve(None, &environment)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_takes_values_of_the_worker_by_name_and_may_give_others() {
        let worker = [("REGION", "eu"), ("OTHER", "stays")];
        let variables = resolved(json!(["REGION", "LEVEL=9=x"]), &worker).unwrap();
        let has = |name: &str, value: &str| variables.contains(&(name.into(), value.into()));
        assert!(has("REGION", "eu") && has("LEVEL", "9=x"), "{variables:?}");
        assert!(variables.iter().all(|(name, _)| name != "OTHER"));
        let variables = resolved(json!({"LEVEL": "9"}), &worker).unwrap();
        assert!(variables.contains(&("LEVEL".into(), "9".into())));
    }

    #[test]
    fn a_variable_that_this_worker_does_not_have_is_named() {
        let error = resolved(json!(["REGION"]), &[]).unwrap_err();
        assert!(
            error.contains("REGION is not set for this worker"),
            "{error}"
        );
    }

    #[test]
    fn what_the_worker_is_configured_by_is_not_handed_on_by_name() {
        for name in [
            "DATABASE_URL",
            "REDIS_URL",
            "PGPASSWORD",
            "LANEKEEPER_HTTP__LISTEN",
            "OTEL_EXPORTER_OTLP_HEADERS",
        ] {
            let error = given(json!([name])).check().unwrap_err().to_string();
            assert!(error.contains("the worker's own"), "{error}");
            given(json!([format!("{name}=x")])).check().unwrap();
        }
        let error = resolved(json!(["AUDIT"]), &[("AUDIT", "whsec_AAAA")]).unwrap_err();
        assert!(
            error.contains("the worker's own") && !error.contains("whsec_AAAA"),
            "{error}"
        );
    }
}
