//! A projection as its subscription and the environment of this process describe it.

use std::error::Error;
use std::time::Duration;

use lanekeeper_adapters::projection::{self, Settings};
use lanekeeper_adapters::{Environment, SettingsError};
use lanekeeper_postgres::Database;
use lanekeeper_postgres::connection::SslParameters;
use lanekeeper_postgres::projection::Projection;
use serde_json::Value;

/// How long connecting may take where the connection string does not say.
const PATIENCE: Duration = Duration::from_secs(5);

/// # Errors
/// The settings cannot be used, or the role's connection string is missing or cannot be used.
pub(crate) fn of(
    subscription: &str,
    settings: &Value,
    environment: &Environment,
) -> Result<Projection, Box<dyn Error + Send + Sync>> {
    let settings = projection::read(settings)?;
    let string = projection::connection_string(subscription, &settings, environment)?;
    let database = Database::new(&string, SslParameters::default()).map_err(|_| {
        // Its words may repeat a part of the string.
        SettingsError::Token {
            subscription: subscription.to_owned(),
            variable: settings.url_env.clone(),
            reason: "it is no connection string: write postgres://role:password@host:5432/database",
        }
    })?;
    let Settings {
        schema,
        function,
        role,
        tables,
        timeout,
        url_env: _,
    } = settings;
    Ok(Projection {
        schema,
        function,
        role,
        tables,
        timeout,
        database: database.within_unless_told(PATIENCE),
    })
}
