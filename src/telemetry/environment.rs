//! What the `OTEL_*` variables ask for, as far as the SDK does not read them itself; what it reads is judged here
//! too (`sdk_variables`).
//!
//! The SDK and its exporter read endpoints, headers, protocols, time-outs, compression, the sampler, batch
//! sizes, the service's name and its resource attributes. They do not read which signals are wanted, whether the
//! SDK is off, the propagators and the CA certificate: those are read here. A signal is exported where it was
//! asked for: by its own `OTEL_<SIGNAL>_EXPORTER=otlp`, or by an endpoint. Without either nothing is sent
//! anywhere, which is not the specification's default: a developer's worker should not look for a collector.

use std::ffi::OsString;
use std::path::PathBuf;

use lanekeeper_core::toml_file::nearest;
use thiserror::Error;

use super::sdk_variables::{self, one_of};

const EXPORTERS: &[&str] = &["otlp", "none"];
const PROTOCOLS: &[&str] = &["grpc", "http/protobuf"];
/// Those of the specification. Without the first nothing is passed on.
const PROPAGATORS: &[&str] = &[
    "tracecontext",
    "baggage",
    "b3",
    "b3multi",
    "jaeger",
    "xray",
    "ottrace",
    "none",
];

/// What OpenTelemetry calls a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum OtelError {
    #[error(
        "{name} = {value} is not one of {known}{meant}: nothing was started. Correct it, or unset it"
    )]
    Unknown {
        name: String,
        value: String,
        known: String,
        meant: String,
    },
    #[error("{name} = {value} must be {expected}: nothing was started. Correct it, or unset it")]
    Wrong {
        name: String,
        value: String,
        expected: String,
    },
    /// Its value may be a secret.
    #[error("{name} must be {expected}: nothing was started. Correct it, or unset it")]
    Form { name: String, expected: String },
}

impl OtelError {
    pub(super) fn unknown(name: &str, value: &str, known: &[&str], meant: Option<&str>) -> Self {
        let meant = meant.map(|meant| format!(" (did you mean {meant}?)"));
        Self::Unknown {
            name: name.to_owned(),
            value: value.to_owned(),
            known: known.join(", "),
            meant: meant.unwrap_or_default(),
        }
    }

    pub(super) fn wrong(name: &str, value: &str, expected: &str) -> Self {
        Self::Wrong {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        }
    }
}

/// Which signals go out over OTLP, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub traces: Option<Transport>,
    pub metrics: Option<Transport>,
    pub logs: Option<Transport>,
    /// Whether a delivery's context goes out to its destination.
    pub propagate: bool,
}

impl Wanted {
    /// Whether anything is exported.
    pub fn any(&self) -> bool {
        self.traces.is_some() || self.metrics.is_some() || self.logs.is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    pub protocol: Protocol,
    /// PEM of the authorities that the collector's certificate is checked against, beside the system's.
    pub certificate: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    HttpProtobuf,
}

/// Reads the process's variables.
///
/// # Errors
/// A value that is none of those that are known, with those.
pub fn wanted() -> Result<Wanted, OtelError> {
    read(|name| std::env::var_os(name))
}

fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Wanted, OtelError> {
    // An empty value counts as unset (specification, "Environment Variables").
    let value = |name: &str| {
        variable(name)
            .map(|value| value.to_string_lossy().trim().to_owned())
            .filter(|value| !value.is_empty())
    };
    let propagate = match value("OTEL_PROPAGATORS") {
        None => true,
        Some(named) => propagates(&named)?,
    };
    if let Some(disabled) = value("OTEL_SDK_DISABLED") {
        let disabled = disabled.to_lowercase();
        one_of("OTEL_SDK_DISABLED", &disabled, &["true", "false"])?;
        if disabled == "true" {
            return Ok(Wanted {
                propagate,
                ..Wanted::default()
            });
        }
    }
    let wanted = Wanted {
        traces: transport(Signal::Traces, &value)?,
        metrics: transport(Signal::Metrics, &value)?,
        logs: transport(Signal::Logs, &value)?,
        propagate,
    };
    // As the SDK sees them: it does not trim.
    let raw = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
    sdk_variables::check(&wanted, &raw)?;
    Ok(wanted)
}

fn propagates(named: &str) -> Result<bool, OtelError> {
    let named: Vec<_> = named
        .split(',')
        .map(|name| name.trim().to_lowercase())
        .filter(|name| !name.is_empty())
        .collect();
    for name in &named {
        one_of("OTEL_PROPAGATORS", name, PROPAGATORS)?;
    }
    Ok(named.iter().any(|name| name == PROPAGATORS[0]))
}

fn transport(
    signal: Signal,
    value: &impl Fn(&str) -> Option<String>,
) -> Result<Option<Transport>, OtelError> {
    let word = signal.word();
    let own = |name: &str| value(&format!("OTEL_EXPORTER_OTLP_{word}_{name}"));
    let shared = |name: &str| value(&format!("OTEL_EXPORTER_OTLP_{name}"));
    let exporter = format!("OTEL_{word}_EXPORTER");
    let asked = match value(&exporter).as_deref() {
        None => own("ENDPOINT").or_else(|| shared("ENDPOINT")).is_some(),
        Some("otlp") => true,
        Some("none") => false,
        // Prometheus is always there, at /metrics.
        Some("prometheus") if signal == Signal::Metrics => false,
        // None of them by now.
        Some(other) => one_of(&exporter, other, EXPORTERS).map(|()| false)?,
    };
    if !asked {
        return Ok(None);
    }
    let protocol = match own("PROTOCOL").or_else(|| shared("PROTOCOL")).as_deref() {
        Some("grpc") => Protocol::Grpc,
        None | Some("http/protobuf") => Protocol::HttpProtobuf,
        Some(other) => {
            let name = "OTEL_EXPORTER_OTLP_PROTOCOL";
            let meant = nearest(other, PROTOCOLS.iter().copied());
            return Err(OtelError::unknown(name, other, PROTOCOLS, meant));
        }
    };
    Ok(Some(Transport {
        protocol,
        certificate: own("CERTIFICATE")
            .or_else(|| shared("CERTIFICATE"))
            .map(PathBuf::from),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Wanted, OtelError> {
        read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn nothing_is_exported_unless_it_was_asked_for() {
        assert!(!of(&[]).unwrap().any());
        assert!(of(&[]).unwrap().propagate);
        assert!(!of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap().any());
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        let wanted = of(&[endpoint]).unwrap();
        assert!(wanted.traces.is_some() && wanted.metrics.is_some() && wanted.logs.is_some());
        assert!(
            !of(&[endpoint, ("OTEL_SDK_DISABLED", "True")])
                .unwrap()
                .any()
        );
    }

    #[test]
    fn each_signal_can_be_had_alone_and_over_its_own_transport() {
        let wanted = of(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_LOGS_EXPORTER", "none"),
            ("OTEL_METRICS_EXPORTER", "prometheus"),
            ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/ca.pem"),
        ])
        .unwrap();
        let traces = wanted.traces.unwrap();
        assert_eq!(traces.protocol, Protocol::Grpc);
        assert_eq!(traces.certificate, Some(PathBuf::from("/ca.pem")));
        assert_eq!((wanted.metrics, wanted.logs), (None, None));
        let wanted = of(&[("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://l")]).unwrap();
        assert_eq!(wanted.logs.unwrap().protocol, Protocol::HttpProtobuf);
        assert_eq!(wanted.traces, None);
    }

    #[test]
    fn values_that_nobody_knows_are_refused_with_those_that_are_known() {
        let error = of(&[("OTEL_TRACES_EXPORTER", "jaeger")]).unwrap_err();
        assert!(error.to_string().contains("OTEL_TRACES_EXPORTER = jaeger"));
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
        let error = of(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]).unwrap_err();
        assert!(error.to_string().contains("grpc, http/protobuf"), "{error}");
    }

    #[test]
    fn a_switch_that_is_neither_on_nor_off_and_an_unknown_propagator_are_refused() {
        assert!(of(&[("OTEL_SDK_DISABLED", "FALSE")]).is_ok());
        let error = of(&[("OTEL_SDK_DISABLED", "yes")]).unwrap_err();
        assert!(error.to_string().contains("true, false"), "{error}");
        let error = of(&[("OTEL_PROPAGATORS", "baggage,tracecontex")]).unwrap_err();
        assert!(
            error.to_string().contains("did you mean tracecontext?"),
            "{error}"
        );
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
        let sampler = ("OTEL_TRACES_SAMPLER", "allways_on");
        assert!(of(&[sampler]).is_ok(), "nothing is traced");
        let error = of(&[endpoint, sampler]).unwrap_err();
        assert!(
            error.to_string().contains("did you mean always_on?"),
            "{error}"
        );
    }

    #[test]
    fn a_context_is_passed_on_unless_the_propagators_leave_it_out() {
        assert!(!of(&[("OTEL_PROPAGATORS", "none")]).unwrap().propagate);
        assert!(!of(&[("OTEL_PROPAGATORS", "b3")]).unwrap().propagate);
        let both = ("OTEL_PROPAGATORS", "baggage, tracecontext");
        assert!(of(&[both]).unwrap().propagate);
    }
}
