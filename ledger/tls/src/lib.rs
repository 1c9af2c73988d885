//! TLS of outbound connections: the authorities that a client trusts, the certificate that it shows, and how it checks a
//! server. One TLS library with one provider of cryptography serves all of Farthing.

mod file_name;
mod http_client;
mod path;
mod pem;
mod server_check;
mod validity;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::Error as PemError;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

pub use self::file_name::shown;
pub use self::http_client::http_connector;
pub use self::pem::{add_authorities, authorities, certificates, private_key, public_key};
use self::server_check::{Issued, Unchecked};
pub use self::validity::{Validity, validity};

/// Why a TLS configuration cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A PEM file cannot be read, or does not hold what it should.
    #[error("{}: {}", shown(.0), pem::cause(.1))]
    File(PathBuf, PemError),
    /// A certificate in the file cannot serve as a trust anchor.
    #[error("{}: {}", shown(.0), .1)]
    Certificate(PathBuf, rustls::Error),
    /// The certificate and the key of the client do not go together, or the TLS library refuses the configuration.
    #[error(transparent)]
    Protocol(#[from] rustls::Error),
}

/// How the certificate of a server is checked.
#[derive(Debug, Clone)]
pub enum ServerCheck {
    /// Not at all: the connection is encrypted, and may be to anyone.
    Nothing,
    /// It is issued by one of these authorities, for whatever name.
    Authority(RootCertStore),
    /// It is issued by one of these authorities for the name of the server.
    AuthorityAndName(RootCertStore),
}

/// The files of the certificate that a client shows, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, followed by those that lead from it to the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A client configuration.
pub fn client_config(
    check: ServerCheck,
    certificate: Option<&ClientCertificate>,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = check.apply(builder.with_safe_default_protocol_versions()?, &provider);
    match certificate {
        Some(files) => {
            let (chain, key) = (certificates(&files.certificate)?, private_key(&files.key)?);
            Ok(builder.with_client_auth_cert(chain, key)?)
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

impl ServerCheck {
    fn apply(
        self,
        builder: ConfigBuilder<ClientConfig, WantsVerifier>,
        provider: &CryptoProvider,
    ) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        let algorithms = provider.signature_verification_algorithms;
        let issued = |roots, is_for_name| Arc::new(Issued { roots, is_for_name, algorithms });
        builder.dangerous().with_custom_certificate_verifier(match self {
            Self::Nothing => Arc::new(Unchecked { algorithms }),
            Self::Authority(roots) => issued(roots, false),
            Self::AuthorityAndName(roots) => issued(roots, true),
        })
    }
}

/// The authorities that this machine trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` replace them), and why some of them
/// cannot be read.
pub fn system_authorities() -> (RootCertStore, Vec<rustls_native_certs::Error>) {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    (roots, found.errors)
}
