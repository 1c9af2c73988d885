//! TLS towards providers: whom it trusts. Those whom this machine trusts, and whom the operator names beside them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Uri;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of certificates cannot be read.
    #[error("{0}: {1}")]
    File(PathBuf, pem::Error),
    /// A certificate in the file is none that could be trusted.
    #[error("{0}: {1}")]
    Certificate(PathBuf, rustls::Error),
    /// The protocol itself.
    #[error(transparent)]
    Protocol(#[from] rustls::Error),
}

/// TLS under the certificates that this machine trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others in their
/// place) and those in the PEM files of `trusted`.
pub fn client_config(trusted: &[PathBuf]) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in native.errors {
        tracing::warn!(%error, "some of this machine's trusted certificates cannot be read");
    }
    roots.add_parsable_certificates(native.certs);
    for file in trusted {
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(|error| Error::Certificate(file.clone(), error))?;
        }
    }
    if roots.is_empty() {
        tracing::warn!("no trusted certificates: calls to https providers will fail");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The name that a provider is to prove: the URL's host, without the dot that may end it.
pub fn server_name(target: &Uri) -> Result<ServerName<'static>, InvalidDnsNameError> {
    let host = target.host().unwrap_or_default().trim_matches(['[', ']']);
    ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned())
}

/// The certificates of a PEM file; one at least.
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
    fn a_provider_is_to_prove_the_urls_host() {
        let name = |url: &str| server_name(&url.parse().unwrap()).map(|name| name.to_str().into_owned());
        assert_eq!(name("https://api.example/v1").unwrap(), "api.example");
        assert_eq!(name("https://api.example.:8443/").unwrap(), "api.example");
        assert_eq!(name("https://192.0.2.1/").unwrap(), "192.0.2.1");
        assert_eq!(name("https://[2001:db8::1]:8443/").unwrap(), "2001:db8::1");
        assert!(name("https://a..b/").is_err());
    }

    #[test]
    fn a_file_that_holds_no_certificate_is_an_error_and_not_ignored() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        for file in [PathBuf::from("/nowhere/at/all.pem"), folder.join("Cargo.toml"), folder] {
            let config = client_config(std::slice::from_ref(&file));
            assert!(matches!(config, Err(Error::File(..))), "{}", file.display());
        }
    }
}
