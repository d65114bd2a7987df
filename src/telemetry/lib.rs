//! What the process says about itself: log lines, metrics, spans.
//!
//! | file | what |
//! |---|---|
//! | `names` | every name |
//! | `instruments`, `serving` | what a worker counts and measures; what its HTTP listener does |
//! | `span` | an attempt's span, and the trace context that comes with events and goes out with deliveries |
//! | `environment`, `otlp` | what the `OTEL_*` variables ask for, and the exporters |
//! | `log` | log lines on standard error |
//!
//! Trouble with a collector never slows or stops a delivery: see `otlp`.

pub mod config;
mod delivery;
mod environment;
pub mod instruments;
pub mod live;
pub mod log;
pub mod names;
mod otlp;
pub mod serving;
pub mod sources;
pub mod span;

use std::sync::mpsc;
use std::time::Duration;

use opentelemetry::{Key, KeyValue, global};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use prometheus::{Encoder as _, Registry, TextEncoder};
use thiserror::Error;
use uuid::Uuid;

pub use delivery::DeliveryFigures;
use environment::OtelError;
use otlp::ExportError;

const INSTANCE: &str = "service.instance.id";
/// How long the end of the process waits for what is not exported yet.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

/// Hands log lines to the exporter.
pub type LogBridge = OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>;

#[derive(Debug, Error)]
pub enum TelemetryError {
    #[error(transparent)]
    Environment(#[from] OtelError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("the metrics cannot be served")]
    Prometheus(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What a process exports, and the registry behind `/metrics`.
pub struct Telemetry {
    registry: Registry,
    metrics: SdkMeterProvider,
    traces: Option<SdkTracerProvider>,
    logs: Option<SdkLoggerProvider>,
    propagate: bool,
}

impl Telemetry {
    /// Installs the process's meter and tracer as the `OTEL_*` variables ask for. Inside a runtime: the
    /// exporters over gRPC need one.
    ///
    /// # Errors
    /// What cannot be understood or read, before anything was installed.
    pub fn start() -> Result<Self, TelemetryError> {
        let wanted = environment::wanted()?;
        if wanted.any() {
            // Fails only where it is there already.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        // One for all: it names this process.
        let resource = resource();
        let registry = Registry::new();
        let scraped = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .build()
            .map_err(|error| TelemetryError::Prometheus(Box::new(error)))?;
        let mut metrics = SdkMeterProvider::builder()
            .with_resource(resource.clone())
            .with_reader(scraped);
        if let Some(transport) = &wanted.metrics {
            metrics = metrics.with_periodic_exporter(otlp::metrics(transport)?);
        }
        let traces = wanted.traces.as_ref().map(|transport| {
            let exporter = otlp::spans(transport)?;
            Ok::<_, ExportError>(
                SdkTracerProvider::builder()
                    .with_resource(resource.clone())
                    .with_batch_exporter(exporter)
                    .build(),
            )
        });
        let logs = wanted.logs.as_ref().map(|transport| {
            let exporter = otlp::logs(transport)?;
            Ok::<_, ExportError>(
                SdkLoggerProvider::builder()
                    .with_resource(resource.clone())
                    .with_batch_exporter(exporter)
                    .build(),
            )
        });
        let (traces, logs) = (traces.transpose()?, logs.transpose()?);
        let metrics = metrics.build();
        global::set_meter_provider(metrics.clone());
        if let Some(traces) = &traces {
            global::set_tracer_provider(traces.clone());
        }
        Ok(Self {
            registry,
            metrics,
            traces,
            logs,
            propagate: wanted.propagate,
        })
    }

    /// For the process's logger.
    pub fn log_bridge(&self) -> Option<LogBridge> {
        self.logs.as_ref().map(OpenTelemetryTracingBridge::new)
    }

    /// Whether deliveries get spans.
    pub fn tracing(&self) -> Tracing {
        match (&self.traces, self.propagate) {
            (None, _) => Tracing::Off,
            (Some(_), true) => Tracing::Propagated,
            (Some(_), false) => Tracing::Kept,
        }
    }

    /// The registry behind `/metrics`.
    pub fn metrics(&self) -> Metrics {
        Metrics {
            registry: self.registry.clone(),
        }
    }

    /// Sends what is not sent yet, for three seconds at most. Whatever becomes of it, the process ends as it
    /// would without.
    pub fn stop(self) {
        let (told, flushed) = mpsc::channel();
        // Some of these wait without a bound of their own.
        std::thread::spawn(move || {
            let mut failed = Vec::new();
            let mut note = |signal, error: Option<_>| {
                failed.extend(error.map(|error| format!("{signal}: {error}")));
            };
            if let Some(traces) = self.traces {
                note("traces", traces.shutdown_with_timeout(FLUSH_WITHIN).err());
            }
            note(
                "metrics",
                self.metrics.shutdown_with_timeout(FLUSH_WITHIN).err(),
            );
            if let Some(logs) = self.logs {
                note("logs", logs.shutdown_with_timeout(FLUSH_WITHIN).err());
            }
            // Nobody listens any more where it took too long.
            let _ = told.send(failed);
        });
        match flushed.recv_timeout(FLUSH_WITHIN) {
            Ok(failed) if failed.is_empty() => {}
            Ok(failed) => tracing::warn!(
                failed = failed.join("; "),
                "the last telemetry did not reach the collector; no event is concerned"
            ),
            Err(_) => tracing::warn!(
                "the collector is silent: the last telemetry is given up; no event is concerned"
            ),
        }
    }
}

/// What becomes of a delivery's span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracing {
    /// There is none; the producer's context goes out as it is stored.
    #[default]
    Off,
    /// Its context goes out with the delivery.
    Propagated,
    /// Nothing of it goes out; the producer's context does.
    Kept,
}

/// The process's metrics as Prometheus reads them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// In the text format.
    ///
    /// # Errors
    /// Where two instruments contradict each other.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// What this process has delivered since it began, by subscription.
    pub fn deliveries(&self) -> Vec<DeliveryFigures> {
        delivery::read(&self.registry.gather())
    }
}

/// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, as the SDK reads them, over our name and an id of this process.
fn resource() -> Resource {
    let told = Resource::builder().build();
    let get = |key| told.get(&Key::from_static_str(key));
    let mut ours = vec![KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))];
    if get(INSTANCE).is_none() {
        ours.push(KeyValue::new(INSTANCE, Uuid::new_v4().to_string()));
    }
    let builder = Resource::builder().with_attributes(ours);
    match get("service.name") {
        Some(name) if !name.as_str().starts_with("unknown_service") => builder.build(),
        _ => builder.with_service_name("lanekeeper").build(),
    }
}
