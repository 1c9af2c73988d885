//! The HTTP client to the collector, on the libraries that the rest of the program uses.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_http::{HttpClient, HttpError};
use rustls::RootCertStore;
use tokio::runtime::Handle;

use super::settings::TraceSettings;

/// The longest time of a request to the collector.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time until a connection is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an idle connection is kept.
const IDLE_CONNECTION: Duration = Duration::from_secs(20);

/// The longest answer of a collector, in bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// Sends spans to the collector, from whatever thread.
pub(super) struct CollectorClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    headers: HeaderMap,
    runtime: Handle,
}

impl CollectorClient {
    /// A client on the current runtime.
    pub(super) fn new(settings: &TraceSettings) -> Result<Self, farthing_tls::Error> {
        let connector = farthing_tls::http_connector(authorities(settings)?, CONNECT_TIMEOUT)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(1)
            .build(connector);
        Ok(Self { client, headers: settings.headers.clone(), runtime: Handle::current() })
    }
}

/// The authorities that a collector's certificate may be of.
fn authorities(settings: &TraceSettings) -> Result<RootCertStore, farthing_tls::Error> {
    if settings.endpoint.scheme() != Some(&Scheme::HTTPS) {
        return Ok(RootCertStore::empty());
    }
    if let Some(file) = &settings.authorities {
        return farthing_tls::authorities(file);
    }
    let (roots, errors) = farthing_tls::system_authorities();
    for error in errors {
        tracing::warn!(
            event = "traces.system_certificates_unreadable",
            %error,
            "some of this machine's trusted certificates cannot be read"
        );
    }
    Ok(roots)
}

impl fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CollectorClient")
    }
}

/// A header with its name. No name of a collector's headers has several values.
fn named((name, value): (Option<HeaderName>, HeaderValue)) -> Option<(HeaderName, HeaderValue)> {
    Some((name?, value))
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // The library adds the headers of OpenTelemetry's variables, even if a file has others.
        let own = [CONTENT_TYPE, CONTENT_ENCODING, USER_AGENT];
        let own =
            own.into_iter().filter_map(|name| Some((name.clone(), request.headers().get(name)?.clone())));
        *request.headers_mut() = own.chain(self.headers.clone().into_iter().filter_map(named)).collect();
        let client = self.client.clone();
        // The library sends from a thread of its own, without a runtime: even a timer must be made within it.
        let exchange = async move {
            let (head, body) = client.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        };
        let exchange =
            self.runtime.spawn(async move { tokio::time::timeout(REQUEST_TIMEOUT, exchange).await });
        exchange.await??
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::super::settings::{Sampling, headers};
    use super::*;

    #[tokio::test]
    async fn a_collector_gets_the_headers_of_the_settings_and_no_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\nspans") {
                assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            String::from_utf8(head).unwrap().to_ascii_lowercase()
        });
        let client = CollectorClient::new(&TraceSettings {
            endpoint: format!("http://{address}/v1/traces").parse().unwrap(),
            headers: headers("x-tenant=ours").unwrap(),
            authorities: None,
            sampling: Sampling::named(None, None).unwrap(),
            per_second: 1,
        })
        .unwrap();
        let request = Request::post(format!("http://{address}/v1/traces"))
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header("authorization", "of a variable")
            .header("x-tenant", "of a variable")
            .body(Bytes::from_static(b"spans"))
            .unwrap();
        client.send_bytes(request).await.unwrap();
        let received = received.await.unwrap();
        assert!(received.contains("content-type: application/x-protobuf\r\n"), "{received}");
        assert!(received.contains("x-tenant: ours\r\n") && !received.contains("of a variable"), "{received}");
    }
}
