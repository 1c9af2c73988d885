//! The route of the forward endpoint and its description in the OpenAPI document; and how every endpoint whose calls are
//! forwarded answers.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use farthing_core::ids::RequestId;
use http::header::{ALLOW, HOST};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, StatusCode};
use tokio_util::sync::CancellationToken;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn, Paths};
use utoipa::openapi::{ObjectBuilder, RefOr, Required, Type};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::call::run;
use super::called_endpoint::CalledEndpoint;
use super::forwarder::Forwarder;
use super::headers::{ResponseHeaders, confine};
use crate::error::{ApiError, ProtocolError};
use crate::headers::SERVICE_REQUEST_ID;
use crate::openapi::{also_at, operations};
use crate::pages::PagesUrl;
use crate::request_id::answering_at_once;
use crate::serve::CallInFlight;
use crate::{model_endpoints, rewrite};

/// The forward endpoint, with and without a trailing slash: client libraries produce both. The same with the URL in its
/// path. And all others whose calls are forwarded.
pub(crate) fn routes() -> OpenApiRouter<Arc<Forwarder>> {
    let (schemas, paths, _) = routes!(forward);
    let in_path = with_url_in_path(paths.clone());
    // The routes take any method; the handler refuses those that are not forwarded.
    OpenApiRouter::default()
        .routes(also_at("/forward", "/forward/", (schemas, paths, any(forward))))
        .routes((Vec::new(), in_path, any(forward)))
        .merge(model_endpoints::routes())
        .merge(rewrite::routes())
}

/// All of them as they are served. The forward endpoint is under its whole paths: nested, each of its calls would get a new
/// URI and pass through a further layer.
pub(crate) fn served() -> Router<Arc<Forwarder>> {
    let others = OpenApiRouter::default().merge(model_endpoints::routes()).merge(rewrite::routes());
    Router::new()
        .route("/v1/forward", any(forward))
        .route("/v1/forward/", any(forward))
        .route("/v1/forward/{*url}", any(forward))
        .nest("/v1", Router::from(others))
}

/// Forwards the call to the URL `u`, or to the one in the path, meters it and charges it.
///
/// The method, further query parameters, headers and body reach the provider unchanged, and its answer comes back
/// unchanged, except for headers that would reach browsers and caches beyond the call. A browser's own requests
/// (navigations, scripts, workers) are refused. The last byte of the answer arrives once the charge is durable. If a stream
/// on a managed provider key does not request its usage, the gateway requests it and removes the usage chunk from the
/// answer. The credential, `u`, `metadata`, `x-service-*` headers and those of a trace (`traceparent`, `tracestate`,
/// `baggage`) do not reach the provider. Errors of the provider pass through with their own status and body.
#[utoipa::path(
    method(get, head, post, put, patch, delete), path = "/forward", operation_id = "forward", tag = "forward",
    security(
        ("forwardToken" = []),
        ("forwardXApiKey" = []),
        ("forwardXGoogApiKey" = []),
        ("forwardXiApiKey" = []),
        ("forwardApiKey" = []),
        ("forwardKeyParameter" = []),
    ),
    params(
        ("u" = String, Query, description = "The URL to forward to."),
        ("metadata" = Option<String>, Query, description = "Metadata of the request: a JSON object of strings."),
        ("x-service-metadata" = Option<String>, Header, description = "Metadata as a header. It overrides keys of the query parameter."),
    ),
    request_body(content_type = "*/*", description = "The provider's request body."),
    responses(
        (status = 200, description = "The provider's own answer.", content_type = "*/*"),
        (status = "default", description = "The provider's own answer.", content_type = "*/*"),
        (status = 400, description = "validation_error forward_token_json_invalid forward_url_missing \
            forward_url_invalid forward_url_forbidden metadata_invalid model_not_priced provider_key_missing"),
        (status = 401, description = "auth_header_missing auth_header_invalid secret_key_invalid \
            connection_secret_invalid product_secret_invalid spend_key_invalid \
            spend_key_expired"),
        (status = 402, description = "insufficient_balance spend_limit_exceeded"),
        (status = 403, description = "spend_key_paused model_not_allowed provider_not_allowed"),
        (status = 404, description = "customer_not_found meter_not_found"),
        (status = 429, description = "rate_limit_exceeded request_limit_exceeded"),
        (status = 500, description = "rest_internal_server_error"),
        (status = 502, description = "provider_unreachable"),
        (status = 503, description = "ledger_unavailable"),
        (status = 504, description = "provider_timeout"),
    ),
)]
async fn forward(State(forwarder): State<Arc<Forwarder>>, request: Request<Body>) -> Response {
    answer(forwarder, CalledEndpoint::Forward, request).await
}

/// The description of the same endpoint with the provider's URL in its path.
fn with_url_in_path(described: Paths) -> Paths {
    let url = ParameterBuilder::new()
        .name("url")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(
            "The URL to forward to, with its scheme and unencoded. Raw slashes in it are allowed.",
        ))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build();
    let mut paths = Paths::new();
    for mut item in described.paths.into_values() {
        for operation in operations(&mut item) {
            operation.operation_id = operation.operation_id.take().map(|name| format!("{name}_to_url"));
            let given = operation.parameters.take().unwrap_or_default();
            let is_u =
                |parameter: &RefOr<Parameter>| matches!(parameter, RefOr::T(given) if given.name == "u");
            let kept = given.into_iter().filter(|parameter| !is_u(parameter));
            operation.parameters = Some(std::iter::once(RefOr::T(url.clone())).chain(kept).collect());
        }
        paths.paths.insert("/forward/{*url}".to_owned(), item);
    }
    paths
}

/// The answer to a call that came to `called`.
pub(crate) async fn answer(
    forwarder: Arc<Forwarder>,
    called: CalledEndpoint,
    request: Request<Body>,
) -> Response {
    let request_id = RequestId::new(forwarder.app.mint.next(forwarder.app.now()));
    let may_be_unaltered = forwarder.app.response_headers == ResponseHeaders::Unaltered
        && !is_at_the_pages(&request, &forwarder.app.pages_url);
    let methods = called.methods();
    let outcome = if methods.contains(request.method()) {
        let outcome = respond(Arc::clone(&forwarder), request_id, (called, request)).await;
        outcome.map_err(|error| {
            forwarder.app.metrics.forward.error(error.status());
            answering_at_once(request_id, || error.into_response())
        })
    } else {
        forwarder.app.metrics.forward.error(StatusCode::METHOD_NOT_ALLOWED);
        let allowed: Vec<&str> = methods.iter().map(Method::as_str).collect();
        let allow = [(ALLOW, allowed.join(", "))];
        Err((allow, ApiError::Protocol(ProtocolError::MethodNotAllowed)).into_response())
    };
    let value = HeaderValue::try_from(request_id.to_string()).expect("an id is ASCII");
    let is_of_the_provider = outcome.is_ok();
    let (Ok(mut response) | Err(mut response)) = outcome;
    // Also a stored answer, which may be older than the rules for headers.
    if !(is_of_the_provider && may_be_unaltered) {
        confine(response.headers_mut());
    }
    // A replayed answer has the id of the first call.
    response.headers_mut().entry(SERVICE_REQUEST_ID).or_insert(value);
    response
}

/// Whether a browser sent the request to the host of the pages, which a proxy in front must not pass on.
fn is_at_the_pages(request: &Request<Body>, pages: &PagesUrl) -> bool {
    let named = [HOST.as_str(), "x-forwarded-host"];
    let named = named.into_iter().flat_map(|name| request.headers().get_all(name));
    let mut named = named
        .map(|value| value.to_str().unwrap_or_default())
        .chain(request.uri().authority().map(Authority::as_str));
    named.any(|host| host.split(',').any(|host| pages.is_at(host.trim())))
}

/// Runs the call in a task of its own, so that a caller who disconnects does not cancel it halfway.
async fn respond(
    forwarder: Arc<Forwarder>,
    request_id: RequestId,
    request: (CalledEndpoint, Request<Body>),
) -> Result<Response, ApiError> {
    let disconnected = CancellationToken::new();
    let _cancels_when_dropped = disconnected.clone().drop_guard();
    // The call counts as one in flight until its answer begins, even if the caller disconnects before.
    let in_flight = request.1.extensions().get::<CallInFlight>().cloned();
    // Boxed, because it is large and would be copied on its way into its task.
    let run = Box::pin(run(Arc::clone(&forwarder), request_id, request, disconnected));
    let call = forwarder.tasks.spawn(async move {
        let _in_flight = in_flight;
        run.await
    });
    call.await.unwrap_or_else(|panic| Err(ApiError::internal(format!("the task of a call failed: {panic}"))))
}
