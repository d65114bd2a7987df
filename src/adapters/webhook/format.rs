//! In what form a webhook gets events: Lanekeeper's own, or CloudEvents.

use lanekeeper_core::adapter::Delivery;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

use super::cloudevents;
use crate::{SettingsError, envelope};

const KIND: &str = super::KIND;
/// Bytes of `source`: with a session's name, percent-encoded, it is an attribute.
const LONGEST_SOURCE: usize = 512;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Format {
    Own,
    CloudEvents {
        mode: Mode,
        /// What stands before the session's name in `source`. `None`: the stream's path.
        source: Option<String>,
    },
}

/// The content modes of CloudEvents over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Structured,
    Binary,
    Batched,
}

/// Reads the settings that are about it.
pub(super) fn read(
    format: Option<&str>,
    mode: Option<&str>,
    source: Option<String>,
) -> Result<Format, SettingsError> {
    let refused = |key, reason: &str| Err(SettingsError::invalid(KIND, key, reason));
    match format {
        None | Some("lanekeeper") => {
            let key = match (mode, &source) {
                (Some(_), _) => "content_mode",
                (None, Some(_)) => "source",
                (None, None) => return Ok(Format::Own),
            };
            return refused(key, "it is for format = \"cloudevents\"");
        }
        Some("cloudevents") => {}
        Some(_) => return refused("format", "it must be \"lanekeeper\" or \"cloudevents\""),
    }
    let mode = match mode {
        None | Some("structured") => Mode::Structured,
        Some("binary") => Mode::Binary,
        Some("batched") => Mode::Batched,
        Some(_) => {
            let reason = "it must be \"structured\", \"binary\" or \"batched\"";
            return refused("content_mode", reason);
        }
    };
    let is_reference = |source: &String| {
        (1..=LONGEST_SOURCE).contains(&source.len())
            && source
                .bytes()
                .all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b))
    };
    if !source.as_ref().is_none_or(is_reference) {
        let reason = format!("it must be a URI reference of 1 to {LONGEST_SOURCE} bytes");
        return refused("source", &reason);
    }
    let source = source.map(|source| source.trim_end_matches('/').to_owned());
    Ok(Format::CloudEvents { mode, source })
}

impl Format {
    /// The body of a request with one event.
    pub(super) fn body(&self, delivery: &Delivery<'_>) -> Vec<u8> {
        match self {
            Self::Own => envelope::body(delivery),
            Self::CloudEvents { mode, source } => {
                let outgoing = cloudevents::Outgoing::of(delivery.event, source.as_deref());
                match mode {
                    Mode::Structured => outgoing.text(),
                    Mode::Binary => outgoing.data(),
                    Mode::Batched => self.batch_body(std::slice::from_ref(delivery)),
                }
            }
        }
    }

    /// The body of a request with several events.
    pub(super) fn batch_body(&self, deliveries: &[Delivery<'_>]) -> Vec<u8> {
        match self {
            Self::Own => envelope::batch_body(deliveries),
            Self::CloudEvents { source, .. } => {
                let texts = deliveries.iter().map(|delivery| {
                    cloudevents::Outgoing::of(delivery.event, source.as_deref()).text()
                });
                let texts: Vec<Vec<u8>> = texts.collect();
                [&b"["[..], &texts.join(&b","[..]), b"]"].concat()
            }
        }
    }

    /// Says in the headers of a request what its body is. Of a batch, `delivery` is the first.
    pub(super) fn label(&self, delivery: &Delivery<'_>, headers: &mut HeaderMap) {
        let content_type = match self {
            Self::Own => "application/json",
            Self::CloudEvents { mode, source } => {
                if delivery.requeued {
                    headers.insert("lanekeeper-requeued", HeaderValue::from_static("true"));
                }
                match mode {
                    Mode::Structured => "application/cloudevents+json; charset=utf-8",
                    Mode::Batched => "application/cloudevents-batch+json; charset=utf-8",
                    Mode::Binary => {
                        let outgoing = cloudevents::Outgoing::of(delivery.event, source.as_deref());
                        return outgoing.label(headers);
                    }
                }
            }
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
}
