//! Spans: of one attempt to deliver, with the trace context that goes with it; of claims and settlements; of
//! requests that append.
//!
//! A producer stores its context with the event, as `traceparent` and `tracestate` in the headers. The first
//! attempt continues that trace; a later one begins a trace of its own and links to the producer's, so that
//! hours of retries do not make one endless trace (semantic conventions, "Spans": creation context). What goes
//! out to the destination is the attempt's context. Sampling follows the producer's, unless
//! `OTEL_TRACES_SAMPLER` says otherwise.

use std::future::poll_fn;
use std::pin::pin;
use std::time::SystemTime;

use lanekeeper_core::adapter::{Delivery, Server, Verdict};
use lanekeeper_core::observed::Observed;
use lanekeeper_core::trace::TraceContext;
use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
    TraceId, TraceState, Tracer as _,
};
use opentelemetry::{Context, KeyValue, global};

use super::instruments::Trouble;
use super::names::{self, key};

/// Runs this with its log lines in that trace, if there is one.
pub async fn in_trace<F: Future>(trace: Option<&Context>, running: F) -> F::Output {
    let mut running = pin!(running);
    poll_fn(|context| {
        let _attached = trace.cloned().map(Context::attach);
        running.as_mut().poll(context)
    })
    .await
}

/// A round trip of a lane connection to Postgres that has ended, as a span: for so many lanes.
pub fn round_trip(operation: RoundTrip, began: SystemTime, lanes: usize) {
    let (name, kind) = match operation {
        RoundTrip::Claim => (names::CLAIM, names::RECEIVE),
        RoundTrip::Settle => (names::SETTLE, names::SETTLE),
    };
    let tracer = global::tracer(names::SCOPE);
    let builder = tracer
        .span_builder(name)
        .with_kind(SpanKind::Client)
        .with_start_time(began)
        .with_attributes([
            KeyValue::new(key::MESSAGING_SYSTEM, names::SYSTEM),
            KeyValue::new(key::OPERATION_NAME, name),
            KeyValue::new(key::OPERATION_TYPE, kind),
            KeyValue::new(key::BATCH_COUNT, i64::try_from(lanes).unwrap_or(i64::MAX)),
        ]);
    tracer.build_with_context(builder, &Context::new()).end();
}

/// What a lane connection asks Postgres for.
#[derive(Clone, Copy, Debug)]
pub enum RoundTrip {
    Claim,
    Settle,
}

/// The span of a request that appends events.
pub struct AppendSpan {
    span: global::BoxedSpan,
}

impl AppendSpan {
    /// Starts it in the client's trace, if there is one. `route`: the pattern of the path.
    pub fn start(
        route: &'static str,
        stream: &str,
        session: &str,
        client: Option<&TraceContext>,
    ) -> Self {
        let tracer = global::tracer(names::SCOPE);
        let builder = tracer
            .span_builder(format!("POST {route}"))
            .with_kind(SpanKind::Server)
            .with_attributes([
                KeyValue::new(key::HTTP_METHOD, "POST"),
                KeyValue::new(key::HTTP_ROUTE, route),
                KeyValue::new(key::URL_SCHEME, "http"),
                KeyValue::new(key::MESSAGING_SYSTEM, names::SYSTEM),
                KeyValue::new(key::OPERATION_NAME, names::ENQUEUE),
                KeyValue::new(key::OPERATION_TYPE, names::SEND),
                KeyValue::new(key::DESTINATION, stream.to_owned()),
                KeyValue::new(key::CONVERSATION_ID, session.to_owned()),
            ]);
        let mut parent = Context::new();
        if let Some(client) = client.and_then(remote) {
            parent = parent.with_remote_span_context(client);
        }
        let span = tracer.build_with_context(builder, &parent);
        Self { span }
    }

    /// What events that bring no context of their own are stored with.
    pub fn context(&self) -> TraceContext {
        text(self.span.span_context())
    }

    /// Ends it with the status of the answer, and the events in it.
    pub fn end(mut self, status: u16, events: usize) {
        let count = i64::try_from(events).unwrap_or(i64::MAX);
        self.span
            .set_attribute(KeyValue::new(key::BATCH_COUNT, count));
        let code = KeyValue::new(key::HTTP_STATUS, i64::from(status));
        self.span.set_attribute(code);
        if status >= 500 {
            let error = KeyValue::new(key::ERROR_TYPE, status.to_string());
            self.span.set_attribute(error);
            self.span.set_status(Status::error(""));
        }
        self.span.end();
    }
}

/// Whether a tracer could continue it.
pub fn is_well_formed(context: &TraceContext) -> bool {
    remote(context).is_some()
}

/// The context of a span, as text.
fn text(span: &SpanContext) -> TraceContext {
    let flags = span.trace_flags() & TraceFlags::SAMPLED;
    let state = span.trace_state().header();
    TraceContext {
        traceparent: Some(format!(
            "00-{}-{}-{:02x}",
            span.trace_id(),
            span.span_id(),
            flags
        )),
        tracestate: Some(state).filter(|state| !state.is_empty()),
    }
}

/// A stored context for the tracer; `None` where there is none, or none that is well-formed.
fn remote(context: &TraceContext) -> Option<SpanContext> {
    let mut parts = context.traceparent.as_deref()?.trim().split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if version.len() != 2 || version == "ff" || !is_hex(version) {
        return None;
    }
    // A version that we do not know may have more fields; ours has none (W3C Trace Context, 3.2.4).
    if (version == "00" && parts.next().is_some()) || flags.len() != 2 || !is_hex(flags) {
        return None;
    }
    let remote = SpanContext::new(
        TraceId::from_hex(trace)
            .ok()
            .filter(|_| trace.len() == 32)?,
        SpanId::from_hex(span).ok().filter(|_| span.len() == 16)?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED,
        true,
        context
            .tracestate
            .as_deref()
            .and_then(|state| state.parse::<TraceState>().ok())
            .unwrap_or_default(),
    );
    remote.is_valid().then_some(remote)
}

/// The span of an attempt that is under way. It ends when it is dropped, also where the attempt was cut short.
pub struct DeliverySpan {
    span: global::BoxedSpan,
    context: TraceContext,
}

impl DeliverySpan {
    /// Starts it on the process's global tracer.
    pub fn start(delivery: &Delivery<'_>, server: Option<Server>) -> Self {
        let event = delivery.event;
        let created_in = remote(&TraceContext::of_event(event.headers.as_deref()));
        let tracer = global::tracer(names::SCOPE);
        let mut builder = tracer
            .span_builder(names::delivery_span(&event.stream))
            .with_kind(SpanKind::Consumer)
            .with_attributes([
                KeyValue::new(key::MESSAGING_SYSTEM, names::SYSTEM),
                KeyValue::new(key::OPERATION_NAME, names::DELIVER),
                KeyValue::new(key::OPERATION_TYPE, names::PROCESS),
                KeyValue::new(key::DESTINATION, event.stream.to_string()),
                KeyValue::new(key::CONSUMER_GROUP, delivery.subscription.to_owned()),
                KeyValue::new(key::MESSAGE_ID, event.message_id.to_string()),
                KeyValue::new(key::CONVERSATION_ID, event.session.to_string()),
                KeyValue::new(key::EVENT_TYPE, event.event_type.to_string()),
                KeyValue::new(key::SEQ, event.seq),
                KeyValue::new(key::ATTEMPT, i64::from(delivery.attempt)),
            ]);
        if let (Some(Server { host, port }), Some(attributes)) = (server, &mut builder.attributes) {
            attributes.push(KeyValue::new(key::SERVER_ADDRESS, host));
            attributes.push(KeyValue::new(key::SERVER_PORT, i64::from(port)));
        }
        let mut parent = Context::new();
        match created_in {
            Some(created_in)
                if delivery.attempt == 1 && !delivery.requeued && delivery.replay_id.is_none() =>
            {
                parent = parent.with_remote_span_context(created_in);
            }
            Some(created_in) => {
                builder = builder.with_links(vec![Link::with_context(created_in)]);
            }
            None => {}
        }
        let span = tracer.build_with_context(builder, &parent);
        let context = text(span.span_context());
        Self { span, context }
    }

    /// The attempt carries so many events, of which the delivery is the first.
    pub fn is_of(&mut self, events: usize) {
        let count = i64::try_from(events).unwrap_or(i64::MAX);
        self.span
            .set_attribute(KeyValue::new(key::BATCH_COUNT, count));
    }

    /// What goes out with the delivery.
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// For log lines that belong to it.
    pub fn logged_with(&self) -> Context {
        Context::new().with_remote_span_context(self.span.span_context().clone())
    }

    /// Ends it with what the destination made of the delivery.
    pub fn end(mut self, verdict: &Verdict, observed: &Observed) {
        if let Some(status) = observed.status() {
            let status = KeyValue::new(key::HTTP_STATUS, i64::from(status));
            self.span.set_attribute(status);
        }
        if let Some(trouble) = Trouble::of(verdict, observed) {
            let error = KeyValue::new(key::ERROR_TYPE, trouble.error_type);
            self.span.set_attribute(error);
            let verdict_name = KeyValue::new(key::VERDICT, trouble.verdict);
            self.span.set_attribute(verdict_name);
            let (Verdict::Retry { error, .. }
            | Verdict::Throttled { reason: error, .. }
            | Verdict::NotSent { reason: error }
            | Verdict::Rejected { error }
            | Verdict::Gone { error }) = verdict
            else {
                return;
            };
            self.span.set_status(Status::error(error.clone()));
        }
        self.span.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn context(traceparent: &str) -> TraceContext {
        TraceContext {
            traceparent: Some(traceparent.to_owned()),
            tracestate: Some("vendor=1".to_owned()),
        }
    }

    #[test]
    fn a_well_formed_context_comes_out_as_it_went_in() {
        let remote = remote(&context(PARENT)).unwrap();
        assert!(remote.is_remote() && remote.is_sampled());
        assert_eq!(text(&remote), context(PARENT));
    }

    #[test]
    fn what_the_specification_calls_invalid_is_no_context() {
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c8031-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz",
            "00-é-b7ad6b7169203331-01",
        ] {
            assert_eq!(remote(&context(bad)), None, "{bad}");
        }
        let newer = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert!(remote(&context(newer)).is_some());
    }
}
