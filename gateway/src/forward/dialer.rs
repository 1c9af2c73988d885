//! The dialer: resolves a host once, checks every address it has, and dials the very addresses it checked. It is
//! the only way out to a provider, so nothing can go round the guard: not a redirect, not a name that changes.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::address::AddressGuard;

/// How long one address may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a name may take to resolve.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a provider could not be dialled.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The URL has no host.
    #[error("the URL has no host")]
    NoHost,
    /// One of the host's addresses is not allowed.
    #[error("the address of the host is not allowed")]
    Forbidden,
    /// No address, or none that accepts.
    #[error("the provider cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
}

/// Dials providers.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    guard: Arc<AddressGuard>,
}

impl Dialer {
    /// A dialer under `guard`.
    pub(super) fn new(guard: Arc<AddressGuard>) -> Self {
        Self { guard }
    }
}

impl tower_service::Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let guard = Arc::clone(&self.guard);
        Box::pin(async move { dial(&guard, &uri).await.map(TokioIo::new) })
    }
}

async fn dial(guard: &AddressGuard, uri: &Uri) -> Result<TcpStream, Error> {
    let host = uri.host().ok_or(Error::NoHost)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, port)));
    let found = lookup.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    let addresses: Vec<SocketAddr> = found?.collect();
    if addresses.iter().any(|address| !guard.permits(address.ip())) {
        return Err(Error::Forbidden);
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last.into())
}
