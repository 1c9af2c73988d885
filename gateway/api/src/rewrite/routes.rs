//! The route of the rewrite endpoint and its description in the OpenAPI document.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{OriginalUri, State};
use axum::response::Response;
use axum::routing::any;
use http::Request;
use utoipa::IntoResponses;
use utoipa::openapi::RefOr;
use utoipa::openapi::response::Response as Described;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::forward::{CalledEndpoint, Forwarder, answer};
use crate::model_endpoints::{RequestOfAFormat, any_method, described};

/// The rewrite endpoint.
pub(crate) fn routes() -> OpenApiRouter<Arc<Forwarder>> {
    OpenApiRouter::default().routes(any_method(routes!(rewrite), any(rewrite)))
}

/// The responses of the endpoint.
struct Responses;

impl IntoResponses for Responses {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        described(&[("400", "conversion_unsupported forward_url_forbidden")])
    }
}

/// Calls the provider at the URL in the path, in another format than its own.
///
/// The client speaks `format`, the provider its own; both are converted. The URL may be percent-encoded or raw, and
/// without its scheme, which is https then. What a client library appends (`/chat/completions`, `/v1/messages`,
/// `/v1beta/models/…:generateContent`) is cut off only if what remains is itself an endpoint of a format. The call is
/// limited, metered and charged as a forwarded call is.
#[utoipa::path(
    method(post), path = "/rewrite/{format}/{*url}", operation_id = "rewrite", tag = "forward",
    security(("forwardToken" = []), ("forwardXApiKey" = []), ("forwardXGoogApiKey" = []), ("forwardXiApiKey" = []),
        ("forwardApiKey" = []), ("forwardKeyParameter" = [])),
    params(
        ("format" = String, Path, description = "The client's format: `openai`, `anthropic` or `google`."),
        ("url" = String, Path, description = "The provider's URL. Raw slashes in it are allowed."),
        ("metadata" = Option<String>, Query, description = "Metadata of the request: a JSON object of strings."),
        ("x-service-metadata" = Option<String>, Header, description = "Metadata as a header. It overrides keys of the query parameter."),
    ),
    request_body(content = RequestOfAFormat, description = "A request in the client's format."),
    responses(Responses),
)]
async fn rewrite(
    State(forwarder): State<Arc<Forwarder>>,
    OriginalUri(uri): OriginalUri,
    mut request: Request<Body>,
) -> Response {
    // The whole path, with the prefix of all routes.
    *request.uri_mut() = uri;
    answer(forwarder, CalledEndpoint::Rewrite, request).await
}
