//! Decides which database or worker a command connects to, and how a connection error ends the command.

use lanekeeper_config::Config;
use lanekeeper_core::toml_file::nearest;
use lanekeeper_postgres::connect::{self, ConnectError};
use lanekeeper_postgres::inspect::FindError;
use lanekeeper_postgres::{ErrorClass, StoreError, sqlstate};
use lanekeeper_producer::Way;
use lanekeeper_producer::remote::{Remote, SettingsError};

use super::failure::Failure;
use super::output;

/// Why events have nowhere to go.
#[derive(Debug, thiserror::Error)]
pub enum WayError {
    #[error(transparent)]
    Database(#[from] ConnectError),
    #[error(transparent)]
    Remote(#[from] SettingsError),
}

/// Where events go: to the configured database, else to the worker that `LANEKEEPER_URL` names.
pub(crate) fn way(config: &Config) -> Result<Option<Way>, WayError> {
    match connect::settings(&config.database) {
        Ok(database) => Ok(Some(Way::Postgres(Box::new(database.with(|driver| {
            driver.application_name("lanekeeper hook");
        }))))),
        Err(ConnectError::NotConfigured) => Ok(Remote::of_environment()?.map(Way::Remote)),
        Err(error) => Err(error.into()),
    }
}

/// Connects to the configured database and checks that this release can work with it.
pub async fn connect(config: &Config) -> Result<tokio_postgres::Client, Failure> {
    connect::connect(&config.database)
        .await
        .map_err(Failure::from)
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let advice = error.advice();
        let failure = match error {
            ConnectError::NotConfigured | ConnectError::Url { .. } => Self::usage(error),
            _ if error.is_temporary() => Self::later(error),
            _ => Self::failed(error),
        };
        match advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if let Some(refusal) = error.refusal() {
            let failure = match error.sqlstate() {
                Some(sqlstate::LANE_BUSY) => Self::later(refusal.message),
                _ => Self::failed(refusal.message),
            };
            return match refusal.hint {
                Some(hint) => failure.advise(hint),
                None => failure,
            };
        }
        match error.class() {
            ErrorClass::Permanent => Self::failed(error),
            ErrorClass::Retryable | ErrorClass::ConnectionLost => {
                Self::later(error).advise("try again")
            }
        }
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        let advice = match &error {
            FindError::UnknownStream { name, known } => among(name, known),
            FindError::UnknownSubscription { name, known } => among(name, known),
            FindError::UnknownSession { stream, .. } => {
                format!("list its sessions with `lanekeeper session list --stream {stream}`")
            }
            FindError::Store(_) => String::new(),
        };
        match error {
            FindError::Store(error) => error.into(),
            error => Self::failed(error).advise(advice),
        }
    }
}

/// What there is instead of a name that there is not.
fn among(name: &str, known: &[String]) -> String {
    match nearest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None if known.is_empty() => "there is none yet: `lanekeeper apply` adds some".to_owned(),
        None => format!("there are: {}", output::short(&known.join(", "), 500)),
    }
}
