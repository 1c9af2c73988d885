//! TLS of outbound connections. It trusts the certificates of this machine and those that the operator adds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Uri;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// Why the TLS configuration cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A PEM file cannot be read or holds no certificate.
    #[error("{0}: {1}")]
    File(PathBuf, pem::Error),
    /// A certificate in the file cannot serve as a trust anchor.
    #[error("{0}: {1}")]
    Certificate(PathBuf, rustls::Error),
    /// The TLS library refuses the configuration.
    #[error(transparent)]
    Protocol(#[from] rustls::Error),
}

/// A client configuration that trusts the certificates of this machine (`SSL_CERT_FILE` and `SSL_CERT_DIR` replace them)
/// and those in the PEM files `trusted`.
pub fn client_config(trusted: &[PathBuf]) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in native.errors {
        tracing::warn!(
            event = "egress.system_certificates_unreadable",
            %error,
            "some of this machine's trusted certificates cannot be read"
        );
    }
    roots.add_parsable_certificates(native.certs);
    for file in trusted {
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(|error| Error::Certificate(file.clone(), error))?;
        }
    }
    if roots.is_empty() {
        tracing::warn!(
            event = "egress.no_trusted_certificates",
            "no trusted certificates: calls to https providers will fail"
        );
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The name that a provider's certificate must be for: the URL's host without a trailing dot.
pub fn server_name(target: &Uri) -> Result<ServerName<'static>, InvalidDnsNameError> {
    let host = target.host().unwrap_or_default().trim_matches(['[', ']']);
    ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned())
}

/// The certificates of a PEM file; an error if there are none.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    match read() {
        Ok(found) if found.is_empty() => Err(pem::Error::NoItemsFound),
        read => read,
    }
    .map_err(|error| Error::File(file.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_must_be_for_the_urls_host() {
        let name = |url: &str| server_name(&url.parse().unwrap()).map(|name| name.to_str().into_owned());
        assert_eq!(name("https://api.example/v1").unwrap(), "api.example");
        assert_eq!(name("https://api.example.:8443/").unwrap(), "api.example");
        assert_eq!(name("https://192.0.2.1/").unwrap(), "192.0.2.1");
        assert_eq!(name("https://[2001:db8::1]:8443/").unwrap(), "2001:db8::1");
        assert!(name("https://a..b/").is_err());
    }

    #[test]
    fn a_file_without_a_certificate_is_an_error() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        for file in [PathBuf::from("/nowhere/at/all.pem"), folder.join("Cargo.toml"), folder] {
            let config = client_config(std::slice::from_ref(&file));
            assert!(matches!(config, Err(Error::File(..))), "{}", file.display());
        }
    }
}
