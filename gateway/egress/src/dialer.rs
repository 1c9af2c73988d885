//! The dialer: resolves a host once, checks every address it has, and dials the very addresses it checked. It is
//! the only way out to a provider, so nothing can go round the guard: not a redirect, not a name that changes.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::HttpsConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::address::AddressGuard;
use crate::tls;

/// How long one address may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a name may take to resolve.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The way out of a gateway: every call to a host that a merchant names is made through one.
pub type Connector = Bounded<HttpsConnector<Dialer<SystemResolver>>>;

/// A connector under `guard`, given up after `timeout`.
pub fn connector(guard: &Arc<AddressGuard>, tls: rustls::ClientConfig, timeout: Duration) -> Connector {
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .with_server_name_resolver(tls::server_name)
        .enable_http1()
        .wrap_connector(Dialer::new(SystemResolver, Arc::clone(guard)));
    Bounded::new(connector, timeout)
}

/// Why a host could not be dialled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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

/// Knows the addresses of hosts.
pub trait Resolve: Clone + Send + Sync + 'static {
    /// The addresses of `host` as of now, which is a name or an address itself.
    fn resolve(&self, host: &str) -> impl Future<Output = io::Result<Vec<IpAddr>>> + Send;
}

/// The resolver of this machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        // The port is none of the resolver's business.
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Dials providers.
#[derive(Debug, Clone)]
pub struct Dialer<R> {
    resolver: R,
    guard: Arc<AddressGuard>,
}

impl<R: Resolve> Dialer<R> {
    /// A dialer under `guard`.
    pub fn new(resolver: R, guard: Arc<AddressGuard>) -> Self {
        Self { resolver, guard }
    }

    async fn dial(&self, uri: &Uri) -> Result<TcpStream, Error> {
        let host = uri.host().ok_or(Error::NoHost)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, self.resolver.resolve(host));
        let addresses = lookup.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if addresses.iter().any(|address| !self.guard.permits(*address)) {
            return Err(Error::Forbidden);
        }
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            let connect = TcpStream::connect(SocketAddr::new(address, port));
            match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
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
}

impl<R: Resolve> tower_service::Service<Uri> for Dialer<R> {
    type Response = TokioIo<TcpStream>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialer = self.clone();
        Box::pin(async move { dialer.dial(&uri).await.map(TokioIo::new) })
    }
}

/// An error of a connector.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connector with a bound on all that it does: a provider that accepts may still not finish its part of TLS.
#[derive(Debug, Clone)]
pub struct Bounded<C> {
    connector: C,
    timeout: Duration,
}

impl<C> Bounded<C> {
    /// `connector`, given up after `timeout`.
    pub fn new(connector: C, timeout: Duration) -> Self {
        Self { connector, timeout }
    }
}

impl<C> tower_service::Service<Uri> for Bounded<C>
where
    C: tower_service::Service<Uri, Error = BoxError, Future: Send + 'static>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.timeout, self.connector.call(uri));
        Box::pin(async move {
            let in_time = connecting.await;
            in_time.unwrap_or_else(|_| Err(Error::from(io::Error::from(io::ErrorKind::TimedOut)).into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::net::TcpListener;

    use super::*;

    /// A resolver that answers differently each time, and remembers what it was asked.
    #[derive(Debug, Clone)]
    struct Script {
        asked: Arc<Mutex<Vec<String>>>,
        /// The last one first.
        answers: Arc<Mutex<Vec<Vec<IpAddr>>>>,
    }

    impl Script {
        /// Answers with these, one after the other.
        fn of(answers: &[&[&str]]) -> Self {
            let addresses = |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect();
            let mut answers: Vec<_> = answers.iter().map(addresses).collect();
            answers.reverse();
            Self { asked: Arc::default(), answers: Arc::new(Mutex::new(answers)) }
        }

        fn asked(&self) -> Vec<String> {
            self.asked.lock().unwrap().clone()
        }
    }

    impl Resolve for Script {
        async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
            self.asked.lock().unwrap().push(host.to_owned());
            self.answers.lock().unwrap().pop().ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    /// Dials the port of a listener at 127.0.0.1, which alone of its network is allowed, by a name with these addresses.
    async fn dialled(answers: &[&[&str]], times: usize) -> (Script, Vec<Result<(), Error>>, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let guard = Arc::new(AddressGuard::new(vec!["127.0.0.1/32".parse().unwrap()]));
        let script = Script::of(answers);
        let dialer = Dialer::new(script.clone(), guard);
        let uri: Uri = format!("http://api.example:{port}/v1?x=1").parse().unwrap();
        let mut ends = Vec::new();
        for _ in 0..times {
            ends.push(dialer.dial(&uri).await.map(drop));
        }
        (script, ends, listener)
    }

    /// How many connections have arrived. On the loopback a connection that was made is there to be accepted.
    async fn arrived(listener: TcpListener) -> usize {
        let mut count = 0;
        while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await {
            count += 1;
        }
        count
    }

    #[tokio::test]
    async fn a_checked_address_is_dialled_after_one_look_at_the_name() {
        let (script, ends, listener) = dialled(&[&["127.0.0.1"], &["10.0.0.1"]], 1).await;
        assert!(matches!(ends[..], [Ok(())]), "{ends:?}");
        assert_eq!(script.asked(), ["api.example"], "checked and dialled are one answer");
        assert_eq!(arrived(listener).await, 1);
    }

    #[tokio::test]
    async fn a_name_that_turns_to_another_address_is_checked_anew() {
        let (script, ends, listener) = dialled(&[&["127.0.0.1"], &["169.254.169.254"], &["::1"]], 3).await;
        assert!(matches!(ends[..], [Ok(()), Err(Error::Forbidden), Err(Error::Forbidden)]), "{ends:?}");
        assert_eq!(script.asked().len(), 3);
        assert_eq!(arrived(listener).await, 1);
    }

    #[tokio::test]
    async fn one_forbidden_address_among_allowed_ones_forbids_the_host() {
        for forbidden in [
            "0.0.0.0",
            "10.0.0.1",
            "100.100.100.200",
            "127.0.0.2",
            "169.254.169.254",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::808:808",
            "2002:7f00:1::1",
            "fd00:ec2::254",
            "fe80::1",
        ] {
            for answer in [["127.0.0.1", forbidden], [forbidden, "127.0.0.1"], [forbidden, "1.1.1.1"]] {
                let (_, ends, listener) = dialled(&[&answer], 1).await;
                assert!(matches!(ends[..], [Err(Error::Forbidden)]), "{answer:?}: {ends:?}");
                assert_eq!(arrived_now(&listener).await, 0, "{answer:?} was dialled");
            }
        }
    }

    /// Has a connection arrived by now?
    async fn arrived_now(listener: &TcpListener) -> usize {
        let accepted = tokio::time::timeout(Duration::from_millis(1), listener.accept()).await;
        usize::from(accepted.is_ok())
    }

    #[tokio::test]
    async fn an_address_that_does_not_accept_gives_way_to_the_next() {
        let guard = Arc::new(AddressGuard::new(vec!["127.0.0.0/8".parse().unwrap()]));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Script::of(&[&["127.0.0.3", "127.0.0.1"], &["127.0.0.3"], &[]]);
        let dialer = Dialer::new(script, guard);
        let uri: Uri = format!("http://api.example:{port}/").parse().unwrap();
        assert!(dialer.dial(&uri).await.is_ok());
        assert!(matches!(dialer.dial(&uri).await, Err(Error::Unreachable(_))), "nobody is there");
        assert!(matches!(dialer.dial(&uri).await, Err(Error::Unreachable(_))), "no address");
        assert!(matches!(dialer.dial(&uri).await, Err(Error::Unreachable(_))), "no such name");
        assert_eq!(arrived(listener).await, 1);
    }

    #[tokio::test]
    async fn the_machines_own_resolver_is_under_the_guard_too() {
        let dialer = Dialer::new(SystemResolver, Arc::default());
        for host in ["localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"] {
            let uri: Uri = format!("http://{host}:9/").parse().unwrap();
            assert!(matches!(dialer.dial(&uri).await, Err(Error::Forbidden)), "{host}");
        }
    }
}
