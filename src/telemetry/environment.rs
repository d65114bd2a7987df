//! The `OTEL_*` variables: which signals are exported, and a check of what the crates read themselves.
//!
//! | variable | read by |
//! |---|---|
//! | `OTEL_SDK_DISABLED`, `OTEL_<SIGNAL>_EXPORTER`, `OTEL_PROPAGATORS` | this file; the crates do not |
//! | `OTEL_EXPORTER_OTLP_CERTIFICATE`, and per signal | this file and `otlp`; the crates do not |
//! | `OTEL_EXPORTER_OTLP_PROTOCOL`, and per signal | this file: `otlp` sets the certificate per protocol |
//! | all other `OTEL_EXPORTER_OTLP_*` | `opentelemetry-otlp` |
//! | `OTEL_TRACES_SAMPLER*`, `OTEL_SPAN_*`, `OTEL_BSP_*`, `OTEL_BLRP_*`, `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | `opentelemetry_sdk` |
//!
//! The crates refuse an endpoint that is no URI and ignore every other value that they cannot read: most of them
//! silently, a sampler with a warning before the log is set up. A misspelt sampler would show days later, as ten
//! times the traces. So the process refuses such a value at its start. It checks only the variables of exported
//! signals. An empty variable counts as unset (specification, "Environment Variables").
//!
//! A signal is exported if `OTEL_<SIGNAL>_EXPORTER=otlp` or an endpoint asks for it. Without either nothing is
//! sent, unlike the specification's default: a developer's worker should not look for a collector.

use std::path::PathBuf;

use thiserror::Error;
use url::Url;

const EXPORTERS: &str = "otlp, none";
const PROTOCOLS: &str = "grpc, http/protobuf";
const COMPRESSIONS: &str = "gzip, none";
const SAMPLERS: &str = "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, \
    parentbased_traceidratio";
/// The only propagator that has an effect.
const TRACE_CONTEXT: &str = "tracecontext";
/// Those of the specification.
const PROPAGATORS: &str = "tracecontext, baggage, b3, b3multi, jaeger, xray, ottrace, none";

const WHOLE: Check = number::<0, { u32::MAX }>;
const POSITIVE: Check = number::<1, { u32::MAX }>;
/// Spans or lines in a queue: the SDK allocates all of them at once.
const QUEUED: Check = number::<1, 1_000_000>;

/// Says what is wrong with a value, and repeats the value only where it cannot be a secret.
type Check = fn(&str) -> Result<(), String>;

/// `OTEL_EXPORTER_OTLP_<name>` and `OTEL_EXPORTER_OTLP_<SIGNAL>_<name>`.
const EXPORTER_RULES: [(&str, Check); 4] = [
    ("ENDPOINT", endpoint),
    ("TIMEOUT", WHOLE),
    ("HEADERS", pairs),
    ("INSECURE", boolean),
];
/// By signal.
const SDK_RULES: [(&str, &str, Check); 10] = [
    ("TRACES", "OTEL_TRACES_SAMPLER", |v| one_of(SAMPLERS, v)),
    ("TRACES", "OTEL_BSP_SCHEDULE_DELAY", POSITIVE),
    ("TRACES", "OTEL_BSP_EXPORT_TIMEOUT", POSITIVE),
    ("TRACES", "OTEL_BSP_MAX_QUEUE_SIZE", QUEUED),
    ("TRACES", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", QUEUED),
    ("METRICS", "OTEL_METRIC_EXPORT_INTERVAL", POSITIVE),
    ("LOGS", "OTEL_BLRP_SCHEDULE_DELAY", POSITIVE),
    ("LOGS", "OTEL_BLRP_EXPORT_TIMEOUT", POSITIVE),
    ("LOGS", "OTEL_BLRP_MAX_QUEUE_SIZE", QUEUED),
    ("LOGS", "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", QUEUED),
];

#[derive(Debug, Error, PartialEq, Eq)]
#[error("{variable} {problem}: nothing was started. Correct it, or unset it")]
pub struct OtelError {
    variable: String,
    problem: String,
}

impl OtelError {
    fn of(variable: &str, problem: String) -> Self {
        Self {
            variable: variable.to_owned(),
            problem,
        }
    }
}

/// Which signals are exported over OTLP, and how.
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
    /// The collector is spoken to over TLS.
    pub is_secured: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    HttpProtobuf,
}

/// Reads the process's variables.
///
/// # Errors
/// The first value that is refused.
pub fn wanted() -> Result<Wanted, OtelError> {
    Variables(|name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned())).wanted()
}

struct Variables<V>(V);

impl<V: Fn(&str) -> Option<String>> Variables<V> {
    fn wanted(&self) -> Result<Wanted, OtelError> {
        let propagators = self.checked("OTEL_PROPAGATORS", |value| {
            names(value).try_for_each(|name| one_of(PROPAGATORS, &name))
        })?;
        let mut wanted = Wanted {
            propagate: propagators.is_none_or(|v| names(&v).any(|name| name == TRACE_CONTEXT)),
            ..Wanted::default()
        };
        let disabled = self.checked("OTEL_SDK_DISABLED", boolean)?;
        if !disabled.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            wanted.traces = self.transport("TRACES")?;
            wanted.metrics = self.transport("METRICS")?;
            wanted.logs = self.transport("LOGS")?;
        }
        Ok(wanted)
    }

    fn transport(&self, signal: &str) -> Result<Option<Transport>, OtelError> {
        let otlp = |name: &str| {
            [
                format!("OTEL_EXPORTER_OTLP_{signal}_{name}"),
                format!("OTEL_EXPORTER_OTLP_{name}"),
            ]
        };
        let exporter = self.checked(&format!("OTEL_{signal}_EXPORTER"), |value| {
            // Prometheus is always there, at /metrics.
            match (signal, value) {
                ("METRICS", "prometheus") => Ok(()),
                _ => one_of(EXPORTERS, value),
            }
        })?;
        let asked = match exporter {
            Some(exporter) => exporter == "otlp",
            None => otlp("ENDPOINT").iter().any(|name| self.get(name).is_some()),
        };
        if !asked {
            return Ok(None);
        }
        let [own, shared] = otlp("PROTOCOL");
        let protocol = match self.checked(&own, protocol)? {
            None => self.checked(&shared, protocol)?,
            own => own,
        };
        let protocol = match protocol.as_deref() {
            Some("grpc") => Protocol::Grpc,
            _ => Protocol::HttpProtobuf,
        };
        self.checked("OTEL_RESOURCE_ATTRIBUTES", pairs)?;
        for (name, check) in EXPORTER_RULES {
            for variable in otlp(name) {
                self.checked(&variable, check)?;
            }
        }
        for variable in otlp("COMPRESSION") {
            self.checked(&variable, |value| {
                match (protocol, &*value.to_lowercase()) {
                    (Protocol::HttpProtobuf, "gzip") => {
                        Err("= gzip needs OTEL_EXPORTER_OTLP_PROTOCOL=grpc".to_owned())
                    }
                    (_, value) => one_of(COMPRESSIONS, value),
                }
            })?;
        }
        for (_, variable, check) in SDK_RULES.iter().filter(|(rule, ..)| *rule == signal) {
            self.checked(variable, check)?;
        }
        let sampler = self.get("OTEL_TRACES_SAMPLER").unwrap_or_default();
        if signal == "TRACES" && sampler.ends_with("traceidratio") {
            let name = "OTEL_TRACES_SAMPLER_ARG";
            let value = self.get(name).unwrap_or_default();
            ratio(&value).map_err(|problem| OtelError::of(name, problem))?;
        }
        let [own, shared] = otlp("CERTIFICATE").map(|name| self.get(&name));
        let [own_endpoint, shared_endpoint] = otlp("ENDPOINT").map(|name| self.get(&name));
        let endpoint = own_endpoint.or(shared_endpoint);
        let url = endpoint.and_then(|endpoint| Url::parse(&endpoint).ok());
        Ok(Some(Transport {
            protocol,
            certificate: own.or(shared).map(PathBuf::from),
            is_secured: url.is_some_and(|url| url.scheme() == "https"),
        }))
    }

    /// An empty value counts as unset.
    fn get(&self, name: &str) -> Option<String> {
        self.0(name).filter(|value| !value.is_empty())
    }

    fn checked(
        &self,
        name: &str,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<Option<String>, OtelError> {
        let value = self.get(name);
        match value.as_deref().map_or(Ok(()), check) {
            Ok(()) => Ok(value),
            Err(problem) => Err(OtelError::of(name, problem)),
        }
    }
}

fn names(list: &str) -> impl Iterator<Item = String> {
    list.split(',')
        .map(|name| name.trim().to_lowercase())
        .filter(|name| !name.is_empty())
}

fn one_of(known: &str, value: &str) -> Result<(), String> {
    match known.split(", ").any(|known| known == value) {
        true => Ok(()),
        false => Err(format!("= {value} is not one of {known}")),
    }
}

fn protocol(value: &str) -> Result<(), String> {
    one_of(PROTOCOLS, value)
}

fn boolean(value: &str) -> Result<(), String> {
    one_of("true, false", &value.to_lowercase())
}

fn number<const LEAST: u32, const MOST: u32>(value: &str) -> Result<(), String> {
    match value.parse::<u32>() {
        Ok(number) if (LEAST..=MOST).contains(&number) => Ok(()),
        _ => Err(format!(
            "= {value} must be a whole number from {LEAST} to {MOST}"
        )),
    }
}

fn ratio(value: &str) -> Result<(), String> {
    match value.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(()),
        _ => Err(format!(
            "= {value} must be a number between 0 and 1, the part of the traces that is kept"
        )),
    }
}

/// The value may have a key in its path.
fn endpoint(value: &str) -> Result<(), String> {
    match Url::parse(value) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
        _ => Err("must be a URL, as http://collector:4317".to_owned()),
    }
}

/// The value may have a token in it.
fn pairs(value: &str) -> Result<(), String> {
    let mut pairs = value.split_terminator(',').map(|pair| pair.split_once('='));
    match pairs.all(|pair| pair.is_some_and(|(key, _)| !key.trim().is_empty())) {
        true => Ok(()),
        false => Err("must be pairs, as key=value,other=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
    const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");

    /// A variable, its value, and what the refusal says. A secret, here hunter2, is not repeated.
    const REFUSED: &str = "\
OTEL_SDK_DISABLED=yes => = yes is not one of true, false
OTEL_PROPAGATORS=baggage,tracecontex => = tracecontex is not one of tracecontext
OTEL_TRACES_EXPORTER=jaeger => OTEL_TRACES_EXPORTER = jaeger is not one of otlp, none
OTEL_LOGS_EXPORTER=prometheus => OTEL_LOGS_EXPORTER = prometheus
OTEL_EXPORTER_OTLP_PROTOCOL=http/json => grpc, http/protobuf
OTEL_EXPORTER_OTLP_LOGS_PROTOCOL=http/json => OTEL_EXPORTER_OTLP_LOGS_PROTOCOL = http/json
OTEL_TRACES_SAMPLER=parentbased_alwayson => parentbased_always_on
OTEL_TRACES_SAMPLER=always_on  => OTEL_TRACES_SAMPLER = always_on  is not
OTEL_TRACES_SAMPLER=traceidratio => OTEL_TRACES_SAMPLER_ARG =  must be a number between 0 and 1
OTEL_BSP_MAX_QUEUE_SIZE=2k => a whole number from 1 to 1000000
OTEL_BLRP_MAX_QUEUE_SIZE=4000000000 => to 1000000
OTEL_BSP_SCHEDULE_DELAY=5s => a whole number from 1
OTEL_BLRP_MAX_EXPORT_BATCH_SIZE=0 => a whole number from 1
OTEL_METRIC_EXPORT_INTERVAL=-1 => a whole number from 1
OTEL_EXPORTER_OTLP_TIMEOUT=10s => a whole number from 0
OTEL_EXPORTER_OTLP_LOGS_TIMEOUT=1.5 => a whole number from 0
OTEL_EXPORTER_OTLP_COMPRESSION=gzipp => gzip, none
OTEL_EXPORTER_OTLP_ENDPOINT=hunter2:4317 => OTEL_EXPORTER_OTLP_ENDPOINT must be a URL
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http:// => must be a URL
OTEL_EXPORTER_OTLP_INSECURE=yes => true, false
OTEL_EXPORTER_OTLP_HEADERS=hunter2 => must be pairs
OTEL_RESOURCE_ATTRIBUTES=a=1,=hunter2 => must be pairs";
    const ACCEPTED: &str = "\
OTEL_SDK_DISABLED=FALSE
OTEL_TRACES_SAMPLER=always_off
OTEL_TRACES_SAMPLER=
OTEL_BSP_EXPORT_TIMEOUT=30000
OTEL_EXPORTER_OTLP_TIMEOUT=0
OTEL_EXPORTER_OTLP_COMPRESSION=gzip
OTEL_EXPORTER_OTLP_ENDPOINT=https://collector/v1
OTEL_EXPORTER_OTLP_INSECURE=TRUE
OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20YTpi,x=y=z,
OTEL_RESOURCE_ATTRIBUTES=deployment.environment=a, b=";

    fn of(variables: &[(&str, &str)]) -> Result<Wanted, String> {
        let variable = |name: &str| {
            let mut found = variables.iter().rev().filter(|(known, _)| *known == name);
            found.next().map(|(_, value)| (*value).to_owned())
        };
        let wanted = Variables(variable).wanted();
        wanted.map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_exported_unless_it_was_asked_for() {
        assert!(!of(&[]).unwrap().any());
        assert!(!of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap().any());
        let wanted = of(&[ENDPOINT]).unwrap();
        assert!(wanted.traces.is_some() && wanted.metrics.is_some() && wanted.logs.is_some());
        let disabled = ("OTEL_SDK_DISABLED", "True");
        assert!(!of(&[ENDPOINT, disabled]).unwrap().any());
    }

    #[test]
    fn each_signal_can_be_exported_alone_and_over_its_own_transport() {
        let wanted = of(&[
            ENDPOINT,
            GRPC,
            ("OTEL_LOGS_EXPORTER", "none"),
            ("OTEL_METRICS_EXPORTER", "prometheus"),
            ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/ca.pem"),
        ])
        .unwrap();
        let traces = wanted.traces.unwrap();
        assert_eq!(traces.protocol, Protocol::Grpc);
        assert_eq!(traces.certificate, Some(PathBuf::from("/ca.pem")));
        assert!(!traces.is_secured);
        let secured = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "HTTPS://collector");
        assert!(of(&[ENDPOINT, secured]).unwrap().traces.unwrap().is_secured);
        assert_eq!((wanted.metrics, wanted.logs), (None, None));
        let wanted = of(&[("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://l")]).unwrap();
        assert_eq!(wanted.logs.unwrap().protocol, Protocol::HttpProtobuf);
        assert_eq!(wanted.traces, None);
    }

    #[test]
    fn a_context_is_passed_on_unless_the_propagators_leave_it_out() {
        for (named, propagate) in [
            ("", true),
            ("baggage, tracecontext", true),
            ("none", false),
            ("b3", false),
        ] {
            let wanted = of(&[("OTEL_PROPAGATORS", named)]).unwrap();
            assert_eq!(wanted.propagate, propagate, "{named}");
        }
    }

    #[test]
    fn a_value_that_nobody_could_read_is_refused_with_those_that_are_known() {
        for case in REFUSED.lines() {
            let (variable, said) = case.split_once(" => ").unwrap();
            let (name, value) = variable.split_once('=').unwrap();
            let refused = of(&[ENDPOINT, GRPC, (name, value)]).unwrap_err();
            assert!(refused.contains(said), "{refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
        let gzip = ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip");
        let refused = of(&[ENDPOINT, gzip]).unwrap_err();
        assert!(refused.contains("PROTOCOL=grpc"), "{refused}");
    }

    #[test]
    fn a_value_that_the_sdk_reads_is_accepted_and_so_is_one_of_a_signal_that_is_not_exported() {
        for variable in ACCEPTED.lines() {
            let of = of(&[ENDPOINT, GRPC, variable.split_once('=').unwrap()]);
            assert!(of.is_ok(), "{of:?}");
        }
        let sampler = ("OTEL_TRACES_SAMPLER", "always");
        assert!(of(&[sampler]).is_ok());
        assert!(of(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none"), sampler]).is_ok());
    }
}
