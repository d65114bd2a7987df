//! The listener: it accepts connections and limits how long clients may take.
//!
//! | a client that | is |
//! |---|---|
//! | sends nothing, or its request's head byte by byte | closed after `http.read_timeout_ms` |
//! | sends its request's body byte by byte | answered with 408 after the same time (`events`) |
//! | takes nothing of its answer | closed after the same time |
//! | has many connections | its connections are closed one by one when others need room (`connections`) |
//!
//! At shutdown, it accepts no more connections, closes those without a request, and lets the others finish.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use axum::http::{HeaderValue, Request, Response, header};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lanekeeper_telemetry::names;
use lanekeeper_telemetry::serving::{Closed, Serving};
use opentelemetry::KeyValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::access::Peer;
use super::answer::Answer;
use super::connections::{ConnectionPermit, Connections};
use super::problem::{Code, Problem};
use super::socket::Socket;
use crate::config::HttpConfig;

/// What a request's head may have, and what is read ahead of a body.
const BUFFER_BYTES: usize = 64 * 1024;
/// Where the process has no file left for a connection: others end meanwhile.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);
const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// Everything but these may take long: the API, and the pages of the dashboard.
const PROBES: [&str; 4] = ["/livez", "/readyz", "/startupz", "/metrics"];

/// The limits on clients and their connections.
struct Service {
    router: Router,
    connections: Arc<Connections>,
    serving: Arc<Serving>,
    read_within: Duration,
    ended: CancellationToken,
}

/// Serves until `ended`, and then what is under way to its end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: &HttpConfig,
    max_followers: usize,
    serving: Arc<Serving>,
    ended: CancellationToken,
) {
    let connections = Connections::new(config.max_connections, max_followers);
    watch(&connections);
    let service = Arc::new(Service {
        router: router.layer(from_fn(with_route)),
        connections,
        serving,
        read_within: config.read_timeout(),
        ended: ended.clone(),
    });
    let mut under_way = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = ended.cancelled() => break,
            // Those that ended are forgotten.
            Some(_) = under_way.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Dropped where all connections are taken: the client sees that it is closed.
                match service.connections.enter(peer.ip()) {
                    Some(permit) => {
                        under_way.spawn(Arc::clone(&service).connection(stream, peer, permit));
                    }
                    None => service.serving.closed(Closed::NoPlace),
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "no connection can be taken by the HTTP listener for a moment"
                );
                tokio::select! {
                    () = ended.cancelled() => break,
                    () = sleep(ACCEPT_AGAIN) => {}
                }
            }
        }
    }
    drop(listener);
    service.connections.close_waiting();
    while under_way.join_next().await.is_some() {}
}

impl Service {
    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        permit: ConnectionPermit,
    ) {
        let permit = Arc::new(permit);
        let answering = service_fn(|request| {
            let (service, permit) = (Arc::clone(&self), Arc::clone(&permit));
            async move { Ok::<_, Infallible>(service.answer(request, Peer(peer), &permit).await) }
        });
        let socket = TokioIo::new(Socket::new(stream, self.read_within));
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.read_within)
                .max_buf_size(BUFFER_BYTES)
                .serve_connection(socket, answering)
                .with_upgrades()
        );
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = permit.closed() => {
                if !self.ended.is_cancelled() {
                    self.serving.closed(Closed::GaveWay);
                }
                return;
            }
            () = self.ended.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    served = connection.as_mut() => served,
                    () = permit.closed() => return,
                }
            }
        };
        if let Err(error) = served {
            if is_timeout(&error) {
                self.serving.closed(Closed::TimedOut);
            }
            // Clients come and go; what they were told stands in the answers.
            let error = &error as &dyn std::error::Error;
            tracing::debug!(%peer, error, "an HTTP connection ended early");
        }
    }

    async fn answer(
        &self,
        mut request: Request<Incoming>,
        peer: Peer,
        permit: &Arc<ConnectionPermit>,
    ) -> Response<Body> {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(permit));
        let mut measured = self.serving.begin(request.method().as_str());
        let is_api = !PROBES.contains(&request.uri().path());
        // Full, or it had to give way as the request came.
        let Ok(busy) = permit.begin(is_api) else {
            let answer = last(Problem::busy());
            self.count_refusal(&answer);
            measured.answered(answer.status().as_u16(), None);
            return answer;
        };
        let is_large = has_large_body(&request);
        let router = TowerToHyperService::new(self.router.clone());
        let Ok(mut answer) = router.call(request.map(Body::new)).await;
        if is_large && !answer.status().is_success() {
            // What was not read of the body ends the connection: the client must not send its next request there.
            answer.headers_mut().insert(header::CONNECTION, CLOSE);
        }
        self.count_refusal(&answer);
        let route = answer.extensions().get::<Route>();
        let route = route.map(|Route(path)| path.as_str().into());
        measured.answered(answer.status().as_u16(), route);
        answer.map(|body| Body::new(Answer::new(body, busy, measured)))
    }

    fn count_refusal(&self, answer: &Response<Body>) {
        if let Some(Code(reason)) = answer.extensions().get() {
            self.serving.refused(reason);
        }
    }
}

/// The pattern that a request's path fitted, in its answer's extensions.
#[derive(Clone)]
struct Route(MatchedPath);

async fn with_route(request: Request<Body>, next: Next) -> Response<Body> {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut answer = next.run(request).await;
    if let Some(route) = route {
        answer.extensions_mut().insert(Route(route));
    }
    answer
}

/// Reports the number of connections each time metrics are collected.
fn watch(connections: &Arc<Connections>) {
    let connections = Arc::downgrade(connections);
    let name = names::HTTP_CONNECTIONS;
    opentelemetry::global::meter(names::SCOPE)
        .u64_observable_gauge(name.name)
        .with_unit(name.unit)
        .with_description(name.says)
        .with_callback(move |to| {
            let Some(connections) = connections.upgrade() else {
                return;
            };
            let (waiting, busy) = connections.count();
            for (state, count) in [("waiting", waiting), ("busy", busy)] {
                let state = KeyValue::new(names::key::CONNECTION_STATE, state);
                to.observe(count as u64, &[state]);
            }
        })
        .build();
}

fn is_timeout(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error);
    let io = cause.and_then(|cause| cause.downcast_ref::<std::io::Error>());
    error.is_timeout() || io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
}

/// An answer after which the connection is closed.
fn last(problem: Problem) -> Response<Body> {
    let mut answer = problem.into_response();
    answer.headers_mut().insert(header::CONNECTION, CLOSE);
    answer
}

/// Whether its body may be more than what is read ahead of it, which is passed over where nobody wants it.
fn has_large_body(request: &Request<Incoming>) -> bool {
    use hyper::body::Body as _;
    let bytes = request.body().size_hint().upper();
    bytes.is_none_or(|bytes| bytes > (BUFFER_BYTES / 4) as u64)
}
