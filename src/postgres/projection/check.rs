//! Whether a projection's function and role are as they must be: asked by `apply`, before anything is changed.

use tokio_postgres::GenericClient;

use super::quoted;
use crate::StoreError;

pub const CHECK: &str = include_str!("../sql/projection_check.sql");

/// Why a projection cannot work as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The key of the file that is about it.
    pub key: &'static str,
    pub reason: String,
}

/// What speaks against a projection; empty where nothing does.
///
/// # Errors
/// It is not known.
pub async fn check(
    client: &impl GenericClient,
    schema: &str,
    function: &str,
    role: &str,
    tables: &[String],
) -> Result<Vec<Unfit>, StoreError> {
    let operation = "checking a projection";
    let name = format!("{}.{}", quoted(schema), quoted(function));
    let row = client
        .query_one(CHECK, &[&name, &role, &schema, &function, &tables])
        .await
        .map_err(StoreError::on(operation))?;
    let fact = |column: &str| {
        row.try_get::<_, Option<bool>>(column)
            .map_err(StoreError::on(operation))
    };
    let is = |column: &str| Ok::<_, StoreError>(fact(column)? == Some(true));
    let mut unfit = Vec::new();
    let mut refuse = |key, reason: String| unfit.push(Unfit { key, reason });
    if !is("has_schema")? {
        refuse("function", format!("there is no schema {schema}"));
    } else if !is("has_function")? {
        refuse(
            "function",
            match is("has_other")? {
                true => format!("{name} has other arguments: it must take one, of the type jsonb"),
                false => format!("there is no function {name}(jsonb)"),
            },
        );
    } else {
        if !is("returns_void")? {
            refuse(
                "function",
                format!("{name}(jsonb) must be a function that returns void"),
            );
        }
        if is("is_definer")? {
            refuse(
                "function",
                format!(
                    "{name}(jsonb) is SECURITY DEFINER: it would not run with the rights of {role}"
                ),
            );
        }
        if is("pins_path")? {
            refuse(
                "function",
                format!(
                    "{name}(jsonb) has a search_path of its own: a rebuild could not lead it to the tables that it fills"
                ),
            );
        }
    }
    if !is("has_role")? {
        refuse("role", format!("there is no role {role}"));
    } else {
        let grant = |what: String| format!("the role may not use it yet: {what}");
        if !is("may_log_in")? {
            refuse(
                "role",
                format!("{role} may not log in: ALTER ROLE {role} LOGIN"),
            );
        }
        if is("is_mighty")? {
            refuse(
                "role",
                format!(
                    "{role} has Lanekeeper's own rights: give the projection a role of its own"
                ),
            );
        }
        if fact("may_use_schema")? == Some(false) {
            refuse(
                "role",
                grant(format!("GRANT USAGE ON SCHEMA {schema} TO {role}")),
            );
        }
        if fact("may_execute")? == Some(false) {
            refuse(
                "role",
                grant(format!("GRANT EXECUTE ON FUNCTION {name}(jsonb) TO {role}")),
            );
        }
        if !is("may_settle")? {
            refuse(
                "role",
                grant(format!(
                    "GRANT USAGE ON SCHEMA lanekeeper TO {role}; GRANT EXECUTE ON FUNCTION lanekeeper.begin_projection, \
                     lanekeeper.settle_projection TO {role}"
                )),
            );
        }
    }
    let missing: Vec<String> = row
        .try_get("missing_tables")
        .map_err(StoreError::on(operation))?;
    if !missing.is_empty() && fact("has_schema")? == Some(true) {
        refuse(
            "tables",
            format!("the schema {schema} has no table {}", missing.join(", ")),
        );
    }
    Ok(unfit)
}
