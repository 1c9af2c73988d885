//! The outbound connector of a gateway: the dialer, TLS above it, and a limit on both.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::HttpsConnector;
use tower_service::Service;

use crate::address::AddressGuard;
use crate::dialer::{BoxFuture, Dialer};
use crate::dialled::Places;
use crate::error::{BoxError, Error};
use crate::names::Names;
use crate::tls;

/// The outbound connector of a gateway, for `http` and `https` URLs.
pub type Connector = Bounded<HttpsConnector<Dialer<Names>>>;

/// A connector under `guard`. `timeout` bounds a connection from the DNS lookup to the end of the TLS handshake.
/// `places` limits the connections that are open, and those of them that are kept between calls.
pub fn connector(
    guard: &Arc<AddressGuard>,
    names: &Names,
    tls: rustls::ClientConfig,
    timeout: Duration,
    places: Places,
) -> Connector {
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .with_server_name_resolver(tls::server_name)
        .enable_http1()
        .wrap_connector(Dialer::new(names.clone(), Arc::clone(guard), places));
    Bounded::new(connector, timeout)
}

/// A connector with a limit on its whole work: a host that accepts may still not finish the TLS handshake.
#[derive(Debug, Clone)]
pub struct Bounded<C> {
    connector: C,
    timeout: Duration,
}

impl<C> Bounded<C> {
    /// Limits `connector` to `timeout`.
    pub fn new(connector: C, timeout: Duration) -> Self {
        Self { connector, timeout }
    }
}

impl<C> Service<Uri> for Bounded<C>
where
    C: Service<Uri, Error = BoxError, Future: Send + 'static>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<C::Response, BoxError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let timeout = self.timeout;
        let connecting = tokio::time::timeout(timeout, self.connector.call(uri));
        Box::pin(async move { connecting.await.unwrap_or_else(|_| Err(Error::TimedOut(timeout).into())) })
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use tokio::time::Instant;

    use super::*;

    /// A connector that never connects.
    #[derive(Debug, Clone)]
    struct Silent;

    impl Service<Uri> for Silent {
        type Response = ();
        type Error = BoxError;
        type Future = future::Pending<Result<(), BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Uri) -> Self::Future {
            future::pending()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_whole_connection_ends_after_its_timeout() {
        let timeout = Duration::from_secs(3);
        let mut connector = Bounded::new(Silent, timeout);
        let started = Instant::now();
        let error = connector.call(Uri::from_static("https://api.example/")).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Error::TimedOut(limit)) if *limit == timeout), "{error}");
        assert_eq!(started.elapsed(), timeout);
    }
}
