//! The `OTEL_*` variables that the SDK reads itself, judged before it does: what it cannot read it passes over,
//! and a sampler that was misspelt would show as ten times the traces, days later.
//!
//! Judged as the SDK reads them, white space included, and only where they have an effect: those of a signal that
//! is not exported are nobody's concern here.

use lanekeeper_core::toml_file::nearest;
use url::Url;

use super::environment::{OtelError, Protocol, Signal, Transport, Wanted};

const SAMPLERS: &[&str] = &[
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];
/// Whose argument is a part of all traces.
const RATIO: &str = "traceidratio";
const COMPRESSIONS: &[&str] = &["gzip"];
const BOOLEANS: &[&str] = &["true", "false"];

/// Spans or lines in a queue: the SDK makes room for all of them at once.
const MOST_QUEUED: u32 = 1_000_000;

/// Of the queue and the batches of a signal.
const BATCHES: [&str; 4] = [
    "SCHEDULE_DELAY",
    "MAX_QUEUE_SIZE",
    "MAX_EXPORT_BATCH_SIZE",
    "EXPORT_TIMEOUT",
];

/// # Errors
/// The first value that the SDK could not read.
pub(super) fn check(
    wanted: &Wanted,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<(), OtelError> {
    let variables = Variables { variable };
    variables.pairs("OTEL_RESOURCE_ATTRIBUTES")?;
    if let Some(transport) = &wanted.traces {
        variables.sampler()?;
        variables.batches("OTEL_BSP")?;
        variables.exporter(Signal::Traces, transport)?;
    }
    if let Some(transport) = &wanted.metrics {
        variables.number("OTEL_METRIC_EXPORT_INTERVAL", 1, u32::MAX)?;
        variables.exporter(Signal::Metrics, transport)?;
    }
    if let Some(transport) = &wanted.logs {
        variables.batches("OTEL_BLRP")?;
        variables.exporter(Signal::Logs, transport)?;
    }
    Ok(())
}

/// Refuses a value that is none of `known`, with the one that was meant.
pub(super) fn one_of(
    name: &str,
    value: &str,
    known: &'static [&'static str],
) -> Result<(), OtelError> {
    if known.contains(&value) {
        return Ok(());
    }
    Err(OtelError::unknown(
        name,
        value,
        known,
        nearest(value, known.iter().copied()),
    ))
}

struct Variables<'v, V> {
    variable: &'v V,
}

impl<V: Fn(&str) -> Option<String>> Variables<'_, V> {
    /// An empty value counts as unset.
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    fn sampler(&self) -> Result<(), OtelError> {
        let name = "OTEL_TRACES_SAMPLER";
        let Some(sampler) = self.get(name) else {
            return Ok(());
        };
        one_of(name, &sampler, SAMPLERS)?;
        if !sampler.ends_with(RATIO) {
            return Ok(());
        }
        let name = "OTEL_TRACES_SAMPLER_ARG";
        let value = self.get(name).unwrap_or_default();
        match value.parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(()),
            _ => Err(OtelError::wrong(
                name,
                &value,
                "a number between 0 and 1, the part of the traces that is kept",
            )),
        }
    }

    fn batches(&self, prefix: &str) -> Result<(), OtelError> {
        BATCHES.iter().try_for_each(|name| {
            let most = if name.ends_with("SIZE") {
                MOST_QUEUED
            } else {
                u32::MAX
            };
            self.number(&format!("{prefix}_{name}"), 1, most)
        })
    }

    fn number(&self, name: &str, least: u32, most: u32) -> Result<(), OtelError> {
        match self.get(name) {
            Some(value)
                if value
                    .parse::<u32>()
                    .is_ok_and(|number| (least..=most).contains(&number)) =>
            {
                Ok(())
            }
            None => Ok(()),
            Some(value) => {
                let expected = format!("a whole number from {least} to {most}");
                Err(OtelError::wrong(name, &value, &expected))
            }
        }
    }

    /// What one signal's exporter reads, its own before the shared one.
    fn exporter(&self, signal: Signal, transport: &Transport) -> Result<(), OtelError> {
        for prefix in [
            format!("OTEL_EXPORTER_OTLP_{}", signal.word()),
            "OTEL_EXPORTER_OTLP".to_owned(),
        ] {
            self.endpoint(&format!("{prefix}_ENDPOINT"))?;
            self.number(&format!("{prefix}_TIMEOUT"), 0, u32::MAX)?;
            self.pairs(&format!("{prefix}_HEADERS"))?;
            let name = format!("{prefix}_COMPRESSION");
            if let Some(value) = self.get(&name) {
                one_of(&name, &value, COMPRESSIONS)?;
                if transport.protocol != Protocol::Grpc {
                    let expected =
                        "unset: only OTEL_EXPORTER_OTLP_PROTOCOL=grpc is compressed here";
                    return Err(OtelError::wrong(&name, &value, expected));
                }
            }
            let name = format!("{prefix}_INSECURE");
            if let Some(value) = self.get(&name) {
                one_of(&name, &value.to_lowercase(), BOOLEANS)?;
            }
        }
        Ok(())
    }

    fn endpoint(&self, name: &str) -> Result<(), OtelError> {
        let Some(value) = self.get(name) else {
            return Ok(());
        };
        match Url::parse(&value) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
            // Not repeated: some have a key in their path.
            _ => Err(OtelError::Form {
                name: name.to_owned(),
                expected: "a URL, as http://collector:4317".to_owned(),
            }),
        }
    }

    /// `key=value` pairs. What they hold may be a token, and is not repeated.
    fn pairs(&self, name: &str) -> Result<(), OtelError> {
        let value = self.get(name).unwrap_or_default();
        let is_pair = |pair: &str| {
            pair.split_once('=')
                .is_some_and(|(key, _)| !key.trim().is_empty())
        };
        match value.split_terminator(',').all(is_pair) {
            true => Ok(()),
            false => Err(OtelError::Form {
                name: name.to_owned(),
                expected: "pairs, as key=value,other=value".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSPORT: Transport = Transport {
        protocol: Protocol::Grpc,
        certificate: None,
    };

    fn judged(name: &str, value: &str, protocol: Protocol) -> Result<(), String> {
        let transport = Some(Transport {
            protocol,
            ..TRANSPORT
        });
        let wanted = Wanted {
            traces: transport.clone(),
            metrics: transport.clone(),
            logs: transport,
            propagate: true,
        };
        let variable = |asked: &str| (asked == name).then(|| value.to_owned());
        check(&wanted, &variable).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_sdk_could_not_read_is_refused_with_what_was_meant() {
        for (name, value, said) in [
            (
                "OTEL_TRACES_SAMPLER",
                "parentbased_alwayson",
                "did you mean parentbased_always_on?",
            ),
            ("OTEL_TRACES_SAMPLER", "always_on ", "always_on"),
            (
                "OTEL_TRACES_SAMPLER",
                "traceidratio",
                "OTEL_TRACES_SAMPLER_ARG =  must be a number between 0 and 1",
            ),
            (
                "OTEL_BSP_MAX_QUEUE_SIZE",
                "2k",
                "a whole number from 1 to 1000000",
            ),
            ("OTEL_BLRP_MAX_QUEUE_SIZE", "4000000000", "to 1000000"),
            ("OTEL_BSP_SCHEDULE_DELAY", "5s", "a whole number"),
            ("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "0", "a whole number"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "-1", "a whole number"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "a whole number from 0"),
            (
                "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT",
                "1.5",
                "a whole number from 0",
            ),
            (
                "OTEL_EXPORTER_OTLP_COMPRESSION",
                "gzipp",
                "did you mean gzip?",
            ),
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "collector:4317",
                "must be a URL",
            ),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "http://",
                "must be a URL",
            ),
            ("OTEL_EXPORTER_OTLP_INSECURE", "yes", "true, false"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2", "must be pairs"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=1,=hunter2", "must be pairs"),
        ] {
            let refused = judged(name, value, Protocol::Grpc).unwrap_err();
            assert!(refused.contains(said), "{refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
        let gzip = ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip");
        let refused = judged(gzip.0, gzip.1, Protocol::HttpProtobuf).unwrap_err();
        assert!(refused.contains("PROTOCOL=grpc"), "{refused}");
    }

    #[test]
    fn what_it_reads_is_taken_and_so_is_what_concerns_nothing_that_is_exported() {
        for (name, value) in [
            ("OTEL_TRACES_SAMPLER", "always_off"),
            ("OTEL_TRACES_SAMPLER", ""),
            ("OTEL_BSP_EXPORT_TIMEOUT", "30000"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector/v1"),
            ("OTEL_EXPORTER_OTLP_INSECURE", "TRUE"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Basic%20YTpi,x=y=z,",
            ),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=a, b="),
        ] {
            assert_eq!(judged(name, value, Protocol::Grpc), Ok(()), "{name}");
        }
        let nonsense = |name: &str| (name != "OTEL_RESOURCE_ATTRIBUTES").then(|| "?".to_owned());
        assert_eq!(check(&Wanted::default(), &nonsense), Ok(()));
    }
}
