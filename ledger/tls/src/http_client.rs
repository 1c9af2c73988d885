//! The connections of HTTP clients to servers that the operator names.

use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::RootCertStore;

use crate::{Error, ServerCheck, client_config};

/// Connects by HTTP/1.1, and by TLS to `https` URLs, where the certificate must be by one of `authorities` for the URL's host.
pub fn http_connector(
    authorities: RootCertStore,
    connect_timeout: Duration,
) -> Result<HttpsConnector<HttpConnector>, Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(connect_timeout));
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(client_config(ServerCheck::AuthorityAndName(authorities), None)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector))
}
