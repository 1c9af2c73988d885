//! A resolver whose answers are checked by the address guard.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use crate::address::AddressGuard;
use crate::dialer::BoxFuture;
use crate::error::Error;

/// A resolver whose answers are checked: one address that is not allowed forbids the host.
#[derive(Clone)]
pub(crate) struct GuardedResolver<R> {
    pub(crate) resolver: R,
    pub(crate) guard: Arc<AddressGuard>,
}

impl<R> Service<Name> for GuardedResolver<R>
where
    R: Service<Name, Error = Error, Future: Send + 'static>,
    R::Response: Iterator<Item = SocketAddr>,
{
    type Response = Vec<SocketAddr>;
    type Error = Error;
    type Future = BoxFuture<Self::Response, Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.resolver.poll_ready(cx)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookup = self.resolver.call(name);
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = lookup.await?.collect();
            if addresses.iter().any(|address| !guard.permits(address.ip())) {
                return Err(Error::Forbidden);
            }
            Ok(addresses)
        })
    }
}
