//! Exporters to a collector.
//!
//! Each signal has a queue with a bound in the SDK, drained by a thread of its own: a collector that is slow,
//! hangs or is away costs what is in the queue and nothing else. The SDK logs what it could not send.

use std::path::PathBuf;

use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, SpanExporter, WithHttpConfig, WithTonicConfig,
};
use thiserror::Error;

use super::environment::{Protocol, Transport};

#[derive(Debug, Error)]
pub enum ExportError {
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE names {path}, which cannot be read")]
    Certificate {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE names {path}, which holds no certificate")]
    NoCertificate {
        path: PathBuf,
        source: reqwest::Error,
    },
    #[error("the exporter cannot be set up; check the OTEL_EXPORTER_OTLP_* variables")]
    Build(#[from] ExporterBuildError),
}

/// # Errors
/// Nothing was sent.
pub fn spans(transport: &Transport) -> Result<SpanExporter, ExportError> {
    let exporter = SpanExporter::builder();
    Ok(match transport.protocol {
        Protocol::Grpc => grpc(exporter.with_tonic(), transport)?.build()?,
        Protocol::HttpProtobuf => http(exporter.with_http(), transport)?.build()?,
    })
}

/// # Errors
/// Nothing was sent.
pub fn metrics(transport: &Transport) -> Result<MetricExporter, ExportError> {
    let exporter = MetricExporter::builder();
    Ok(match transport.protocol {
        Protocol::Grpc => grpc(exporter.with_tonic(), transport)?.build()?,
        Protocol::HttpProtobuf => http(exporter.with_http(), transport)?.build()?,
    })
}

/// # Errors
/// Nothing was sent.
pub fn logs(transport: &Transport) -> Result<LogExporter, ExportError> {
    let exporter = LogExporter::builder();
    Ok(match transport.protocol {
        Protocol::Grpc => grpc(exporter.with_tonic(), transport)?.build()?,
        Protocol::HttpProtobuf => http(exporter.with_http(), transport)?.build()?,
    })
}

fn grpc<B: WithTonicConfig>(builder: B, transport: &Transport) -> Result<B, ExportError> {
    let pem = pem(transport)?;
    if pem.is_none() && !transport.is_secured {
        return Ok(builder);
    }
    // The crate trusts nobody by itself.
    let mut tls = ClientTlsConfig::new().with_native_roots();
    if let Some((_, pem)) = pem {
        tls = tls.ca_certificate(Certificate::from_pem(pem));
    }
    Ok(builder.with_tls_config(tls))
}

fn http<B: WithHttpConfig>(builder: B, transport: &Transport) -> Result<B, ExportError> {
    let Some((path, pem)) = pem(transport)? else {
        return Ok(builder);
    };
    let authorities = reqwest::Certificate::from_pem_bundle(&pem);
    let client = authorities.and_then(|authorities| {
        // It brings a runtime of its own, which cannot be made inside another.
        let building = std::thread::spawn(move || {
            let client = reqwest::blocking::Client::builder();
            client.tls_certs_merge(authorities).build()
        });
        building
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let client = client.map_err(|source| ExportError::NoCertificate { path, source })?;
    Ok(builder.with_http_client(client))
}

fn pem(transport: &Transport) -> Result<Option<(PathBuf, Vec<u8>)>, ExportError> {
    let Some(path) = transport.certificate.clone() else {
        return Ok(None);
    };
    match std::fs::read(&path) {
        Ok(pem) => Ok(Some((path, pem))),
        Err(source) => Err(ExportError::Certificate { path, source }),
    }
}
