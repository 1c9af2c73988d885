//! Serving connections: each with a bound on how long its caller may take to say what it wants, all of them ended in
//! good order.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

/// How long a caller may take for the head of a request, idle time on a kept connection included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// The pause after a connection could not be accepted, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`, then lets connections finish what they are at for up to `drain`.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken, drain: Duration) {
    let graceful = GracefulShutdown::new();
    let connections = TaskTracker::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Small answers go out at once. A connection that refuses the option still works.
        drop(stream.set_nodelay(true));
        let router = router.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let mut router = router.clone();
            async move {
                let answered: Result<_, Infallible> = router.call(request.map(Body::new)).await;
                answered
            }
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("calls in flight are cut off");
    }
}
