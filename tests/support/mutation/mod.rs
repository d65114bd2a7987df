//! Mutations of the code: each takes away one thing that keeps an invariant, and some test must fail then.
//!
//! The environment variable `MUTATION` names the one that a test process runs with. Those of the schema are
//! texts in functions of a migrated database: each database that a test gets has them replaced. Those of the
//! program are switches of `src/fault/mutation.rs`, which reads the same variable, in worker processes too.

mod table;

use lanekeeper_fault::Mutation;
use tokio_postgres::Client;

pub use self::table::ROWS;

/// As `src/fault/mutation.rs` reads it.
pub const VARIABLE: &str = "MUTATION";

pub struct Row {
    pub name: &'static str,
    /// Of I1 to I13.
    pub invariant: u32,
    /// What is taken away.
    pub without: &'static str,
    pub change: Change,
    /// The test of `tests/it` that must fail.
    pub test: &'static str,
}

pub enum Change {
    /// In a function of the schema `lanekeeper`: texts that each occur once, and what stands there instead.
    Sql(&'static str, &'static [(&'static str, &'static str)]),
    Rust(Mutation),
}

/// Changes this migrated database as `MUTATION` says.
pub async fn apply_chosen(client: &Client) {
    let Ok(name) = std::env::var(VARIABLE) else {
        return;
    };
    let row = ROWS.iter().find(|row| row.name == name);
    let row = row.unwrap_or_else(|| panic!("{VARIABLE}: there is no mutation {name:?}"));
    let applied = apply(client, row).await;
    applied.unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// Changes the functions of this database.
///
/// # Errors
/// Says which text does not occur exactly once.
pub async fn apply(client: &Client, row: &Row) -> Result<(), String> {
    let Change::Sql(function, replacements) = row.change else {
        return Ok(());
    };
    let definition = "SELECT pg_get_functiondef(('lanekeeper.' || $1::text)::regproc)";
    let found = client.query_one(definition, &[&function]).await;
    let mut text: String = found.map_err(|error| format!("{error:?}"))?.get(0);
    for (old, new) in replacements {
        let times = text.matches(old).count();
        if times != 1 {
            return Err(format!("{times} times in {function}: {old}"));
        }
        text = text.replace(old, new);
    }
    let changed = client.batch_execute(&text).await;
    changed.map_err(|error| format!("{function}: {error:?}"))
}
