//! Checks of a server's certificate: that for the web, and weaker ones. Invariant: the server always proves that it has the
//! key of the certificate that it shows.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::path::paths;

/// Takes any certificate.
#[derive(Debug)]
pub(crate) struct Unchecked {
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

/// Takes a certificate of its authorities that is valid now.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) roots: RootCertStore,
    /// Whether it must be for the name of the server.
    pub(crate) is_for_name: bool,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

/// The check of the handshake's signature, which both have in common.
macro_rules! signatures_are_verified {
    () => {
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
    };
}

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    signatures_are_verified!();
}

impl ServerCertVerifier for Issued {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let paths = paths(certificate, intermediates);
        let certificate = ParsedCertificate::try_from(certificate)?;
        let (roots, algorithms) = (&self.roots, self.algorithms.all);
        let mut tried = paths.iter().map(|path| {
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, path, now, algorithms)
        });
        let first = tried.next().unwrap_or(Err(Error::General("no path".to_owned())));
        // The first error is shown: it is about the path that the server put first.
        first.or_else(|error| tried.find_map(Result::ok).ok_or(error))?;
        if self.is_for_name {
            verify_server_name(&certificate, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    signatures_are_verified!();
}
