//! An OTLP receiver, over gRPC and over HTTP, that stores what it receives. Another mode accepts connections and never
//! answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// What arrived so far.
#[derive(Debug, Default)]
pub(crate) struct Got {
    pub(crate) spans: Vec<Span>,
    /// By name; the newest of each.
    pub(crate) metrics: BTreeMap<String, Metric>,
    /// Bodies of log records.
    pub(crate) logs: Vec<String>,
    /// `service.name` and `service.instance.id` of whatever came.
    pub(crate) services: Vec<String>,
    pub(crate) instances: BTreeSet<String>,
}

impl Got {
    /// The spans of this name.
    pub(crate) fn of(&self, name: &str) -> Vec<Span> {
        let named = self.spans.iter().filter(|span| span.name == name);
        named.cloned().collect()
    }
}

pub(crate) struct Collector {
    pub(crate) url: String,
    got: Arc<Mutex<Got>>,
    serving: JoinHandle<()>,
}

impl Collector {
    pub(crate) async fn grpc() -> Self {
        Self::grpc_by(tonic::transport::Server::builder(), "http://127.0.0.1").await
    }

    /// Over TLS, as `localhost`, with this certificate and key.
    pub(crate) async fn grpc_over_tls([certificate, key]: &[String; 2]) -> Self {
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
        let server = tonic::transport::Server::builder();
        Self::grpc_by(server.tls_config(tls).unwrap(), "https://localhost").await
    }

    async fn grpc_by(mut server: tonic::transport::Server, host: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{host}:{}", listener.local_addr().unwrap().port());
        let got = Arc::<Mutex<Got>>::default();
        let desk = Desk(Arc::clone(&got));
        let serving = tokio::spawn(async move {
            server
                .add_service(TraceServiceServer::new(desk.clone()))
                .add_service(MetricsServiceServer::new(desk.clone()))
                .add_service(LogsServiceServer::new(desk))
                .serve_with_incoming(TcpIncoming::from(listener))
                .await
                .unwrap();
        });
        Self { url, got, serving }
    }

    pub(crate) async fn http() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let got = Arc::<Mutex<Got>>::default();
        let app = Router::new()
            .route("/v1/traces", post(take_traces))
            .route("/v1/metrics", post(take_metrics))
            .route("/v1/logs", post(take_logs))
            .with_state(Desk(Arc::clone(&got)));
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, got, serving }
    }

    /// Takes every connection and answers nothing.
    pub(crate) async fn silent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                kept.push(connection);
            }
        });
        let got = Arc::default();
        Self { url, got, serving }
    }

    pub(crate) fn got(&self) -> MutexGuard<'_, Got> {
        self.got.lock().unwrap()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[derive(Clone)]
struct Desk(Arc<Mutex<Got>>);

impl Desk {
    fn traces(&self, request: ExportTraceServiceRequest) {
        let mut got = self.0.lock().unwrap();
        for resource in request.resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            got.services.extend(text(&attributes, "service.name"));
            got.instances
                .extend(text(&attributes, "service.instance.id"));
            let scopes = resource.scope_spans.into_iter();
            got.spans.extend(scopes.flat_map(|scope| scope.spans));
        }
    }

    fn metrics(&self, request: ExportMetricsServiceRequest) {
        let mut got = self.0.lock().unwrap();
        for resource in request
            .resource_metrics
            .iter()
            .filter_map(|one| one.resource.as_ref())
        {
            got.instances
                .extend(text(&resource.attributes, "service.instance.id"));
        }
        let resources = request.resource_metrics.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            got.metrics.insert(metric.name.clone(), metric);
        }
    }

    fn logs(&self, request: ExportLogsServiceRequest) {
        let mut got = self.0.lock().unwrap();
        let resources = request.resource_logs.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_logs);
        for record in scopes.flat_map(|scope| scope.log_records) {
            if let Some(Value::StringValue(body)) = record.body.and_then(|body| body.value) {
                got.logs.push(body);
            }
        }
    }
}

#[tonic::async_trait]
impl TraceService for Desk {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.traces(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Desk {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.metrics(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Desk {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.logs(request.into_inner());
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

async fn take_traces(State(desk): State<Desk>, body: Bytes) {
    desk.traces(ExportTraceServiceRequest::decode(body).unwrap());
}

async fn take_metrics(State(desk): State<Desk>, body: Bytes) {
    desk.metrics(ExportMetricsServiceRequest::decode(body).unwrap());
}

async fn take_logs(State(desk): State<Desk>, body: Bytes) {
    desk.logs(ExportLogsServiceRequest::decode(body).unwrap());
}

/// A text attribute.
pub(crate) fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(value) => Some(value.clone()),
        Value::IntValue(value) => Some(value.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

/// The keys of a metric's attributes, over all its points.
pub(crate) fn keys(metric: &Metric) -> Vec<String> {
    let points: Vec<&[KeyValue]> = match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => gauge.data_points.iter().map(|p| &*p.attributes).collect(),
        Data::Sum(sum) => sum.data_points.iter().map(|p| &*p.attributes).collect(),
        Data::Histogram(histogram) => {
            let points = histogram.data_points.iter();
            points.map(|p| &*p.attributes).collect()
        }
        other => panic!("{} is {other:?}", metric.name),
    };
    let mut keys: Vec<_> = points
        .into_iter()
        .flatten()
        .map(|attribute| attribute.key.clone())
        .collect();
    keys.sort();
    keys.dedup();
    keys
}
