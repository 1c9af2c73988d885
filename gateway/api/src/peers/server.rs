//! Takes commands, and whole requests to the REST interface, from the other gateways.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bytes::Bytes;
use farthing_core::secret::ServerKey;
use farthing_log::ledger::{self, Ledger, Reply};
use farthing_telemetry::traces::{KeyValue, Traces};
use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use http::HeaderValue;
use subtle::ConstantTimeEq as _;

use super::{COMMANDS, Numbered, TOKEN_HEADER, token};
use crate::serve::Introduction;

/// The largest message, in bytes.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// A request that another gateway passed on. It is not passed on again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromGateway;

/// Serves the other gateways. `rest` is the REST interface.
pub(crate) fn router(ledger: Ledger, traces: Traces, server_key: &ServerKey, rest: Router) -> Router {
    let commands = Router::new()
        .route(COMMANDS, post(commands))
        .layer(DefaultBodyLimit::max(MAX_MESSAGE))
        .with_state((ledger, traces));
    commands.merge(rest).layer(from_fn_with_state(token(server_key), only_gateways))
}

/// Refuses a request without the token. With it, the connection is another gateway's.
async fn only_gateways(State(token): State<HeaderValue>, mut request: Request, next: Next) -> Response {
    let given = request.headers_mut().remove(TOKEN_HEADER);
    if !given.is_some_and(|given| bool::from(given.as_bytes().ct_eq(token.as_bytes()))) {
        return StatusCode::FORBIDDEN.into_response();
    }
    if let Some(introduction) = request.extensions().get::<Introduction>() {
        introduction.complete();
    }
    request.extensions_mut().insert(FromGateway);
    next.run(request).await
}

/// Carries out a message of commands, and answers each as soon as it is decided: one that takes long does not hold up the
/// others.
async fn commands(State((ledger, traces)): State<(Ledger, Traces)>, message: Bytes) -> Body {
    let lines = message.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let served = lines.enumerate().map(|(command, line)| {
        let (ledger, traces, line) = (ledger.clone(), traces.clone(), message.slice_ref(line));
        async move {
            let reply = Numbered { command, reply: serve(&ledger, &traces, &line).await };
            let mut line = serde_json::to_vec(&reply).expect("replies are written as JSON");
            line.push(b'\n');
            line
        }
    });
    let count = served.clone().count();
    let mut replies = served
        .collect::<FuturesUnordered<_>>()
        .ready_chunks(count.max(1))
        .map(|lines| (lines.len(), lines.concat()));
    let (ready, first) = replies.next().await.unwrap_or_default();
    if ready == count {
        return Body::from(first);
    }
    let rest = replies.map(|(_, lines)| lines);
    Body::from_stream(stream::iter([first]).chain(rest).map(Ok::<_, Infallible>))
}

async fn serve(ledger: &Ledger, traces: &Traces, line: &[u8]) -> Reply {
    match ledger::Request::read(line) {
        Ok(request) => {
            let span = traces.asked_by_gateway(request.within(), "decide");
            span.set(|| [KeyValue::new("farthing.partition", i64::from(request.partition().number()))]);
            span.run(ledger.serve(request)).await
        }
        Err(reply) => {
            tracing::warn!(
                event = "gateways.command_unknown",
                ?reply,
                "another gateway sent an unknown command"
            );
            reply
        }
    }
}
