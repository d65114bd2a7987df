//! A W3C trace context as plain text: what a producer stored with an event, and what goes out with a delivery.

use serde::Deserialize;

/// W3C trace context as it is stored with an event and goes out with a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TraceContext {
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
}

impl TraceContext {
    /// What the producer stored with the event: optional and foreign, so what cannot be read counts as none.
    pub fn of_event(headers: Option<&str>) -> Self {
        headers
            .and_then(|headers| serde_json::from_str(headers).ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_no_context_are_none() {
        for headers in [None, Some("{}"), Some("[]"), Some("{\"traceparent\": 5}")] {
            assert_eq!(TraceContext::of_event(headers), TraceContext::default());
        }
    }
}
