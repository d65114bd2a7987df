//! Log lines on standard error, so that standard output stays data.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Registry, fmt};

use super::LogBridge;
use super::config::{LogConfig, LogFormat};

/// What sends telemetry must not make telemetry of it: one line would bring the next.
const EXPORTERS: [&str; 8] = [
    "h2",
    "hyper",
    "hyper_util",
    "opentelemetry",
    "opentelemetry_otlp",
    "opentelemetry_sdk",
    "reqwest",
    "tonic",
];

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

/// Installs the process's logger: lines on standard error, and to a collector where there is one.
pub fn init(config: &LogConfig, bridge: Option<LogBridge>) -> Result<(), LogError> {
    let filter = || {
        EnvFilter::try_new(&config.filter).map_err(|source| LogError::Filter {
            filter: config.filter.clone(),
            source,
        })
    };
    let lines = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    let lines = match config.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let exported = match bridge {
        None => None,
        Some(bridge) => {
            let silent = EXPORTERS.map(|target| (target, LevelFilter::OFF));
            let targets = Targets::new()
                .with_default(LevelFilter::TRACE)
                .with_targets(silent);
            Some(bridge.with_filter(targets).with_filter(filter()?))
        }
    };
    Registry::default()
        .with(exported)
        .with(lines.with_filter(filter()?))
        .try_init()?;
    Ok(())
}
