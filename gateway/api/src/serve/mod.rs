//! Serves connections, with timeouts for reading requests and writing answers, and shuts them down gracefully.

mod caller;

use std::convert::Infallible;
use std::sync::Arc;
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
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use self::caller::{CallerConnection, Speaker};
use crate::app::App;

/// The pause after a connection could not be accepted, for example because no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`, then lets connections finish their current calls within the grace period and closes the rest.
/// Returns the end of the grace period once no connection is left.
pub(crate) async fn serve(
    listener: TcpListener,
    app: &Arc<App>,
    router: Router,
    stop: CancellationToken,
) -> Instant {
    let graceful = GracefulShutdown::new();
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(app.timeouts.head);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
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
        let router = router.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (mut router, speaker) = (router.clone(), speaker.clone());
            async move {
                let handler = speaker.start_handler();
                let answered: Result<_, Infallible> = router.call(request.map(Body::new)).await;
                answered.map(|response| response.map(|body| handler.until_end_of(body)))
            }
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(caller), service));
        let cut = cut.clone();
        connections.spawn(async move {
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
