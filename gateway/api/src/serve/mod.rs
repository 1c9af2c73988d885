//! Serves connections, with limits of their number and of the calls in flight, and timeouts for reading requests and
//! writing answers. Shuts them down gracefully.

mod call_rate;
mod caller;
mod host;
mod limits;
mod strangers;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use farthing_core::ids::RequestId;
use farthing_telemetry::{Counted, Gauge};
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use self::caller::{CallerConnection, HandlerBody, Speaker};
pub(crate) use self::limits::CallInFlight;
use self::limits::CallsInFlight;
pub use self::limits::ServerLimits;
pub(crate) use self::strangers::Introduction;
use self::strangers::Strangers;
use crate::app::App;
use crate::caller_address::{CallerAddress, PerAddress};
use crate::error::{ApiError, GatewayLimit};
use crate::headers::SERVICE_REQUEST_ID;
use crate::metrics::ListenerMetrics;
use crate::request_id::answering_at_once;
use crate::timeouts::Timeouts;

/// The pause after a connection could not be accepted, for example because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The most connections that are accepted when the listener closes, because they were waiting.
const LAST_CONNECTIONS: u32 = 1_024;

/// The longest head of a request, and the longest trailer. The buffer of a connection holds twice as much at most.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The most headers of a request.
const MAX_HEADERS: usize = 100;

/// What another gateway adds to the head of a request that it passes on, in bytes and in headers: more than its token.
const ADDED_BYTES: usize = 4 * 1024;
const ADDED_HEADERS: usize = 8;

/// Accepts connections until `closing`, and serves until `stop`. Then it lets connections finish their current calls within
/// the grace period and closes the rest. Returns the end of the grace period once no connection is left.
pub(crate) async fn serve(
    listener: TcpListener,
    app: &Arc<App>,
    (router, metrics): (Router, ListenerMetrics),
    limits: ServerLimits,
    timeouts: Timeouts,
    (closing, stop): (CancellationToken, CancellationToken),
) -> Instant {
    // Strangers have places of their own.
    let strangers = limits.strangers.map(Strangers::new);
    let places = Arc::new(Semaphore::new(limits.connections + limits.strangers.unwrap_or(0)));
    let calls = CallsInFlight::new(limits);
    let per_address = limits.connections_per_address.map(PerAddress::new);
    let graceful = GracefulShutdown::new();
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let http = http(timeouts.head, limits);
    // Whoever is connected already when the listener closes is served, too, within reason.
    let mut last = LAST_CONNECTIONS;
    while last > 0 {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            biased;
            accepted = accept => accepted,
            () = closing.cancelled() => break,
        };
        if closing.is_cancelled() {
            last -= 1;
        }
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(event = "server.accept_failed", %error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let address = CallerAddress::of(peer.ip());
        let place_of_address = match per_address.as_ref().map(|limit| limit.of(address).try_acquire_owned()) {
            None => None,
            Some(Ok(place)) => Some(place),
            Some(Err(_)) => {
                tracing::debug!(event = "server.connection_refused", %peer, "too many connections of this address");
                continue;
            }
        };
        // Sends small answers without delay. A connection that refuses the option still works.
        drop(stream.set_nodelay(true));
        let speaker = Speaker::default();
        let ids = Arc::clone(app);
        let new_id = move || RequestId::new(ids.mint.next(ids.now()));
        let caller = CallerConnection::new(stream, speaker.clone(), timeouts.stall, new_id.clone());
        let (introduction, closed) = match strangers.as_ref().map(Strangers::arrive) {
            Some((introduction, closed)) => (Some(introduction), closed),
            None => (None, CancellationToken::new()),
        };
        let caller_of = Caller { address, introduction };
        let load = (calls.clone(), metrics.in_flight.clone());
        let service = service(router.clone(), speaker, load, caller_of, new_id);
        let connection = graceful.watch(http.serve_connection(TokioIo::new(caller), service));
        let (cut, counted) = (cut.clone(), Counted::new(&metrics.connections));
        connections.spawn(async move {
            // Dropped in this order: whoever takes the gateway's place finds the one of the address free.
            let _places = (place_of_address, place, counted);
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(event = "server.connection_failed", %error, "a connection ended early");
                },
                () = cut.cancelled() => {}
                () = closed.cancelled() => {
                    tracing::debug!(event = "server.stranger_closed", %peer, "too many connections without a token");
                }
            }
        });
    }
    drop(listener);
    stop.cancelled().await;
    let until = Instant::now() + timeouts.grace;
    if tokio::time::timeout_at(until, graceful.shutdown()).await.is_err() {
        tracing::warn!(event = "server.grace_period_elapsed", "closing the connections of calls in flight");
    }
    cut.cancel();
    connections.close();
    connections.wait().await;
    until
}

/// The settings of all connections. `head_timeout` bounds the time until the head of the next request is received.
fn http(head_timeout: Duration, limits: ServerLimits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_header_size(MAX_HEAD_BYTES);
    if limits.strangers.is_some() {
        // Whatever a caller may send to one gateway, that one can pass on.
        http.max_header_size(MAX_HEAD_BYTES + ADDED_BYTES).max_headers(MAX_HEADERS + ADDED_HEADERS);
    }
    http
}

/// The caller of a connection.
#[derive(Debug, Clone)]
struct Caller {
    address: CallerAddress,
    /// `None` if anybody may connect.
    introduction: Option<Introduction>,
}

/// Answers the calls of one connection, whose caller is `caller`, and tells `speaker` while a handler responds. A call
/// without a clear host or beyond the limit of `calls` is refused under an id of `new_id`.
fn service(
    router: Router,
    speaker: Speaker,
    (calls, in_flight): (CallsInFlight, Gauge),
    caller: Caller,
    new_id: impl Fn() -> RequestId + Clone + Send + 'static,
) -> impl Service<Request<Incoming>, Response = Response<HandlerBody>, Error = Infallible, Future: Send> {
    service_fn(move |request: Request<Incoming>| {
        let (mut router, speaker, call) = (router.clone(), speaker.clone(), calls.begin(&in_flight));
        let (new_id, caller) = (new_id.clone(), caller.clone());
        async move {
            let (handler, version) = (speaker.start_handler(), request.version());
            let request = request.map(|body| speaker.request_body(body));
            let response = match (host::check(&request), &call) {
                (Err(error), _) => {
                    let mut response = refused(error, new_id());
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    response
                }
                (Ok(()), Some(call)) => {
                    let mut request = request.map(Body::new);
                    request.extensions_mut().insert(call.clone());
                    request.extensions_mut().insert(caller.address);
                    if let Some(introduction) = caller.introduction {
                        request.extensions_mut().insert(introduction);
                    }
                    router.call(request).await?
                }
                (Ok(()), None) => refused(ApiError::overloaded(GatewayLimit::Calls), new_id()),
            };
            Ok(response.map(|body| handler.until_end_of(body, version, call)))
        }
    })
}

/// The answer to a call that no handler sees.
fn refused(error: ApiError, id: RequestId) -> Response<Body> {
    let mut response = answering_at_once(id, || error.into_response());
    let id = HeaderValue::try_from(id.to_string()).expect("an id is ASCII");
    response.headers_mut().insert(SERVICE_REQUEST_ID, id);
    response
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::IpAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::sleep;
    use ulid::Ulid;

    use super::*;

    const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
    const STALL_TIMEOUT: Duration = Duration::from_mins(1);

    const LIMITS: ServerLimits = ServerLimits {
        connections: 1,
        connections_per_address: None,
        calls: 1,
        calls_per_merchant: None,
        call_rate_per_merchant: None,
        strangers: None,
    };

    /// The bytes that the connection holds until the caller reads them.
    const BUFFERED: usize = 16 * 1024;

    /// The response body to `GET /long`, which exceeds every buffer between a handler and its caller.
    const LONG: usize = 8 * 1024 * 1024;

    impl caller::Reset for DuplexStream {
        /// A stream in memory cannot be reset: it is counted.
        fn reset(&mut self) {
            RESETS.set(RESETS.get() + 1);
        }
    }

    thread_local! {
        /// The streams of this test that were reset. A test runs on one thread.
        static RESETS: Cell<u32> = const { Cell::new(0) };
    }

    /// The response body to `GET /unsized`, whose length is not known before its end. Hyper takes all of it at once.
    const UNSIZED: usize = 256 * 1024;

    /// The response body to `GET /short`, which the connection does not hold, but hyper does.
    const SHORT: usize = 2 * BUFFERED;

    fn of_unknown_length() -> Body {
        let pieces = (0..8).map(|_| Ok::<_, Infallible>(vec![b'x'; UNSIZED / 8]));
        Body::from_stream(futures_util::stream::iter(pieces))
    }

    fn answering(
        router: Router,
        speaker: Speaker,
        calls: CallsInFlight,
        new_id: fn() -> RequestId,
    ) -> impl Service<Request<Incoming>, Response = Response<HandlerBody>, Error = Infallible, Future: Send>
    {
        let address = CallerAddress::of(IpAddr::from([127, 0, 0, 1]));
        let caller = Caller { address, introduction: None };
        service(router, speaker, (calls, Gauge::default()), caller, new_id)
    }

    /// The caller's end of a new connection, and the instant at which the gateway closes it.
    fn connect() -> (DuplexStream, JoinHandle<Instant>) {
        connect_beside(&CallsInFlight::new(LIMITS))
    }

    /// The same at a gateway with these calls.
    fn connect_beside(calls: &CallsInFlight) -> (DuplexStream, JoinHandle<Instant>) {
        let (caller, gateway) = duplex(BUFFERED);
        let new_id = || RequestId::new(Ulid::nil());
        let speaker = Speaker::default();
        let router = Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/unsized", get(|| async { of_unknown_length() }))
            .route("/short", get(|| async { vec![b'x'; SHORT] }))
            .route("/long", get(|| async { vec![b'x'; LONG] }));
        let stream = CallerConnection::new(gateway, speaker.clone(), STALL_TIMEOUT, new_id);
        let connection = http(HEAD_TIMEOUT, LIMITS)
            .serve_connection(TokioIo::new(stream), answering(router, speaker, calls.clone(), new_id));
        let ended = tokio::spawn(async move {
            let _ = connection.await;
            Instant::now()
        });
        (caller, ended)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_once_a_head_is_not_complete_in_time() {
        let started = Instant::now();
        let (mut caller, ended) = connect();
        caller.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        // A head that arrives slowly has no more time than one that does not arrive.
        for _ in 0..2 {
            sleep(HEAD_TIMEOUT / 3).await;
            caller.write_all(b"a: b\r\n").await.unwrap();
        }
        assert_eq!(ended.await.unwrap() - started, HEAD_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_ends_after_the_timeout_for_the_next_head() {
        let (mut caller, ended) = connect();
        for _ in 0..3 {
            sleep(HEAD_TIMEOUT / 2).await;
            caller.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"hello") {
                assert_ne!(caller.read_buf(&mut answer).await.unwrap(), 0, "the connection is kept alive");
            }
        }
        let answered = Instant::now();
        assert_eq!(ended.await.unwrap() - answered, HEAD_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_once_its_caller_reads_nothing_for_the_stall_timeout() {
        let (mut caller, ended) = connect();
        caller.write_all(b"GET /long HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        for _ in 0..5 {
            sleep(STALL_TIMEOUT / 2).await;
            caller.read_exact(&mut [0; BUFFERED]).await.unwrap();
        }
        let stalled = Instant::now();
        assert_eq!(ended.await.unwrap() - stalled, STALL_TIMEOUT);
        let mut rest = Vec::new();
        caller.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() <= BUFFERED, "the answer is cut off");
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_of_http_1_0_is_reset_if_a_response_of_unknown_length_was_not_sent_whole() {
        for (version, reads_all, resets) in [("1.0", true, 0), ("1.0", false, 1), ("1.1", false, 0)] {
            RESETS.set(0);
            let (mut caller, ended) = connect();
            let request = format!("GET /unsized HTTP/{version}\r\nhost: a\r\nconnection: close\r\n\r\n");
            caller.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            if reads_all {
                caller.read_to_end(&mut answer).await.unwrap();
                assert!(answer.ends_with(&vec![b'x'; UNSIZED]));
            }
            ended.await.unwrap();
            assert_eq!(RESETS.get(), resets, "{version}, {reads_all}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_with_a_long_response_is_in_flight_until_its_caller_has_read_it() {
        /// Sends a call, and reads the first line of its response.
        async fn status(caller: &mut DuplexStream, path: &str) -> String {
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
            caller.write_all(request.as_bytes()).await.unwrap();
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(caller.read_u8().await.unwrap());
            }
            String::from_utf8(line).unwrap()
        }
        for (path, meanwhile) in [("/unsized", "503"), ("/long", "503"), ("/short", "200"), ("/", "200")] {
            let calls = CallsInFlight::new(LIMITS);
            let (mut caller, ended) = connect_beside(&calls);
            assert!(status(&mut caller, path).await.contains(" 200 "), "{path}");
            // Hyper has all it takes.
            sleep(STALL_TIMEOUT / 2).await;
            let (mut other, _) = connect_beside(&calls);
            let answered = status(&mut other, "/").await;
            assert!(answered.contains(meanwhile), "{path}: {answered}");
            drop(caller.shutdown().await);
            tokio::io::copy(&mut caller, &mut tokio::io::sink()).await.unwrap();
            ended.await.unwrap();
            let (mut other, _) = connect_beside(&calls);
            assert!(status(&mut other, "/").await.contains(" 200 "), "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_handler_is_not_a_stalled_caller() {
        let (mut caller, gateway) = duplex(BUFFERED);
        let speaker = Speaker::default();
        let slow = || async {
            sleep(STALL_TIMEOUT * 3).await;
            "done"
        };
        let router = Router::new().route("/", get(slow));
        let new_id = || RequestId::new(Ulid::nil());
        let stream = CallerConnection::new(gateway, speaker.clone(), STALL_TIMEOUT, new_id);
        let connection = http(HEAD_TIMEOUT, LIMITS).serve_connection(
            TokioIo::new(stream),
            answering(router, speaker, CallsInFlight::new(LIMITS), new_id),
        );
        let ended = tokio::spawn(async move { connection.await.is_ok() });
        caller.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        caller.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("done"), "{answer}");
        assert!(ended.await.unwrap());
    }
}
