//! The HTTP client of all adapters: no redirects, no proxies, only public addresses unless the operator allows others,
//! verified certificates, and a limit on every body that is read.
//!
//! **Connections.** Each delivery uses one, so no more are in use than the subscription's `concurrency`; a few more may be
//! open and idle. A delivery that finds no idle connection opens one, takes an idle one if that comes free first, and
//! leaves the new one to the pool. A strict bound would need something that lives as long as a connection. reqwest's
//! `connector_layer` can hold a permit while it connects and no longer: its response is a sealed type, which can neither
//! be wrapped nor made, so nothing can be tied to a connection's end. A client over hyper-util's own pool could, at the
//! price of doing TLS, name resolution and time-outs here.

use std::io::{self, ErrorKind};
use std::time::Duration;

use lanekeeper_core::adapter::{Delivery, Server, Verdict};
use lanekeeper_core::network::PrivateTargets;
use lanekeeper_core::observed::Cause;
use lanekeeper_core::trace::TraceContext;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, redirect};
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::descriptors;
use super::target::{self, FilteringResolver};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A HTTP/2 connection whose peer has vanished is found by a ping instead of by the time-outs of
/// one delivery after the other.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Past these bounds a new connection is cheaper than the rest of the body.
const DRAINED_BYTES: usize = 64 * 1024;
/// How long an answer's body is worth waiting for whose status says everything.
pub(super) const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Refuses a URL whose host is an address that is not public; names are judged when they are resolved.
pub(super) fn refuse_private(url: &Url, private: &PrivateTargets) -> Result<(), String> {
    match target::refused_literal(url, private) {
        None => Ok(()),
        Some(address) => Err(format!(
            "{address} is not a public address, and worker.allow_private_targets does not allow it"
        )),
    }
}

/// The client for one server.
pub(super) fn client(url: &Url, private: &PrivateTargets) -> reqwest::Result<Client> {
    builder(url, private).build()
}

/// The same, whose requests may become WebSockets.
pub(super) fn upgrading_client(url: &Url, private: &PrivateTargets) -> reqwest::Result<Client> {
    builder(url, private).http1_only().build()
}

fn builder(url: &Url, private: &PrivateTargets) -> ClientBuilder {
    // An error means that the embedding program has chosen a provider already: it is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = Client::builder()
        .user_agent(concat!("lanekeeper/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT);
    if url.scheme() == "http" {
        // Without redirects no certificate is ever looked at: an image without any will do.
        client = client.tls_certs_only([]);
    }
    if *private != PrivateTargets::All {
        client = client.dns_resolver(FilteringResolver::new(private.clone()));
    }
    client
}

/// The innermost errors say what happened; the outermost only that a request failed.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(error.source(), |cause| cause.source());
    let chain: Vec<_> = chain.map(ToString::to_string).collect();
    if chain.is_empty() {
        return error.to_string();
    }
    chain.join(": ")
}

/// Why a request got no answer.
pub(super) fn cause(error: &reqwest::Error) -> Option<Cause> {
    if error.is_timeout() {
        return Some(Cause::Timeout);
    }
    let chain = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    for cause in chain {
        if cause.is::<target::Refused>() {
            return Some(Cause::PrivateAddress);
        }
        if cause.is::<rustls::Error>() {
            return Some(Cause::Tls);
        }
        let Some(io) = cause.downcast_ref::<io::Error>() else {
            continue;
        };
        if io
            .get_ref()
            .is_some_and(|inner| inner.is::<rustls::Error>())
        {
            return Some(Cause::Tls);
        }
        return match io.kind() {
            ErrorKind::TimedOut => Some(Cause::Timeout),
            ErrorKind::ConnectionRefused => Some(Cause::ConnectionRefused),
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof => Some(Cause::ConnectionReset),
            // The system's resolver gives no number with it.
            _ if error.is_connect() && io.raw_os_error().is_none() => Some(Cause::NameResolution),
            _ => Some(Cause::Unreachable),
        };
    }
    error.is_connect().then_some(Cause::Unreachable)
}

/// Sends a request, and waits for the head of its answer until the deadline, which is that long after the delivery began.
/// What is observed is noted with this delivery.
///
/// # Errors
/// What it means where there is no answer.
pub(super) async fn send(
    request: RequestBuilder,
    delivery: &Delivery<'_>,
    url: &Url,
    (deadline, within): (Instant, Duration),
) -> Result<Response, Verdict> {
    match timeout_at(deadline, request.send()).await {
        Ok(Ok(response)) => {
            delivery.answered(response.status().as_u16());
            Ok(response)
        }
        Ok(Err(error)) => {
            if let Some(cause) = cause(&error) {
                delivery.failed_by(cause);
            }
            let error = error.without_url();
            let reason = format!("no answer from {}: {}", origin(url), causes(&error));
            Err(descriptors::unsent(&error, reason))
        }
        Err(_) => {
            delivery.failed_by(Cause::Timeout);
            let reason = format!("no answer from {} within {within:?}", origin(url));
            Err(Verdict::retry(reason))
        }
    }
}

/// Sets the trace context of an attempt, or the one that the producer stored with the event.
pub(super) fn trace(delivery: &Delivery<'_>, headers: &mut HeaderMap) {
    let stored;
    let trace = match delivery.trace {
        Some(trace) => trace,
        None => {
            stored = TraceContext::of_event(delivery.event.headers.as_deref());
            &stored
        }
    };
    // What a producer stored may be no header: the delivery does without it then.
    let value = |text: &Option<String>| HeaderValue::from_str(text.as_deref()?).ok();
    if let Some(parent) = value(&trace.traceparent) {
        headers.insert("traceparent", parent);
        if let Some(state) = value(&trace.tracestate) {
            headers.insert("tracestate", state);
        }
    }
}

/// All that may be told of a URL: its path and query are often credentials.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The host and the port of a URL, for spans.
pub(super) fn server(url: &Url) -> Option<Server> {
    Some(Server {
        host: url.host_str()?.into(),
        port: url.port_or_known_default()?,
    })
}

/// Reads the body to its end, to a bound or until then, and returns its beginning.
pub(super) async fn drain(mut response: Response, kept_bytes: usize, until: Instant) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut read = 0;
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            let room = kept_bytes - kept.len();
            kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if read >= DRAINED_BYTES.max(kept_bytes) {
                break;
            }
        }
    };
    // A body that does not end costs its connection only.
    let _ = timeout_at(until, reading).await;
    kept
}

/// Reads the body whole. `None`: it broke off, did not end in time, or has more than `most` bytes.
pub(super) async fn whole(mut response: Response, most: usize, until: Instant) -> Option<Vec<u8>> {
    let reading = async {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            body.extend_from_slice(&chunk);
            if body.len() > most {
                return None;
            }
        }
        Some(body)
    };
    timeout_at(until, reading).await.ok().flatten()
}
