//! Serves connections, with limits of their number and of the calls in flight, and timeouts for reading requests and
//! writing answers. Shuts them down gracefully.

mod caller;
mod limits;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use farthing_core::ids::RequestId;
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use self::caller::{CallerConnection, Speaker};
pub(crate) use self::limits::CallInFlight;
use self::limits::CallsInFlight;
pub use self::limits::ServerLimits;
use crate::app::App;
use crate::error::ApiError;
use crate::headers::SERVICE_REQUEST_ID;

/// The pause after a connection could not be accepted, for example because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`, then lets connections finish their current calls within the grace period and closes the rest.
/// Returns the end of the grace period once no connection is left.
pub(crate) async fn serve(
    listener: TcpListener,
    app: &Arc<App>,
    router: Router,
    limits: ServerLimits,
    stop: CancellationToken,
) -> Instant {
    let (places, calls) = (Arc::new(Semaphore::new(limits.connections)), CallsInFlight::new(limits.calls));
    let graceful = GracefulShutdown::new();
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(app.timeouts.head);
    loop {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accept => accepted,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(event = "server.accept_failed", %error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Sends small answers without delay. A connection that refuses the option still works.
        drop(stream.set_nodelay(true));
        let speaker = Speaker::default();
        let caller = CallerConnection::new(stream, Arc::clone(app), speaker.clone());
        let (router, calls, app) = (router.clone(), calls.clone(), Arc::clone(app));
        let service = service_fn(move |request: Request<Incoming>| {
            let (mut router, speaker, call, app) =
                (router.clone(), speaker.clone(), calls.begin(), Arc::clone(&app));
            async move {
                let handler = speaker.start_handler();
                let response = match &call {
                    Some(call) => {
                        let mut request = request.map(Body::new);
                        request.extensions_mut().insert(call.clone());
                        let answered: Result<_, Infallible> = router.call(request).await;
                        match answered {
                            Ok(response) => response,
                            Err(never) => match never {},
                        }
                    }
                    None => overloaded(&app),
                };
                Ok::<_, Infallible>(response.map(|body| handler.until_end_of(body, call)))
            }
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(caller), service));
        let cut = cut.clone();
        connections.spawn(async move {
            let _place = place;
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(event = "server.connection_failed", %error, "a connection ended early");
                },
                () = cut.cancelled() => {}
            }
        });
    }
    drop(listener);
    let until = Instant::now() + app.timeouts.grace;
    if tokio::time::timeout_at(until, graceful.shutdown()).await.is_err() {
        tracing::warn!(event = "server.grace_period_elapsed", "closing the connections of calls in flight");
    }
    cut.cancel();
    connections.close();
    connections.wait().await;
    until
}

/// The answer to a call beyond the limit.
fn overloaded(app: &App) -> Response {
    let mut response = ApiError::overloaded("calls in flight").into_response();
    let id = RequestId::new(app.mint.next(app.now()));
    let id = HeaderValue::try_from(id.to_string()).expect("an id is ASCII");
    response.headers_mut().insert(SERVICE_REQUEST_ID, id);
    response
}
