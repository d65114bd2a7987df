//! Log lines on standard error, so that standard output stays data.

use std::io::{self, IsTerminal as _};

use opentelemetry::Context;
use opentelemetry::trace::{SpanId, TraceContextExt as _, TraceId};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
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

/// Writes a line, with the ids of the trace that it belongs to.
struct InTrace<F> {
    lines: F,
    /// What takes the place of `end`.
    write: fn(TraceId, SpanId) -> String,
    /// How a line without a trace ends.
    end: &'static str,
}

impl<S, N, F> FormatEvent<S, N> for InTrace<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let trace = Context::map_current(|current| current.span().span_context().clone());
        if !trace.is_valid() {
            return self.lines.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.lines
            .format_event(context, Writer::new(&mut line), event)?;
        let line = line.strip_suffix(self.end).unwrap_or(&line);
        let ids = (self.write)(trace.trace_id(), trace.span_id());
        writer.write_str(line)?;
        writer.write_str(&ids)
    }
}

/// What writes the lines.
fn layer(
    format: LogFormat,
    ansi: bool,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = fmt::layer().with_writer(writer).with_ansi(ansi);
    match format {
        LogFormat::Text => lines
            .map_event_format(|lines| InTrace {
                lines: lines.with_ansi(ansi),
                write: |trace, span| format!(" trace_id={trace} span_id={span}\n"),
                end: "\n",
            })
            .boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .map_event_format(|lines| InTrace {
                lines,
                write: |trace, span| {
                    format!(",\"trace_id\":\"{trace}\",\"span_id\":\"{span}\"}}\n")
                },
                end: "}\n",
            })
            .boxed(),
    }
}

/// Installs the process's logger: lines on standard error, and to a collector where there is one.
pub fn init(config: &LogConfig, bridge: Option<LogBridge>) -> Result<(), LogError> {
    let filter = || {
        EnvFilter::try_new(&config.filter).map_err(|source| LogError::Filter {
            filter: config.filter.clone(),
            source,
        })
    };
    let lines = layer(config.format, io::stderr().is_terminal(), io::stderr);
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
        .with(lines.with_filter(filter()?))
        .with(exported)
        .try_init()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use opentelemetry::trace::{SpanContext, TraceFlags, TraceState};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A line without a trace and one with it.
    fn lines(format: LogFormat) -> Vec<String> {
        let written = Written::default();
        let to = written.clone();
        let layer = layer(format, false, move || to.clone());
        tracing::subscriber::with_default(Registry::default().with(layer), || {
            tracing::info!(n = 1, "without");
            let trace = SpanContext::new(
                TraceId::from(0xa),
                SpanId::from(0xb),
                TraceFlags::SAMPLED,
                true,
                TraceState::default(),
            );
            let _attached = Context::new().with_remote_span_context(trace).attach();
            tracing::info!(n = 2, "within");
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        written.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_of_a_trace_has_its_ids_as_text_and_as_json() {
        let ids = ("0000000000000000000000000000000a", "000000000000000b");
        let text = lines(LogFormat::Text);
        assert!(text[0].ends_with("without n=1"), "{}", text[0]);
        let end = format!("within n=2 trace_id={} span_id={}", ids.0, ids.1);
        assert!(text[1].ends_with(&end), "{}", text[1]);

        let json = lines(LogFormat::Json);
        let parsed = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        assert_eq!(parsed(&json[0]).get("trace_id"), None);
        let within = parsed(&json[1]);
        assert_eq!(
            (&within["n"], &within["message"]),
            (&2.into(), &"within".into())
        );
        assert_eq!(
            (&within["trace_id"], &within["span_id"]),
            (&ids.0.into(), &ids.1.into())
        );
    }
}
