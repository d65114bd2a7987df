//! Log lines on standard error, so that standard output stays data.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use crate::config::{LogConfig, LogFormat};

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("log.filter = {filter} cannot be read")]
    Filter {
        filter: String,
        source: tracing_subscriber::filter::ParseError,
    },
    #[error("a logger is installed in this process already")]
    Installed(#[from] TryInitError),
}

/// Installs the process's logger.
pub fn init(config: &LogConfig) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(&config.filter).map_err(|source| LogError::Filter {
        filter: config.filter.clone(),
        source,
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match config.format {
        LogFormat::Text => lines.finish().try_init()?,
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}
