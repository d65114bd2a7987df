//! Values that sources of both kinds have.

use lanekeeper_core::source::{Action, Commands};
use toml::de::DeValue;

use super::value;

/// A secret in the file would enter the database.
pub(super) const SECRET_REFUSED: &str = "secrets never enter the database: put it into an environment variable of the worker and name that with secret_env or token_env";

/// What messages that begin with a command do: `{ "/stop" = "interrupt" }`.
pub(super) fn commands(value: &DeValue<'_>) -> Result<Commands, String> {
    let DeValue::Table(table) = value else {
        return Err("must be a table, such as { \"/stop\" = \"interrupt\" }".to_owned());
    };
    let action = value::choice(&Action::ALL, Action::as_str);
    let commands = table.iter().map(|(word, of)| {
        let word = word.get_ref().to_string();
        let action = action(of.get_ref()).map_err(|reason| format!("{word:?} {reason}"))?;
        Ok((word, action))
    });
    Commands::new(commands.collect::<Result<Vec<_>, String>>()?)
}

pub(super) fn variable(value: &DeValue<'_>) -> Result<String, String> {
    let name = value::text(value)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match name.len() <= 200 && name.chars().all(is_plain) {
        true => Ok(name),
        false => Err("must be the name of an environment variable".to_owned()),
    }
}
