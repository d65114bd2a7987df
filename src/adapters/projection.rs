//! The settings of a projection: a function of the user's own, in SQL, that is called with each event in the transaction
//! that settles it. No adapter: the engine feeds it on a connection of its own (A9).

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Environment, SettingsError, settings};

/// What a subscription's `adapter` names.
pub const KIND: &str = "projection";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// A lane is held meanwhile, and other lanes of projections wait behind it.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
/// PostgreSQL cuts longer names.
const LONGEST_NAME: usize = 63;
const MOST_TABLES: usize = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    function: String,
    role: String,
    url_env: String,
    #[serde(default)]
    tables: Vec<String>,
    timeout_ms: Option<u64>,
}

/// A projection as its subscription describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Of the function, and of its tables.
    pub schema: String,
    pub function: String,
    /// The role that logs in, and whose rights the function has.
    pub role: String,
    /// The variable with that role's connection string.
    pub url_env: String,
    /// The read model, for a rebuild: tables of the schema, each before those that refer to it.
    pub tables: Vec<String>,
    /// How long one call may take.
    pub timeout: Duration,
}

/// Judges settings without reading a secret.
pub(super) fn check(given: &Value) -> Result<(), SettingsError> {
    read(given).map(drop)
}

/// # Errors
/// What is wrong with them.
pub fn read(given: &Value) -> Result<Settings, SettingsError> {
    let refused = |key: &str, reason: String| Err(SettingsError::invalid(KIND, key, reason));
    let given: Given = settings::parse(KIND, given)?;
    let Some((schema, function)) = given.function.split_once('.') else {
        return refused(
            "function",
            "name its schema too, as in \"shop.count_order\"".to_owned(),
        );
    };
    for name in [schema, function] {
        if let Err(reason) = check_name(name) {
            return refused("function", reason);
        }
    }
    if schema == "lanekeeper" || schema.starts_with("pg_") {
        return refused(
            "function",
            "the function and its tables belong in a schema of your own".to_owned(),
        );
    }
    if let Err(reason) = check_name(&given.role) {
        return refused("role", reason);
    }
    let is_variable = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if given.url_env.is_empty() || !given.url_env.chars().all(is_variable) {
        // Not repeated: it may well be the connection string itself.
        let reason = "it must be the name of an environment variable, not the connection string";
        return refused("url_env", reason.to_owned());
    }
    if given.tables.len() > MOST_TABLES {
        return refused("tables", format!("{MOST_TABLES} at the most"));
    }
    for (at, table) in given.tables.iter().enumerate() {
        if let Err(reason) = check_name(table) {
            return refused("tables", reason);
        }
        if given.tables[..at].contains(table) {
            return refused("tables", format!("{table:?} stands twice"));
        }
    }
    let (schema, function) = (schema.to_owned(), function.to_owned());
    Ok(Settings {
        schema,
        function,
        role: given.role,
        url_env: given.url_env,
        tables: given.tables,
        timeout: settings::timeout(KIND, given.timeout_ms, DEFAULT_TIMEOUT, LONGEST_TIMEOUT)?,
    })
}

/// Names are taken as they are, not folded to lower case: one that needs quotes is none that anybody wants here.
fn check_name(name: &str) -> Result<(), String> {
    let mut letters = name.chars();
    let begins = letters
        .next()
        .is_some_and(|first| first.is_ascii_lowercase() || first == '_');
    let goes_on = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if begins && letters.all(goes_on) && name.len() <= LONGEST_NAME {
        return Ok(());
    }
    Err(format!(
        "{name:?} is no plain name: a-z, 0-9 and _, at most {LONGEST_NAME}, no digit first"
    ))
}

/// The connection string of the projection's role.
///
/// # Errors
/// This process has none.
pub fn connection_string(
    subscription: &str,
    settings: &Settings,
    environment: &Environment,
) -> Result<String, SettingsError> {
    environment
        .secret(&settings.url_env)
        .map_err(|source| SettingsError::Secret {
            subscription: subscription.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(changes: Value) -> Value {
        let mut given =
            json!({"function": "shop.count_order", "role": "shop_reader", "url_env": "SHOP_URL"});
        let all = given.as_object_mut().unwrap();
        all.extend(changes.as_object().unwrap().clone());
        given
    }

    #[test]
    fn a_projection_is_named_by_schema_and_function_and_has_five_seconds() {
        let settings = read(&given(json!({"tables": ["a", "b"]}))).unwrap();
        assert_eq!(
            (settings.schema.as_str(), settings.function.as_str()),
            ("shop", "count_order")
        );
        assert_eq!(settings.timeout, Duration::from_secs(5));
    }

    #[test]
    fn names_that_could_end_a_statement_or_reach_into_the_engine_are_refused() {
        for (key, value) in [
            ("function", json!("count_order")),
            ("function", json!("shop.a.b")),
            ("function", json!("shop.\"a\"; DROP TABLE x")),
            ("function", json!("lanekeeper.settle")),
            ("function", json!("pg_catalog.pg_advisory_unlock_all")),
            ("role", json!("")),
            ("role", json!("a b")),
            ("url_env", json!("postgres://a:b@c/d")),
            ("tables", json!(["a", "a"])),
            ("tables", json!(["a; DROP TABLE b"])),
            ("timeout_ms", json!(0)),
            ("timeout_ms", json!(60_001)),
        ] {
            let error = read(&given(json!({key: value}))).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}`")), "{value}: {error}");
        }
    }
}
