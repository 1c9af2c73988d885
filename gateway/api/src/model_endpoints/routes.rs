//! The routes of the model endpoints and their descriptions in the OpenAPI document.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{MethodRouter, any};
use http::Request;
use utoipa::openapi::response::{Response as Described, ResponseBuilder};
use utoipa::openapi::{Content, RefOr};
use utoipa::{IntoResponses, ToSchema};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::ModelEndpoint;
use crate::forward::{CalledEndpoint, Forwarder, answer};

/// The model endpoints.
pub(crate) fn routes() -> OpenApiRouter<Arc<Forwarder>> {
    OpenApiRouter::default()
        .routes(any_method(routes!(chat_completions), any(chat_completions)))
        .routes(any_method(routes!(responses), any(responses)))
        .routes(any_method(routes!(embeddings), any(embeddings)))
        .routes(any_method(routes!(messages), any(messages)))
}

/// A described route that takes any method; the handler refuses those that it does not have.
pub(crate) fn any_method<S>(
    (schemas, paths, _): UtoipaMethodRouter<S>,
    handler: MethodRouter<S>,
) -> UtoipaMethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    (schemas, paths, handler)
}

/// A request in the format of the endpoint.
#[derive(ToSchema)]
pub(crate) struct RequestOfAFormat {}

/// The errors of calls that are converted.
const ERRORS: [(&str, &str); 12] = [
    (
        "401",
        "auth_header_missing auth_header_invalid secret_key_invalid connection_secret_invalid \
             product_secret_invalid spend_key_invalid spend_key_expired",
    ),
    ("402", "insufficient_balance spend_limit_exceeded"),
    ("403", "spend_key_paused model_not_allowed provider_not_allowed"),
    ("404", "customer_not_found meter_not_found"),
    ("413", "body_too_large"),
    ("415", "content_type_unsupported"),
    ("429", "rate_limit_exceeded request_limit_exceeded"),
    ("500", "rest_internal_server_error"),
    ("502", "provider_unreachable"),
    ("503", "ledger_unavailable"),
    ("504", "provider_timeout"),
    (
        "400",
        "validation_error forward_token_json_invalid forward_url_invalid metadata_invalid model_not_priced \
         provider_key_missing",
    ),
];

/// The provider's answers in the caller's format, and the errors of Farthing's own with `more` beside those of all such
/// calls.
pub(crate) fn described(more: &[(&'static str, &'static str)]) -> BTreeMap<String, RefOr<Described>> {
    let answer = || {
        let content = Content::new::<RefOr<utoipa::openapi::Schema>>(None);
        let answer = ResponseBuilder::new().description("The provider's answer, in the caller's format.");
        RefOr::T(
            answer.content("application/json", content.clone()).content("text/event-stream", content).build(),
        )
    };
    let mut codes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (status, names) in ERRORS.iter().chain(more) {
        codes.entry(status).or_default().push(names);
    }
    let errors = codes.into_iter().map(|(status, codes)| {
        (status.to_owned(), RefOr::T(ResponseBuilder::new().description(codes.join(" ")).build()))
    });
    errors.chain([("200".to_owned(), answer()), ("default".to_owned(), answer())]).collect()
}

/// The responses of endpoints whose calls are converted.
struct Converted;

impl IntoResponses for Converted {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        described(&[("404", "model_not_found"), ("400", "conversion_unsupported")])
    }
}

/// The responses of embeddings.
struct Unconverted;

impl IntoResponses for Unconverted {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        described(&[("404", "model_not_found")])
    }
}

/// Calls a model in the format of OpenAI's Chat Completions.
///
/// The model's name chooses the provider by the catalogue; `provider/model` names one. A provider of another format is
/// called through a conversion. The call is limited, metered and charged as a forwarded call is.
#[utoipa::path(
    method(post), path = "/chat/completions", operation_id = "create_chat_completion", tag = "models",
    security(("forwardToken" = []), ("forwardXApiKey" = []), ("forwardXGoogApiKey" = []), ("forwardXiApiKey" = []),
        ("forwardApiKey" = []), ("forwardKeyParameter" = [])),
    params(
        ("metadata" = Option<String>, Query, description = "Metadata of the request: a JSON object of strings."),
        ("x-service-metadata" = Option<String>, Header, description = "Metadata as a header. It overrides keys of the query parameter."),
    ),
    request_body(content = RequestOfAFormat, description = "A request of Chat Completions."),
    responses(Converted),
)]
async fn chat_completions(State(forwarder): State<Arc<Forwarder>>, request: Request<Body>) -> Response {
    answer(forwarder, CalledEndpoint::Model(ModelEndpoint::ChatCompletions), request).await
}

/// Calls a model in the format of OpenAI's Responses.
///
/// The provider is chosen as for Chat Completions. One without this format is called through a conversion.
#[utoipa::path(
    method(post), path = "/responses", operation_id = "create_response", tag = "models",
    security(("forwardToken" = []), ("forwardXApiKey" = []), ("forwardXGoogApiKey" = []), ("forwardXiApiKey" = []),
        ("forwardApiKey" = []), ("forwardKeyParameter" = [])),
    params(
        ("metadata" = Option<String>, Query, description = "Metadata of the request: a JSON object of strings."),
        ("x-service-metadata" = Option<String>, Header, description = "Metadata as a header. It overrides keys of the query parameter."),
    ),
    request_body(content = RequestOfAFormat, description = "A request of Responses."),
    responses(Converted),
)]
async fn responses(State(forwarder): State<Arc<Forwarder>>, request: Request<Body>) -> Response {
    answer(forwarder, CalledEndpoint::Model(ModelEndpoint::Responses), request).await
}

/// Makes embeddings in OpenAI's format.
///
/// The provider is chosen as for Chat Completions. Embeddings are not converted: they are those of
/// providers that offer this format.
#[utoipa::path(
    method(post), path = "/embeddings", operation_id = "create_embedding", tag = "models",
    security(("forwardToken" = []), ("forwardXApiKey" = []), ("forwardXGoogApiKey" = []), ("forwardXiApiKey" = []),
        ("forwardApiKey" = []), ("forwardKeyParameter" = [])),
    params(
        ("metadata" = Option<String>, Query, description = "Metadata of the request: a JSON object of strings."),
        ("x-service-metadata" = Option<String>, Header, description = "Metadata as a header. It overrides keys of the query parameter."),
    ),
    request_body(content = RequestOfAFormat, description = "A request of embeddings."),
    responses(Unconverted),
)]
async fn embeddings(State(forwarder): State<Arc<Forwarder>>, request: Request<Body>) -> Response {
    answer(forwarder, CalledEndpoint::Model(ModelEndpoint::Embeddings), request).await
}

/// Calls a model in the format of Anthropic's Messages.
///
/// The provider is chosen as for Chat Completions. One of another format is called through a conversion.
#[utoipa::path(
    method(post), path = "/messages", operation_id = "create_message", tag = "models",
    security(("forwardToken" = []), ("forwardXApiKey" = []), ("forwardXGoogApiKey" = []), ("forwardXiApiKey" = []),
        ("forwardApiKey" = []), ("forwardKeyParameter" = [])),
    params(
        ("metadata" = Option<String>, Query, description = "Metadata of the request: a JSON object of strings."),
        ("x-service-metadata" = Option<String>, Header, description = "Metadata as a header. It overrides keys of the query parameter."),
    ),
    request_body(content = RequestOfAFormat, description = "A request of Messages."),
    responses(Converted),
)]
async fn messages(State(forwarder): State<Arc<Forwarder>>, request: Request<Body>) -> Response {
    answer(forwarder, CalledEndpoint::Model(ModelEndpoint::Messages), request).await
}
