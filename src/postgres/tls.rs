//! TLS to Postgres, by rustls with the provider that webhooks use.
//!
//! Nothing is read before the server has said that it speaks TLS: certificates and keys are loaded
//! for each handshake, so that a connection without TLS costs nothing and a renewed file counts from
//! the next connection on. (PostgreSQL resumes no TLS sessions; nothing is lost by that.)
//!
//! Left out: revocation lists, keys with a passphrase, and the common name of a certificate, which
//! counts for nothing: its names are its subjectAltNames.

mod verifier;

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use thiserror::Error;
use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connection::{RootCertificates, SslMode, SslParameters};
use verifier::{AnyCertificate, Chain};

/// What servers that are spoken TLS to without a word before it ask for, and others ignore.
const ALPN: &[u8] = b"postgresql";

/// A TLS session over the driver's socket.
pub type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Why a connection could not be secured. Nothing was sent over it.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("{what} {} cannot be read", path.display())]
    Unreadable {
        what: &'static str,
        path: PathBuf,
        source: pem::Error,
    },
    #[error("{} has no root certificate that can be used", path.display())]
    NoRoot { path: PathBuf },
    #[error("this system has no root certificates")]
    NoSystemRoots,
    #[error("the client certificate {} and its key cannot be used", path.display())]
    ClientCertificate {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error("no TLS session could be set up")]
    Setup { source: rustls::Error },
    #[error("the server's certificate is not trusted")]
    NotTrusted { source: rustls::Error },
    #[error("the TLS handshake failed")]
    Handshake { source: io::Error },
}

impl TlsError {
    /// The one that a driver's error was caused by.
    pub fn of(error: &tokio_postgres::Error) -> Option<&Self> {
        std::error::Error::source(error)?.downcast_ref()
    }

    /// What the user can do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::NoRoot { .. } | Self::ClientCertificate { .. } => {
                "give PEM files that this user may read"
            }
            Self::NoSystemRoots => {
                "install the system's certificates (ca-certificates), or give the server's root as \
                 sslrootcert"
            }
            Self::NotTrusted {
                source: rustls::Error::InvalidCertificate(reason),
            } => match reason {
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => {
                    "connect by a name that the certificate has as a subjectAltName (its common \
                     name does not count), or have it reissued with that name"
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "have the server's certificate renewed"
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "see whether this host's clock is right"
                }
                _ => {
                    "give the certificate of the authority that signed the server's as sslrootcert"
                }
            },
            Self::NotTrusted { .. } | Self::Setup { .. } | Self::Handshake { .. } => {
                "see what the server's log says of this connection"
            }
        }
    }

    fn handshake(error: io::Error) -> Self {
        let rustls = error.get_ref().and_then(|inner| inner.downcast_ref());
        match rustls {
            Some(source @ rustls::Error::InvalidCertificate(_)) => Self::NotTrusted {
                source: source.clone(),
            },
            _ => Self::Handshake { source: error },
        }
    }
}

/// Makes the TLS sessions of one connection attempt.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    parameters: Arc<SslParameters>,
    /// Whether a handshake was begun.
    used: Arc<AtomicBool>,
}

impl Connector {
    pub(super) fn new(parameters: SslParameters) -> Self {
        Self {
            parameters: Arc::new(parameters),
            used: Arc::default(),
        }
    }

    /// For another attempt.
    pub(super) fn anew(&self) -> Self {
        Self {
            parameters: Arc::clone(&self.parameters),
            used: Arc::default(),
        }
    }

    pub(super) fn mode(&self) -> SslMode {
        self.parameters.mode.unwrap_or(match self.parameters.root {
            Some(RootCertificates::System) => SslMode::VerifyFull,
            _ => SslMode::Prefer,
        })
    }

    pub(super) fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    fn client_config(&self) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|source| TlsError::Setup { source })?
            .dangerous();
        let builder = match self.chain(&provider)? {
            Some(chain) => builder.with_custom_certificate_verifier(Arc::new(chain)),
            None => {
                builder.with_custom_certificate_verifier(Arc::new(AnyCertificate::new(&provider)))
            }
        };
        let mut config = match (&self.parameters.cert, &self.parameters.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates("the client certificate", cert)?;
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(unreadable("the client's key", key))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|source| TlsError::ClientCertificate {
                        path: cert.clone(),
                        source,
                    })?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    /// What the server's certificate has to lead to; `None` where it need not lead anywhere.
    fn chain(&self, provider: &CryptoProvider) -> Result<Option<Chain>, TlsError> {
        let mode = self.mode();
        let roots = match &self.parameters.root {
            // As in libpq: whoever gives a root means it.
            Some(root) if mode >= SslMode::Require => root,
            None if mode == SslMode::VerifyFull => &RootCertificates::System,
            _ => return Ok(None),
        };
        let certificates = match roots {
            RootCertificates::System => rustls_native_certs::load_native_certs().certs,
            RootCertificates::File(path) => certificates("the root certificate", path)?,
        };
        let mut store = RootCertStore::empty();
        // Systems carry certificates that rustls does not take; the others count.
        let (usable, _) = store.add_parsable_certificates(certificates.iter().cloned());
        match (usable, roots) {
            (0, RootCertificates::System) => return Err(TlsError::NoSystemRoots),
            (0, RootCertificates::File(path)) => {
                return Err(TlsError::NoRoot { path: path.clone() });
            }
            _ => {}
        }
        let algorithms = provider.signature_verification_algorithms;
        let check_name = mode == SslMode::VerifyFull;
        Ok(Some(Chain::new(
            store,
            certificates,
            algorithms,
            check_name,
        )))
    }
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(unreadable(what, path))
}

fn unreadable(what: &'static str, path: &Path) -> impl FnOnce(pem::Error) -> TlsError {
    move |source| TlsError::Unreadable {
        what,
        path: path.to_owned(),
        source,
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Handshake;
    type Error = TlsError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, TlsError> {
        Ok(Handshake {
            connector: self.clone(),
            host: host.to_owned(),
        })
    }
}

/// A handshake that the driver begins once the server has agreed to TLS.
pub(super) struct Handshake {
    connector: Connector,
    host: String,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Stream;
    type Error = TlsError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, TlsError>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        let Self { connector, host } = self;
        connector.used.store(true, Ordering::Relaxed);
        Box::pin(async move {
            // A system's certificates are a few hundred, to be read and parsed.
            let config = tokio::task::spawn_blocking(move || connector.client_config())
                .await
                .map_err(|error| TlsError::handshake(io::Error::other(error)))??;
            let mut rustls = MakeRustlsConnect::new(config);
            let Ok(handshake) = MakeTlsConnect::<Socket>::make_tls_connect(&mut rustls, &host);
            handshake.connect(socket).await.map_err(TlsError::handshake)
        })
    }
}
