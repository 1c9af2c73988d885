//! Serving connections: each with bounds on how long its caller may take to say what it wants and to take what it
//! gets, all of them ended in good order.

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

use self::caller::{Caller, Turn};
use crate::app::App;

/// The pause after a connection could not be accepted, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`, then lets connections finish what they are at for the time of grace; what is left then is cut
/// off. Answers when no connection is left with the end of the time of grace.
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
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Small answers go out at once. A connection that refuses the option still works.
        drop(stream.set_nodelay(true));
        let turn = Turn::default();
        let caller = Caller::new(stream, Arc::clone(app), turn.clone());
        let router = router.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (mut router, turn) = (router.clone(), turn.clone());
            async move {
                let ours = turn.ours();
                let answered: Result<_, Infallible> = router.call(request.map(Body::new)).await;
                answered.map(|response| response.map(|body| ours.until_the_end_of(body)))
            }
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(caller), service));
        let cut = cut.clone();
        connections.spawn(async move {
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                },
                () = cut.cancelled() => {}
            }
        });
    }
    drop(listener);
    let until = Instant::now() + app.timeouts.grace;
    if tokio::time::timeout_at(until, graceful.shutdown()).await.is_err() {
        tracing::warn!("calls in flight are cut off");
    }
    cut.cancel();
    connections.close();
    connections.wait().await;
    until
}
