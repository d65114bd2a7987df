//! What is counted and measured of the HTTP listener.

use std::sync::Arc;
use std::time::Instant;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

use super::instruments::{counter, seconds};
use super::names::{self, key};
use super::sources::SourceUpdates;

/// What the conventions call a method that is none of those below.
const OTHER_METHOD: &str = "_OTHER";
const METHODS: [&str; 9] = [
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
];

/// The instruments of one listener.
#[derive(Debug)]
pub struct Serving {
    duration: Histogram<f64>,
    active: UpDownCounter<i64>,
    events: Counter<u64>,
    refused: Counter<u64>,
    ignored: Counter<u64>,
    closed: Counter<u64>,
    updates: SourceUpdates,
}

/// Why a connection was not taken, or closed before its client wished.
#[derive(Clone, Copy, Debug)]
pub enum Closed {
    /// For another, while it had no request.
    GaveWay,
    /// It was not taken: every place had a request.
    NoPlace,
    /// Nothing came for too long, or nothing was taken.
    TimedOut,
}

impl Serving {
    pub fn new(meter: &Meter) -> Self {
        let active = names::HTTP_ACTIVE;
        Self {
            duration: seconds(meter, names::HTTP_DURATION),
            active: meter
                .i64_up_down_counter(active.name)
                .with_unit(active.unit)
                .with_description(active.says)
                .build(),
            events: counter(meter, names::HTTP_EVENTS),
            refused: counter(meter, names::HTTP_REFUSED),
            ignored: counter(meter, names::SOURCE_IGNORED),
            closed: counter(meter, names::HTTP_CLOSED),
            updates: SourceUpdates::new(meter),
        }
    }

    /// A request came.
    pub fn begin(self: &Arc<Self>, method: &str) -> UnderWay {
        let known = METHODS.into_iter().find(|known| *known == method);
        let attributes = vec![
            KeyValue::new(key::HTTP_METHOD, known.unwrap_or(OTHER_METHOD)),
            KeyValue::new(key::URL_SCHEME, "http"),
        ];
        self.active.add(1, &attributes);
        UnderWay {
            serving: Arc::clone(self),
            since: Instant::now(),
            attributes,
            answer: None,
        }
    }

    /// Events of a stream were appended, or had been before.
    pub fn appended(&self, stream: &str, events: u64, duplicate: bool) {
        if events > 0 {
            let stream = KeyValue::new(key::DESTINATION, stream.to_owned());
            let duplicate = KeyValue::new(key::DUPLICATE, duplicate);
            self.events.add(events, &[stream, duplicate]);
        }
    }

    /// A request was refused, for the reason that its answer names.
    pub fn refused(&self, reason: &'static str) {
        self.refused.add(1, &[KeyValue::new(key::REASON, reason)]);
    }

    /// A source's verified request became no message.
    pub fn ignored(&self, source: &str) {
        let source = KeyValue::new(key::SOURCE, source.to_owned());
        self.ignored.add(1, &[source]);
    }

    /// Updates of chats.
    pub fn updates(&self) -> &SourceUpdates {
        &self.updates
    }

    pub fn closed(&self, why: Closed) {
        let reason = match why {
            Closed::GaveWay => "gave_way",
            Closed::NoPlace => "no_place",
            Closed::TimedOut => "timed_out",
        };
        self.closed.add(1, &[KeyValue::new(key::REASON, reason)]);
    }
}

/// A request until the end of its answer, when it is measured.
pub struct UnderWay {
    serving: Arc<Serving>,
    since: Instant,
    attributes: Vec<KeyValue>,
    answer: Option<(u16, Option<Arc<str>>)>,
}

impl UnderWay {
    /// `route`: the pattern of the path, where there is one. Never the path itself, which has names of sessions.
    pub fn answered(&mut self, status: u16, route: Option<Arc<str>>) {
        self.answer = Some((status, route));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.serving.active.add(-1, &self.attributes);
        let mut attributes = std::mem::take(&mut self.attributes);
        match self.answer.take() {
            Some((status, route)) => {
                let code = KeyValue::new(key::HTTP_STATUS, i64::from(status));
                attributes.push(code);
                attributes.extend(route.map(|route| KeyValue::new(key::HTTP_ROUTE, route)));
                if status >= 500 {
                    attributes.push(KeyValue::new(key::ERROR_TYPE, status.to_string()));
                }
            }
            // What it had begun goes on; nobody hears of it.
            None => attributes.push(KeyValue::new(key::ERROR_TYPE, "client_left")),
        }
        let seconds = self.since.elapsed().as_secs_f64();
        self.serving.duration.record(seconds, &attributes);
    }
}
