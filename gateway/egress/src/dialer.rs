//! The dialer resolves a host once, checks every address of the host, and dials only checked addresses. Every call to a
//! host that a merchant names goes through it, so neither a redirect nor a changed DNS answer gets past the guard.

use std::convert::Infallible;
use std::future::{self, Future};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use crate::address::AddressGuard;
use crate::dialled::{Dialled, Places};
use crate::error::{BoxError, Error};
use crate::guarded::GuardedResolver;
use crate::party;

/// The limit on connecting to the addresses of one family (IPv4 or IPv6), shared evenly between them, if each then has
/// at least [`ADDRESS_TIMEOUT`]. Otherwise the limit on the whole connection alone limits the family.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The least time to connect to one address. It covers a lost first packet, which is sent again after 1 s.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Dials checked addresses. IPv4 and IPv6 are tried with "happy eyeballs" (RFC 6555).
#[derive(Clone)]
pub struct Dialer<R> {
    resolver: GuardedResolver<R>,
    guard: Arc<AddressGuard>,
    places: Places,
}

impl<R> Dialer<R> {
    /// A dialer under `guard`, of as many connections as `places` allows.
    pub(crate) fn new(resolver: R, guard: Arc<AddressGuard>, places: Places) -> Self {
        Self { resolver: GuardedResolver { resolver, guard: Arc::clone(&guard) }, guard, places }
    }
}

impl<R> Service<Uri> for Dialer<R>
where
    R: Service<Name, Error = Error, Future: Send + 'static>,
    R::Response: Iterator<Item = SocketAddr>,
{
    type Response = Dialled;
    type Error = BoxError;
    type Future = BoxFuture<Self::Response, BoxError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.resolver.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let lookup = match literal_address(&uri) {
            Some(address) if !self.guard.permits(address) => {
                return Box::pin(future::ready(Err(Error::Forbidden.into())));
            }
            Some(_) => None,
            None => uri.host().and_then(|host| host.parse().ok()).map(|name| self.resolver.call(name)),
        };
        let (guard, places, party) = (Arc::clone(&self.guard), self.places.clone(), party::current());
        Box::pin(async move {
            let addresses = match lookup {
                Some(lookup) => lookup.await?,
                // The host is an address, which the connector dials without a resolver.
                None => Vec::new(),
            };
            let place = places.take(party)?;
            let stream = http_connector(addresses).call(uri).await?;
            // Checked again before a byte is sent: the connector parses addresses in URLs by itself, and the system
            // dials another address in place of some, such as 0.0.0.0.
            if !guard.permits(stream.inner().peer_addr()?.ip()) {
                return Err(Error::Forbidden.into());
            }
            Ok(Dialled::new(stream, place))
        })
    }
}

/// A connector to the first of `addresses` that accepts.
fn http_connector(addresses: Vec<SocketAddr>) -> HttpConnector<Resolved> {
    let timeout = family_timeout(&addresses);
    let mut http = HttpConnector::new_with_resolver(Resolved(addresses));
    // The TLS layer dials its `https` URLs through this connector.
    http.enforce_http(false);
    http.set_connect_timeout(Some(timeout));
    http.set_nodelay(true);
    http
}

/// The limit for the larger address family of a host. [`HttpConnector`] divides it by the number of addresses.
fn family_timeout(addresses: &[SocketAddr]) -> Duration {
    let ipv4 = addresses.iter().filter(|address| address.is_ipv4()).count();
    let larger = ipv4.max(addresses.len() - ipv4);
    CONNECT_TIMEOUT.max(ADDRESS_TIMEOUT.saturating_mul(u32::try_from(larger).unwrap_or(u32::MAX)))
}

/// The address of a URL whose host is one. Other spellings, such as `127.1`, are left to the resolver.
fn literal_address(uri: &Uri) -> Option<IpAddr> {
    let host = uri.host()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.parse().ok()
}

/// The addresses of a host that was resolved and checked before.
#[derive(Debug, Clone)]
struct Resolved(Vec<SocketAddr>);

impl Service<Name> for Resolved {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Infallible;
    type Future = future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        future::ready(Ok(self.0.clone().into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Mutex;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio::time::Instant;

    use super::*;
    use crate::names::{LookupError, Names};

    /// A resolver that gives a new answer at each lookup and records the names.
    #[derive(Debug, Clone)]
    struct Script {
        names: Arc<Mutex<Vec<String>>>,
        /// The next answer is the last one. A lookup beyond them fails.
        answers: Arc<Mutex<Vec<Vec<SocketAddr>>>>,
    }

    impl Script {
        /// Gives these answers, in this order.
        fn of(answers: &[&[&str]]) -> Self {
            let address = |text: &&str| SocketAddr::new(text.parse().unwrap(), 0);
            let answers = answers.iter().rev().map(|answer| answer.iter().map(address).collect()).collect();
            Self { names: Arc::default(), answers: Arc::new(Mutex::new(answers)) }
        }

        fn names(&self) -> Vec<String> {
            self.names.lock().unwrap().clone()
        }
    }

    impl Service<Name> for Script {
        type Response = vec::IntoIter<SocketAddr>;
        type Error = Error;
        type Future = future::Ready<Result<Self::Response, Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, name: Name) -> Self::Future {
            self.names.lock().unwrap().push(name.as_str().to_owned());
            let answer = self.answers.lock().unwrap().pop();
            future::ready(answer.map(Vec::into_iter).ok_or(LookupError::NoAddress.into()))
        }
    }

    fn guard(allowed: &[&str]) -> Arc<AddressGuard> {
        Arc::new(AddressGuard::new(allowed.iter().map(|net| net.parse().unwrap()).collect()))
    }

    fn dialer<R>(resolver: R, guard: Arc<AddressGuard>) -> Dialer<R> {
        Dialer::new(resolver, guard, Places::new(64, 32, Duration::from_mins(1)))
    }

    async fn listen(address: Ipv4Addr, port: u16) -> TcpListener {
        TcpListener::bind((address, port)).await.unwrap()
    }

    async fn dial<R>(dialer: &mut Dialer<R>, host: &str, port: u16) -> Result<(), BoxError>
    where
        Dialer<R>: Service<Uri, Response = Dialled, Error = BoxError>,
    {
        let uri = format!("http://{host}:{port}/v1?x=1").parse().unwrap();
        future::poll_fn(|cx| dialer.poll_ready(cx)).await?;
        let stream = dialer.call(uri).await?.into_inner();
        assert!(stream.nodelay().unwrap());
        Ok(())
    }

    /// This crate's error in the source chain, as callers look for it.
    fn reason(error: &BoxError) -> Option<&Error> {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
        while let Some(error) = source {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            source = error.source();
        }
        None
    }

    fn is_forbidden(end: &Result<(), BoxError>) -> bool {
        matches!(end, Err(error) if matches!(reason(error), Some(Error::Forbidden)))
    }

    fn is_lookup_error(end: &Result<(), BoxError>) -> bool {
        matches!(end, Err(error) if matches!(reason(error), Some(Error::Lookup(_))))
    }

    /// Dials a listener at 127.0.0.1, which is the only allowed loopback address, by a name with these addresses.
    async fn dialled(answers: &[&[&str]], times: usize) -> (Script, Vec<Result<(), BoxError>>, TcpListener) {
        let listener = listen(Ipv4Addr::LOCALHOST, 0).await;
        let port = listener.local_addr().unwrap().port();
        let script = Script::of(answers);
        let mut dialer = dialer(script.clone(), guard(&["127.0.0.1/32"]));
        let mut ends = Vec::new();
        for _ in 0..times {
            ends.push(dial(&mut dialer, "api.example", port).await);
        }
        (script, ends, listener)
    }

    /// The number of connections that have arrived. On the loopback a connection that was made can be accepted at once.
    async fn arrived(listener: &TcpListener) -> usize {
        let mut count = 0;
        while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(5), listener.accept()).await {
            count += 1;
        }
        count
    }

    #[tokio::test]
    async fn a_checked_address_is_dialled_after_one_lookup() {
        let (script, ends, listener) = dialled(&[&["127.0.0.1"], &["10.0.0.1"]], 1).await;
        assert!(matches!(ends[..], [Ok(())]), "{ends:?}");
        assert_eq!(script.names(), ["api.example"], "the checked answer is the dialled one");
        assert_eq!(arrived(&listener).await, 1);
    }

    #[tokio::test]
    async fn a_changed_dns_answer_is_checked_again() {
        let (script, ends, listener) = dialled(&[&["127.0.0.1"], &["169.254.169.254"], &["::1"]], 3).await;
        assert!(ends[0].is_ok() && ends[1..].iter().all(is_forbidden), "{ends:?}");
        assert_eq!(script.names().len(), 3);
        assert_eq!(arrived(&listener).await, 1);
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
                assert!(is_forbidden(&ends[0]), "{answer:?}: {ends:?}");
                assert_eq!(arrived(&listener).await, 0, "{answer:?} was dialled");
            }
        }
    }

    #[tokio::test]
    async fn an_address_in_the_url_is_checked_without_a_lookup() {
        let listener = listen(Ipv4Addr::LOCALHOST, 0).await;
        let port = listener.local_addr().unwrap().port();
        let script = Script::of(&[]);
        let mut dialer = dialer(script.clone(), guard(&["127.0.0.1/32"]));
        for forbidden in [
            "0.0.0.0",
            "10.0.0.1",
            "127.0.0.2",
            "169.254.169.254",
            "[127.0.0.2]",
            "[::]",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::7f00:1]",
            "[::127.0.0.1]",
            "[::ffff:127.0.0.2]",
            "[::FFFF:7F00:2]",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::1]",
            "[fd00:ec2::254]",
            "[fe80::1]",
        ] {
            let end = dial(&mut dialer, forbidden, port).await;
            assert!(is_forbidden(&end), "{forbidden}: {end:?}");
        }
        assert_eq!(arrived(&listener).await, 0);
        dial(&mut dialer, "127.0.0.1", port).await.unwrap();
        assert_eq!(arrived(&listener).await, 1);
        assert!(script.names().is_empty());
    }

    #[tokio::test]
    async fn the_system_resolver_is_guarded() {
        let listener = listen(Ipv4Addr::LOCALHOST, 0).await;
        let port = listener.local_addr().unwrap().port();
        let mut dialer = dialer(Names::new(&[], 1), Arc::default());
        let end = dial(&mut dialer, "localhost", port).await;
        assert!(is_forbidden(&end), "{end:?}");
        // Resolvers differ in which of these spellings of 127.0.0.1 they accept.
        for spelling in ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1."] {
            let end = dial(&mut dialer, spelling, port).await;
            assert!(is_forbidden(&end) || is_lookup_error(&end), "{spelling}: {end:?}");
        }
        assert_eq!(arrived(&listener).await, 0);
    }

    #[tokio::test]
    async fn the_next_address_is_dialled_when_one_refuses() {
        let listener = listen(Ipv4Addr::LOCALHOST, 0).await;
        let port = listener.local_addr().unwrap().port();
        let script = Script::of(&[&["127.0.0.3", "127.0.0.1"], &["::1", "127.0.0.1"], &["127.0.0.3"]]);
        let mut dialer = dialer(script, guard(&["127.0.0.0/8", "::1/128"]));
        dial(&mut dialer, "api.example", port).await.unwrap();
        dial(&mut dialer, "api.example", port).await.unwrap();
        let refused = dial(&mut dialer, "api.example", port).await;
        assert!(matches!(&refused, Err(error) if reason(error).is_none()), "{refused:?}");
        let end = dial(&mut dialer, "api.example", port).await;
        assert!(is_lookup_error(&end), "{end:?}");
        assert_eq!(arrived(&listener).await, 2);
    }

    /// A listener at 127.0.0.2 that answers no further connection, because its backlog is full.
    async fn silent_listener(port: u16) -> (TcpListener, Vec<TcpStream>) {
        let address = SocketAddr::from(([127, 0, 0, 2], port));
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut backlog = Vec::new();
        while let Ok(stream) =
            tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address)).await
        {
            backlog.push(stream.unwrap());
        }
        (listener, backlog)
    }

    #[tokio::test]
    async fn the_other_address_family_is_dialled_when_the_first_is_silent() {
        let listener = listen(Ipv4Addr::LOCALHOST, 0).await;
        let port = listener.local_addr().unwrap().port();
        let _silent = silent_listener(port).await;
        // The connector counts a mapped IPv4 address as IPv6, so the test needs no IPv6 interface.
        let script = Script::of(&[&["127.0.0.2", "::ffff:127.0.0.1"]]);
        let mut dialer = dialer(script, guard(&["127.0.0.0/8"]));
        let started = Instant::now();
        dial(&mut dialer, "api.example", port).await.unwrap();
        assert!(started.elapsed() < CONNECT_TIMEOUT / 2, "{:?}", started.elapsed());
        assert_eq!(arrived(&listener).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn each_of_many_addresses_has_time_and_none_takes_the_time_of_the_others() {
        let listener = listen(Ipv4Addr::LOCALHOST, 0).await;
        let port = listener.local_addr().unwrap().port();
        let _silent = silent_listener(port).await;
        for (silent, seconds) in [(1, 5), (15, 45)] {
            let mut answer = vec!["127.0.0.2"; silent];
            answer.push("127.0.0.1");
            let mut dialer = dialer(Script::of(&[&answer]), guard(&["127.0.0.0/8"]));
            let started = Instant::now();
            dial(&mut dialer, "api.example", port).await.unwrap();
            // The clock is paused: it advances to the next timeout once nothing else can proceed.
            assert_eq!(
                started.elapsed().as_secs(),
                seconds,
                "{silent} addresses before the one that answers"
            );
        }
        assert_eq!(arrived(&listener).await, 2);
    }

    #[test]
    fn the_addresses_of_the_larger_family_decide_the_limit() {
        let limit = |answer: &[&str]| {
            let addresses: Vec<SocketAddr> =
                answer.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0)).collect();
            family_timeout(&addresses).as_secs()
        };
        assert_eq!(limit(&[]), 10);
        assert_eq!(limit(&["1.1.1.1", "1.1.1.2", "1.1.1.3"]), 10);
        assert_eq!(limit(&["1.1.1.1", "2001:4860::1", "1.1.1.2", "2001:4860::2"]), 10);
        assert_eq!(limit(&["1.1.1.1"; 4]), 12);
        assert_eq!(limit(&["2001:4860::1", "2001:4860::2", "2001:4860::3", "2001:4860::4", "1.1.1.1"]), 12);
    }

    #[tokio::test]
    async fn a_peer_that_is_not_allowed_gets_no_byte() {
        let listener = listen(Ipv4Addr::LOCALHOST, 0).await;
        let port = listener.local_addr().unwrap().port();
        // The system connects 0.0.0.0, which passes the first check here, to 127.0.0.1, which is forbidden.
        for host in ["0.0.0.0", "api.example"] {
            let mut dialer = dialer(Script::of(&[&["0.0.0.0"]]), guard(&["0.0.0.0/32"]));
            let end = dial(&mut dialer, host, port).await;
            assert!(is_forbidden(&end), "{host}: {end:?}");
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).await.unwrap();
            assert!(received.is_empty(), "{host}");
        }
    }
}
