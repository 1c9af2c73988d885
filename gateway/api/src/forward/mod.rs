//! The forward endpoint: a call goes to the provider and back, unaltered, metered and charged exactly once.
//!
//! Invariant: nothing of the provider's answer reaches the caller before the call's `RequestOpened` is durable, and
//! the end of the answer not before its settlement is.

mod credential;
mod headers;
mod keyed;
mod metadata;
mod metered_body;
mod places;
mod prepare;
mod request_body;
mod settlement;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use farthing_core::command::{Failed, Opened, Settled};
use farthing_core::event::{FailureReason, ProviderKeyType};
use farthing_core::idempotency::ClaimId;
use farthing_core::ids::{MerchantId, RequestId};
use farthing_core::meter::OnDisconnect;
use farthing_egress::{AddressGuard, Connector, connector};
use farthing_log::appender::ClaimEnd;
use http::header::{ALLOW, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::keyed::{Begun, Keyed};
use self::metered_body::{Answer, BodyEnd, MeteredBody};
use self::places::{Place, Places};
use self::prepare::{Asker, Call, prepare};
use self::request_body::{RequestBody, Unsent};
use self::settlement::{End, settle, until_durable};
use self::usage::{ChunkFilter, Scanner, Shape};
use crate::app::App;
use crate::error::{ApiError, BillingError, ForwardError, ProtocolError};
use crate::headers::SERVICE_REQUEST_ID;
use crate::openapi::also_at;

/// How long an answer is waited for, or read on, after its caller has gone.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);

/// Idle connections kept per provider.
const MAX_IDLE_PER_HOST: usize = 512;

/// How long an idle connection is kept.
const IDLE_CONNECTION: Duration = Duration::from_mins(1);

/// Forwards calls.
pub(crate) struct Forwarder {
    pub(crate) app: Arc<App>,
    client: Client<Connector, RequestBody>,
    guard: Arc<AddressGuard>,
    /// Calls in flight and settlements under way; all are waited for at the end.
    pub(crate) tasks: TaskTracker,
    /// This process stops: what has not come by now is not waited for, but still settled.
    hurry: CancellationToken,
    /// Ends what cannot be waited for any longer, settlements included.
    abort: CancellationToken,
    /// For answers whose callers have gone.
    places: Places,
    /// The same for calls on a key of this instance: no other call takes a place from what the instance has to pay.
    managed_places: Places,
}

impl Forwarder {
    pub(crate) fn new(
        app: Arc<App>,
        guard: Arc<AddressGuard>,
        tls: rustls::ClientConfig,
        tasks: TaskTracker,
        hurry: CancellationToken,
        abort: CancellationToken,
    ) -> Self {
        let connector = connector(&guard, tls, app.timeouts.connect);
        let client = Client::builder(hyper_util::rt::TokioExecutor::new())
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .build(connector);
        Self {
            app,
            client,
            guard,
            tasks,
            hurry,
            abort,
            places: Places::default(),
            managed_places: Places::default(),
        }
    }

    /// Ends when nobody waits for an answer any more and it has been waited for on the caller's behalf all the same:
    /// for a while, and only while there is a place.
    async fn waited_enough_for(&self, gone: CancellationToken, id: CallId) {
        gone.cancelled().await;
        if let Some(_place) = self.place(id) {
            tokio::time::sleep(DRAIN_TIMEOUT).await;
        }
    }

    /// A place for a call whose caller has gone, unless its meter cancels such calls. Without one the provider is left, and the call charged what was
    /// reported so far, as `partial`; where nothing was, it ends as `caller_gone`.
    fn place(&self, id: CallId) -> Option<Place> {
        let CallId { request_id, merchant_id, on_disconnect, provider_key_type } = id;
        match on_disconnect {
            OnDisconnect::Complete => {}
            OnDisconnect::Cancel => return None,
        }
        let places = match provider_key_type {
            ProviderKeyType::Managed => &self.managed_places,
            ProviderKeyType::Unmanaged => &self.places,
        };
        let place = places.take(merchant_id);
        if place.is_none() {
            tracing::warn!(%request_id, %merchant_id, "no place to read on for a caller who has gone");
        }
        place
    }
}

/// The methods that are forwarded.
const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// The forward endpoint, with or without a slash at its end: client libraries produce both.
pub(crate) fn routes() -> OpenApiRouter<Arc<Forwarder>> {
    let (schemas, paths, _) = routes!(forward);
    // Whatever the method: the handler itself refuses those that are not forwarded.
    OpenApiRouter::default().routes(also_at("/forward", "/forward/", (schemas, paths, any(forward))))
}

/// Forwards the call to the URL `u`, meters it and charges it.
///
/// The method, further query parameters, headers and the body reach the provider unchanged, its answer comes back
/// unchanged; its end comes when the charge is durable. Where a stream on a key of this instance does not ask for its
/// usage, the gateway asks in the caller's place and keeps the chunk that tells it. What carries the credential, `u`, `metadata` and `x-service-*`
/// do not reach the provider. A provider's own errors pass through, whatever their status and body.
#[utoipa::path(
    method(get, head, post, put, patch, delete), path = "/forward", operation_id = "forward", tag = "forward",
    security(
        ("forwardToken" = []),
        ("forwardXApiKey" = []),
        ("forwardXGoogApiKey" = []),
        ("forwardXiApiKey" = []),
        ("forwardKeyParameter" = []),
    ),
    params(
        ("u" = String, Query, description = "The URL to forward to."),
        ("metadata" = Option<String>, Query, description = "Metadata of the request: a JSON object of strings."),
        ("x-service-metadata" = Option<String>, Header, description = "The same in a header."),
    ),
    request_body(content_type = "*/*", description = "What the provider expects."),
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
    let request_id = RequestId::new(forwarder.app.mint.next(forwarder.app.now()));
    let mut response = if METHODS.contains(request.method()) {
        answer(forwarder, request_id, request).await
    } else {
        let allow = [(ALLOW, METHODS.map(|method| method.to_string()).join(", "))];
        (allow, ApiError::Protocol(ProtocolError::MethodNotAllowed)).into_response()
    };
    let value = HeaderValue::try_from(request_id.to_string()).expect("an id is ASCII");
    // An answer that is given again names the call that it was first given to.
    response.headers_mut().entry(SERVICE_REQUEST_ID).or_insert(value);
    response
}

async fn answer(forwarder: Arc<Forwarder>, request_id: RequestId, request: Request<Body>) -> Response {
    // In a task of its own, so that a caller who goes away leaves nothing half done.
    let gone = CancellationToken::new();
    let _caller_is_there = gone.clone().drop_guard();
    let call = forwarder.tasks.spawn(carry(Arc::clone(&forwarder), request_id, request, gone));
    match call.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => error.into_response(),
        Err(panic) => ApiError::internal(format!("a call ended early: {panic}")).into_response(),
    }
}

/// A call that is open.
#[derive(Debug, Clone, Copy)]
struct CallId {
    request_id: RequestId,
    /// Whose call.
    merchant_id: MerchantId,
    /// What becomes of it when its caller goes, by its meter.
    on_disconnect: OnDisconnect,
    /// Whose provider key it is made with.
    provider_key_type: ProviderKeyType,
}

async fn carry(
    forwarder: Arc<Forwarder>,
    request_id: RequestId,
    request: Request<Body>,
    gone: CancellationToken,
) -> Result<Response, ApiError> {
    let Call { command, outgoing, method, shape, keyed, usage_asked_by } =
        prepare(&forwarder, request_id, request).await?;
    let provider_key_type = command.provider_key_type;
    let begun = match &keyed {
        None => forwarder.app.ledger.submit(command).await.map(Begun::Now).map_err(ApiError::from),
        Some(keyed) => keyed.open(&forwarder.app, command).await,
    };
    let opened = match begun {
        Ok(Begun::Now(opened)) => opened,
        Ok(Begun::Before(given_before)) => return Ok(given_before),
        Err(refused) => {
            if let ApiError::Billing(BillingError::InsufficientBalance {
                needed,
                auto_recharge: Some(short),
                ..
            }) = refused
            {
                forwarder.app.payments.auto_recharge(short, needed).await;
            }
            return Err(refused);
        }
    };
    let Opened { merchant_id, on_disconnect, .. } = opened;
    let id = CallId { request_id, merchant_id, on_disconnect, provider_key_type };
    let mut connected = true;
    let answered = tokio::select! {
        answered = forwarder.client.request(outgoing) => answered.map_err(|error| {
            connected = !error.is_connect();
            why_unanswered(&error)
        }),
        () = tokio::time::sleep(forwarder.app.timeouts.answer) => {
            Err((FailureReason::ProviderTimeout, ApiError::Forward(ForwardError::ProviderTimeout)))
        }
        // Nobody is left to read the error.
        () = forwarder.waited_enough_for(gone, id) => Err((FailureReason::CallerGone, ApiError::Forward(ForwardError::ProviderTimeout))),
        () = forwarder.hurry.cancelled() => Err((FailureReason::Abandoned, ApiError::Forward(ForwardError::ProviderTimeout))),
    };
    let (reason, error) = match answered {
        Ok(response) => {
            return pass_back(forwarder, id, &method, shape, keyed, usage_asked_by, response).await;
        }
        Err(unanswered) => unanswered,
    };
    let closing = keyed.filter(|_| !connected).map(|keyed| keyed.release());
    settled(&forwarder, request_id, Settled::Failed(Failed::because(reason)), closing).await?;
    Err(error)
}

async fn pass_back(
    forwarder: Arc<Forwarder>,
    id: CallId,
    method: &Method,
    shape: Shape,
    keyed: Option<Keyed>,
    usage_asked_by: Asker,
    response: http::Response<Incoming>,
) -> Result<Response, ApiError> {
    let (mut parts, upstream) = response.into_parts();
    let scanner = Scanner::new(shape, &parts.headers);
    let framed = parts.headers.contains_key(CONTENT_LENGTH) || parts.headers.contains_key(TRANSFER_ENCODING);
    let body_end = if framed { BodyEnd::WebhookNotice } else { BodyEnd::ByClosing };
    parts.headers = headers::to_caller(parts.headers);
    parts.version = Version::HTTP_11;
    let alters = usage_asked_by == Asker::Gateway
        && parts.status.is_success()
        && headers::tell_of_plain_events(&parts.headers);
    let filter = alters.then(|| {
        parts.headers.remove(CONTENT_LENGTH);
        ChunkFilter::new()
    });
    let keeper = keyed.map(|keyed| keyed.keeper(parts.status, &parts.headers));
    let body = if upstream.is_end_stream() || *method == Method::HEAD {
        // Nothing follows the head, so the head is the end.
        let closing = keeper.and_then(|keeper| keeper.kept(&forwarder.app.server_key));
        let ended = settle(parts.status, scanner.report(), End::Whole);
        settled(&forwarder, id.request_id, ended, closing).await?;
        Body::empty()
    } else {
        let status = parts.status;
        let left = upstream.size_hint().exact();
        Body::new(MeteredBody::new(Answer {
            forwarder,
            id,
            status,
            upstream,
            scanner,
            filter,
            keeper,
            left,
            body_end,
        }))
    };
    Ok(Response::from_parts(parts, body))
}

async fn settled(
    forwarder: &Forwarder,
    request_id: RequestId,
    settled: Settled,
    closing: Option<(ClaimId, ClaimEnd)>,
) -> Result<(), ApiError> {
    let app = Arc::clone(&forwarder.app);
    until_durable(app, request_id, settled, closing, forwarder.abort.clone())
        .await
        .map_err(|unsettled| ApiError::ledger_unavailable(unsettled.to_string()))
}

/// What the caller is told, and the log, when no answer came.
fn why_unanswered(error: &hyper_util::client::legacy::Error) -> (FailureReason, ApiError) {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(farthing_egress::Error::Forbidden) = error.downcast_ref() {
            return (FailureReason::AddressForbidden, ApiError::Forward(ForwardError::UrlForbidden));
        }
        if let Some(unsent) = error.downcast_ref() {
            let why = match unsent {
                Unsent::BrokenOff(_) => "ended early",
                Unsent::Silent => "did not come in time",
            };
            return (FailureReason::CallerGone, ApiError::issue(["body"], why));
        }
        source = error.source();
    }
    tracing::info!(%error, "a provider could not be reached");
    (FailureReason::ProviderUnreachable, ApiError::Forward(ForwardError::ProviderUnreachable))
}
