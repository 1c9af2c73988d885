//! TLS of outbound connections. It trusts the certificates of this machine and those that the operator adds.

use std::path::PathBuf;

pub use farthing_tls::Error;
use farthing_tls::ServerCheck;
use http::Uri;
use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};

/// A client configuration that trusts the certificates of this machine (`SSL_CERT_FILE` and `SSL_CERT_DIR` replace them)
/// and those in the PEM files `trusted`.
pub fn client_config(trusted: &[PathBuf]) -> Result<ClientConfig, Error> {
    let (mut roots, errors) = farthing_tls::system_authorities();
    for error in errors {
        tracing::warn!(
            event = "egress.system_certificates_unreadable",
            %error,
            "some of this machine's trusted certificates cannot be read"
        );
    }
    for file in trusted {
        farthing_tls::add_authorities(&mut roots, file)?;
    }
    if roots.is_empty() {
        tracing::warn!(
            event = "egress.no_trusted_certificates",
            "no trusted certificates: calls to https providers will fail"
        );
    }
    farthing_tls::client_config(ServerCheck::AuthorityAndName(roots), None)
}

/// The name that a provider's certificate must be for: the URL's host without a trailing dot.
pub fn server_name(target: &Uri) -> Result<ServerName<'static>, InvalidDnsNameError> {
    let host = target.host().unwrap_or_default().trim_matches(['[', ']']);
    ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned())
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
}
