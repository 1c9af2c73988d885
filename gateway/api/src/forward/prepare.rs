//! What is read of a call before the ledger is asked: who, where to, what for. Nothing has happened yet, so any refusal
//! leaves nothing behind.

use std::net::IpAddr;

use axum::body::Body;
use farthing_core::command::{Caller, OpenRequest};
use farthing_core::ids::RequestId;
use farthing_core::pricing::SizeHint;
use http::header::TRANSFER_ENCODING;
use http::{HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;

use super::headers::{self, Slot};
use super::keyed::{self, Asked, Keyed};
use super::request_body::{Ahead, ReadAhead, RequestBody, read_ahead};
use super::usage::{Shape, asking_for_usage, priced_apart, read_request};
use super::{Forwarder, credential, metadata};
use crate::error::{ApiError, ForwardError, Issue};
use crate::providers::{self, CallersKey, Key};
use crate::target::{self, KeyParameter, Query};

/// A call, read.
pub(super) struct Call {
    /// What the ledger is asked.
    pub(super) command: OpenRequest,
    /// What the provider is asked.
    pub(super) outgoing: Request<RequestBody>,
    /// Its method.
    pub(super) method: Method,
    /// How the provider reports usage.
    pub(super) shape: Shape,
    /// The idempotency key it was made under.
    pub(super) keyed: Option<Keyed>,
    /// Who asked for the usage of a stream?
    pub(super) usage_asked_by: Asker,
}

/// Who asked for the usage of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The caller, or nobody: the answer passes as it is.
    Caller,
    /// This gateway, in the caller's place: the caller does not see the chunk that tells it.
    Gateway,
}

/// Reads the call.
pub(super) async fn prepare(
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
        return Err(ApiError::Forward(ForwardError::UrlInvalid("holds a credential of this service")));
    }
    if let Some(address) = literal_address(&target)
        && !forwarder.guard.permits(address)
    {
        return Err(ApiError::Forward(ForwardError::UrlForbidden));
    }
    let metadata = metadata::read(&parts.headers, query.metadata.as_deref())?;

    let key = keyed::key(&parts.method, &parts.headers)?.map(str::to_owned);
    let ahead = if key.is_some() { Ahead::Anything } else { Ahead::Json };
    let patience = app.timeouts.body;
    let ReadAhead { mut body, whole, known_bytes, known } =
        tokio::time::timeout(patience, read_ahead(&parts.headers, body, ahead, patience))
            .await
            .map_err(|_| ApiError::issue(["body"], "did not come in time"))?
            .map_err(|error| ApiError::issue(["body"], format!("cannot be read: {error}")))?;
    let asked = whole.as_deref().map(read_request).unwrap_or_default();

    let mut outgoing_headers = headers::to_provider(parts.headers, &found.slots);
    let own_keys = headers::own_keys(&outgoing_headers);
    if let Some(key) = found.credential.provider_key.as_deref().filter(|_| found.slot != Slot::Query) {
        headers::set_provider_key(&mut outgoing_headers, found.slot, key).map_err(|_| {
            let issue = Issue::new(["provider_key"], "cannot stand in a header");
            ApiError::Forward(ForwardError::TokenJsonInvalid(vec![issue]))
        })?;
    }
    let provider = app.providers.at(&target);
    let brings_key = found.credential.provider_key.is_some()
        || !own_keys.is_empty()
        || !target::keys_within(&target).is_empty();
    let callers_key = if brings_key { CallersKey::Present } else { CallersKey::Absent };
    let provider_key = app
        .providers
        .key(provider, callers_key)
        .map_err(|_| ApiError::Forward(ForwardError::ProviderKeyMissing))?;
    let on_spend_key = matches!(found.credential.caller, Caller::SpendKey(_));
    let ambiguous = match provider_key {
        Key::Managed(_) => asked.ambiguous,
        Key::Callers => asked.ambiguous.filter(|name| on_spend_key && *name == "model"),
    };
    if let Some(name) = ambiguous {
        return Err(ApiError::issue([name], "stands more than once in the body"));
    }
    let mut usage_asked_by = Asker::Caller;
    if let Key::Managed(key) = provider_key {
        // With a key of this instance only what reports its usage is paid for.
        if asked.hides_usage && providers::tells_usage_when_asked(provider, &target) {
            let asking = whole.as_deref().and_then(asking_for_usage);
            let asking = asking.ok_or_else(|| ApiError::issue(["stream_options"], "must be an object"))?;
            headers::fit_altered_body(&mut outgoing_headers, asking.len());
            body = RequestBody::whole(asking.into());
            usage_asked_by = Asker::Gateway;
        }
        if asked.is_background {
            return Err(ApiError::issue(["background"], "must not be true"));
        }
        if let Some(name) = whole.as_deref().and_then(priced_apart) {
            return Err(ApiError::issue([name], "asks for what is not priced"));
        }
        outgoing_headers.remove("x-http-method-override");
        let (name, value) = providers::key_header(provider, &target, key);
        outgoing_headers.insert(name, value);
    }
    // Where the URL names the model, the provider looks nowhere else.
    let model = providers::model_within(&target).map(str::to_owned).or(asked.model);
    let list_price =
        app.providers.list_price(provider, provider_key, &parts.method, &target, model.as_deref());
    let provider_key_type = provider_key.key_type();
    let shape = Shape::of(provider.name);
    let provider = provider.name.to_owned();
    let mut endpoint = parts.method.to_string();
    endpoint.push(' ');
    endpoint.push_str(&target::without_keys(&recorded.to_string()));
    let credential = found.credential;
    let command = OpenRequest {
        request_id,
        gateway_id: app.gateway_id,
        caller: credential.caller,
        customer: credential.customer,
        meter: credential.meter,
        billing: credential.billing,
        provider,
        provider_key_type,
        endpoint,
        model,
        list_price,
        metadata,
        size: SizeHint { max_output_tokens: asked.max_output_tokens, input_bytes: known_bytes },
        settings: app.settings,
        now: request_id.made_at(),
    };
    let keyed = match key.zip(known) {
        Some((key, known)) => {
            let provider_key = credential.provider_key.as_deref();
            let asked = Asked {
                method: &parts.method,
                url: &recorded,
                provider_key,
                own_keys: &own_keys,
                body: &known,
            };
            Some(Keyed::new(app, &key, asked, &command).await?)
        }
        None => None,
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
    Ok(Call { command, outgoing, method: parts.method, shape, keyed, usage_asked_by })
}

fn target(query: &Query<'_>, found: &credential::Found, provider_key: Option<&str>) -> Result<Uri, ApiError> {
    let key = if found.slots.contains(&Slot::Query) {
        KeyParameter::IsCredential
    } else {
        KeyParameter::IsProviders
    };
    let provider_key = provider_key.filter(|_| found.slot == Slot::Query);
    query.target(key, provider_key).map_err(|error| match error {
        target::Error::Missing => ApiError::Forward(ForwardError::UrlMissing),
        target::Error::Invalid(why) => ApiError::Forward(ForwardError::UrlInvalid(why)),
    })
}

/// The address that the URL itself names, if it names one: it can be refused without a request on record. The
/// dialer checks every address again, whatever it came from.
fn literal_address(target: &Uri) -> Option<IpAddr> {
    target.host()?.trim_matches(['[', ']']).parse().ok()
}
