//! Takes commands, and whole requests to the REST interface, from the other gateways.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bytes::Bytes;
use farthing_core::secret::ServerKey;
use farthing_log::ledger::{self, Ledger};
use futures_util::future::join_all;
use http::HeaderValue;
use subtle::ConstantTimeEq as _;

use super::{COMMANDS, TOKEN_HEADER, token};

/// The largest message, in bytes.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// A request that another gateway passed on. It is not passed on again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromGateway;

/// Serves the other gateways. `rest` is the REST interface.
pub(crate) fn router(ledger: Ledger, server_key: &ServerKey, rest: Router) -> Router {
    let commands = Router::new()
        .route(COMMANDS, post(commands))
        .layer(DefaultBodyLimit::max(MAX_MESSAGE))
        .with_state(ledger);
    commands.merge(rest).layer(from_fn_with_state(token(server_key), only_gateways))
}

/// Refuses a request without the token.
async fn only_gateways(State(token): State<HeaderValue>, mut request: Request, next: Next) -> Response {
    let given = request.headers_mut().remove(TOKEN_HEADER);
    if !given.is_some_and(|given| bool::from(given.as_bytes().ct_eq(token.as_bytes()))) {
        return StatusCode::FORBIDDEN.into_response();
    }
    request.extensions_mut().insert(FromGateway);
    next.run(request).await
}

/// Carries out a message of commands, and answers each.
async fn commands(State(ledger): State<Ledger>, message: Bytes) -> Result<Vec<u8>, StatusCode> {
    let lines = message.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let served = lines.map(async |line| match ledger::Request::read(line) {
        Ok(request) => ledger.serve(request).await,
        Err(reply) => {
            tracing::warn!(
                event = "gateways.command_unknown",
                ?reply,
                "another gateway sent an unknown command"
            );
            reply
        }
    });
    let mut answers = Vec::new();
    for reply in join_all(served).await {
        serde_json::to_writer(&mut answers, &reply).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        answers.push(b'\n');
    }
    Ok(answers)
}
