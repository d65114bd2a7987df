//! Decides which server certificates are accepted.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Accepts a certificate that chains to a root and, if the mode asks for it, is for the server's name.
#[derive(Debug)]
pub(super) struct Chain {
    roots: RootCertStore,
    /// The roots as they were given: a server may show one of them as its own.
    certificates: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
    check_name: bool,
}

impl Chain {
    pub(super) fn new(
        roots: RootCertStore,
        certificates: Vec<CertificateDer<'static>>,
        algorithms: WebPkiSupportedAlgorithms,
        check_name: bool,
    ) -> Self {
        Self {
            roots,
            certificates,
            algorithms,
            check_name,
        }
    }
}

impl ServerCertVerifier for Chain {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let judged = verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        );
        match judged {
            // A self-signed certificate that is its own authority, as `openssl req -x509` makes
            // them, is no end entity to webpki. That very certificate was given to be trusted.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if self.certificates.iter().any(|given| given == end_entity) => {}
            judged => judged?,
        }
        if self.check_name {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Any certificate. Who could put one of his own in between could sign for it too: signatures are
/// not looked at either, so that certificates which webpki cannot read do no harm.
#[derive(Debug)]
pub(super) struct AnyCertificate(WebPkiSupportedAlgorithms);

impl AnyCertificate {
    pub(super) fn new(provider: &CryptoProvider) -> Self {
        Self(provider.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
