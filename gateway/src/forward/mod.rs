//! The forward endpoint: a call goes to the provider and back, unaltered, metered and charged exactly once.
//!
//! Invariant: nothing of the provider's answer reaches the caller before the call's `RequestOpened` is durable, and
//! the end of the answer not before its settlement is.

mod address;
mod credential;
mod dialer;
mod headers;
mod metadata;
mod metered_body;
mod request_body;
mod settlement;
mod target;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use chrono::Utc;
use farthing_ledger::command::{Failed, OpenRequest, Settled};
use farthing_ledger::event::{FailureReason, ProviderKeyType};
use farthing_ledger::ids::RequestId;
use farthing_ledger::pricing::SizeHint;
use http::header::{ALLOW, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::address::AddressGuard;
use self::dialer::Dialer;
use self::headers::Slot;
use self::metered_body::{BodyEnd, MeteredBody};
use self::request_body::{ReadAhead, RequestBody, read_ahead};
use self::settlement::{End, settle, until_durable};
use self::target::{KeyParameter, Query};
use self::usage::{Scanner, Shape, read_request};
use crate::app::App;
use crate::error::ApiError;
use crate::rest::SERVICE_REQUEST_ID;

/// How long a provider may think before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);

/// How long the part of a body that is read ahead may take to come.
const READ_AHEAD_TIMEOUT: Duration = Duration::from_mins(1);

/// Answers read on after their callers have gone, at once.
const MAX_DRAINS: usize = 1_000;

/// How long an answer is waited for, or read on, after its caller has gone.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);

/// Idle connections kept per provider.
const MAX_IDLE_PER_HOST: usize = 512;

/// How long an idle connection is kept.
const IDLE_CONNECTION: Duration = Duration::from_mins(1);

/// A host that speaks a built-in provider's dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderHost {
    /// The provider's name, for example `openai`.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Forwards calls.
pub(crate) struct Forwarder {
    pub(crate) app: Arc<App>,
    client: Client<HttpsConnector<Dialer>, RequestBody>,
    guard: Arc<AddressGuard>,
    provider_hosts: Vec<ProviderHost>,
    /// Calls in flight and settlements under way; all are waited for at the end.
    pub(crate) tasks: TaskTracker,
    /// Ends what cannot be waited for.
    abort: CancellationToken,
    drains: Semaphore,
}

impl Forwarder {
    pub(crate) fn new(
        app: Arc<App>,
        guard: AddressGuard,
        provider_hosts: Vec<ProviderHost>,
        tls: rustls::ClientConfig,
        tasks: TaskTracker,
        abort: CancellationToken,
    ) -> Self {
        let guard = Arc::new(guard);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(Dialer::new(Arc::clone(&guard)));
        let client = Client::builder(hyper_util::rt::TokioExecutor::new())
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .build(connector);
        let drains = Semaphore::new(MAX_DRAINS);
        Self { app, client, guard, provider_hosts, tasks, abort, drains }
    }

    /// Ends when nobody waits for an answer any more and it has been waited for on the caller's behalf all the same:
    /// for a while, and only so many at once.
    async fn waited_enough_for(&self, gone: CancellationToken) {
        gone.cancelled().await;
        if let Ok(_permit) = self.drains.try_acquire() {
            tokio::time::sleep(DRAIN_TIMEOUT).await;
        }
    }

    fn provider_of(&self, target: &Uri) -> &str {
        let (host, port) = target::destination(target);
        let is_it = |known: &&ProviderHost| known.port == port && target::plain_host(&known.host) == host;
        self.provider_hosts.iter().find(is_it).map_or("other", |known| &known.name)
    }
}

/// The methods that are forwarded.
const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// `ANY /v1/forward?u=…`.
pub(crate) async fn forward(State(forwarder): State<Arc<Forwarder>>, request: Request<Body>) -> Response {
    let request_id = RequestId::new(forwarder.app.mint.next(Utc::now()));
    let mut response = if METHODS.contains(request.method()) {
        answer(forwarder, request_id, request).await
    } else {
        let allow = [(ALLOW, METHODS.map(|method| method.to_string()).join(", "))];
        (allow, ApiError::MethodNotAllowed).into_response()
    };
    let value = HeaderValue::try_from(request_id.to_string()).expect("an id is ASCII");
    response.headers_mut().insert(SERVICE_REQUEST_ID, value);
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
        Err(panic) => ApiError::Internal(format!("a call ended early: {panic}")).into_response(),
    }
}

/// What is known of a call before the ledger is asked.
struct Call {
    command: OpenRequest,
    outgoing: Request<RequestBody>,
    method: Method,
    shape: Shape,
}

async fn carry(
    forwarder: Arc<Forwarder>,
    request_id: RequestId,
    request: Request<Body>,
    gone: CancellationToken,
) -> Result<Response, ApiError> {
    let Call { command, outgoing, method, shape } = prepare(&forwarder, request_id, request).await?;
    forwarder.app.ledger.submit(command).await?;
    let answered = tokio::select! {
        answered = forwarder.client.request(outgoing) => answered.map_err(|error| why_unanswered(&error)),
        () = tokio::time::sleep(ANSWER_TIMEOUT) => Err((FailureReason::ProviderTimeout, ApiError::ProviderTimeout)),
        // Nobody is left to read the error.
        () = forwarder.waited_enough_for(gone) => Err((FailureReason::CallerGone, ApiError::ProviderTimeout)),
    };
    let (reason, error) = match answered {
        Ok(response) => return pass_back(forwarder, request_id, &method, shape, response).await,
        Err(unanswered) => unanswered,
    };
    settled(&forwarder, request_id, Settled::Failed(Failed::because(reason))).await?;
    Err(error)
}

/// Reads the call: who, where to, what for. Nothing has happened yet, so any refusal leaves nothing behind.
async fn prepare(
    forwarder: &Forwarder,
    request_id: RequestId,
    request: Request<Body>,
) -> Result<Call, ApiError> {
    let app = &forwarder.app;
    let (parts, body) = request.into_parts();
    let query = Query::read(parts.uri.query().unwrap_or_default());
    let found = credential::find(&parts.headers, &query.keys, &app.server_key)?;
    // What stands in the log is the URL without the caller's own provider key.
    let recorded = target(&query, &found, None)?;
    let target = target(&query, &found, found.credential.provider_key.as_deref())?;
    if target::keys_within(&target).iter().any(|key| credential::is_ours(key)) {
        return Err(ApiError::ForwardUrlInvalid("holds a credential of this service"));
    }
    if let Some(address) = literal_address(&target)
        && !forwarder.guard.permits(address)
    {
        return Err(ApiError::ForwardUrlForbidden);
    }
    let metadata = metadata::read(&parts.headers, query.metadata.as_deref())?;

    let ReadAhead { body, whole, known_bytes } =
        tokio::time::timeout(READ_AHEAD_TIMEOUT, read_ahead(&parts.headers, body))
            .await
            .map_err(|_| ApiError::issue(["body"], "did not come in time"))?
            .map_err(|error| ApiError::issue(["body"], format!("cannot be read: {error}")))?;
    let asked = whole.as_deref().map(read_request).unwrap_or_default();

    let mut outgoing_headers = headers::to_provider(parts.headers, &found.slots);
    if let Some(key) = found.credential.provider_key.as_deref().filter(|_| found.slot != Slot::Query) {
        headers::set_provider_key(&mut outgoing_headers, found.slot, key).map_err(|_| {
            let issue = crate::error::Issue::new(["provider_key"], "cannot stand in a header");
            ApiError::ForwardTokenJsonInvalid(vec![issue])
        })?;
    }
    let provider = forwarder.provider_of(&target).to_owned();
    let shape = Shape::of(&provider);
    let mut endpoint = parts.method.to_string();
    endpoint.push(' ');
    endpoint.push_str(&recorded.to_string());
    let credential = found.credential;
    let command = OpenRequest {
        request_id,
        gateway_id: app.gateway_id,
        secret_key: credential.secret_key,
        customer: credential.customer,
        meter: credential.meter,
        billing: credential.billing,
        provider,
        // This instance holds no provider keys of its own: the caller's travels with the call.
        provider_key_type: ProviderKeyType::Unmanaged,
        endpoint,
        model: asked.model,
        metadata,
        size: SizeHint { max_output_tokens: asked.max_output_tokens, input_bytes: known_bytes },
        settings: app.settings,
        now: request_id.made_at(),
    };
    let mut outgoing = Request::new(body);
    *outgoing.method_mut() = parts.method.clone();
    *outgoing.uri_mut() = target;
    *outgoing.headers_mut() = outgoing_headers;
    let unsized_body = !outgoing.body().is_end_stream() && outgoing.body().size_hint().exact().is_none();
    if unsized_body && parts.method == Method::GET {
        // Not every GET is without a body; hyper sends one only when told.
        outgoing.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    *outgoing.version_mut() = Version::HTTP_11;
    Ok(Call { command, outgoing, method: parts.method, shape })
}

fn target(query: &Query<'_>, found: &credential::Found, provider_key: Option<&str>) -> Result<Uri, ApiError> {
    let key = if found.slots.contains(&Slot::Query) {
        KeyParameter::IsCredential
    } else {
        KeyParameter::IsProviders
    };
    let provider_key = provider_key.filter(|_| found.slot == Slot::Query);
    query.target(key, provider_key).map_err(|error| match error {
        target::Error::Missing => ApiError::ForwardUrlMissing,
        target::Error::Invalid(why) => ApiError::ForwardUrlInvalid(why),
    })
}

/// The address that the URL itself names, if it names one: it can be refused without a request on record. The
/// dialer checks every address again, whatever it came from.
fn literal_address(target: &Uri) -> Option<std::net::IpAddr> {
    target.host()?.trim_matches(['[', ']']).parse().ok()
}

async fn pass_back(
    forwarder: Arc<Forwarder>,
    request_id: RequestId,
    method: &Method,
    shape: Shape,
    response: http::Response<Incoming>,
) -> Result<Response, ApiError> {
    let (mut parts, upstream) = response.into_parts();
    let scanner = Scanner::new(shape, &parts.headers);
    let framed = parts.headers.contains_key(CONTENT_LENGTH) || parts.headers.contains_key(TRANSFER_ENCODING);
    let framing = if framed { BodyEnd::Told } else { BodyEnd::ByClosing };
    parts.headers = headers::to_caller(parts.headers);
    parts.version = Version::HTTP_11;
    let body = if upstream.is_end_stream() || *method == Method::HEAD {
        // Nothing follows the head, so the head is the end.
        settled(&forwarder, request_id, settle(parts.status, scanner.report(), End::Whole)).await?;
        Body::empty()
    } else {
        Body::new(MeteredBody::new(forwarder, request_id, parts.status, upstream, scanner, framing))
    };
    Ok(Response::from_parts(parts, body))
}

async fn settled(forwarder: &Forwarder, request_id: RequestId, settled: Settled) -> Result<(), ApiError> {
    let ledger = forwarder.app.ledger.clone();
    until_durable(ledger, request_id, settled, forwarder.abort.clone())
        .await
        .map_err(|unsettled| ApiError::LedgerUnavailable(unsettled.to_string()))
}

/// What the caller is told, and the log, when no answer came.
fn why_unanswered(error: &hyper_util::client::legacy::Error) -> (FailureReason, ApiError) {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(dialer::Error::Forbidden) = error.downcast_ref() {
            return (FailureReason::AddressForbidden, ApiError::ForwardUrlForbidden);
        }
        if error.downcast_ref::<axum::Error>().is_some() {
            let gone = ApiError::issue(["body"], "ended early");
            return (FailureReason::CallerGone, gone);
        }
        source = error.source();
    }
    tracing::info!(%error, "a provider could not be reached");
    (FailureReason::ProviderUnreachable, ApiError::ProviderUnreachable)
}
