//! Reads and checks a call before it is opened in the ledger: the credential, the target, the body and the price. A
//! refusal here leaves no trace in the log.

use std::net::IpAddr;

use axum::body::Body;
use farthing_core::command::{Caller, OpenRequest};
use farthing_core::ids::RequestId;
use farthing_core::model_price::ListPrice;
use farthing_core::partition::Partition;
use farthing_worker::webhooks::LOOP_HEADER;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;

use super::call_trace::CallTrace;
use super::forwarder::Forwarder;
use super::headers::{self, KeyPlace, Slot};
use super::idempotent_call::{self, CallContent, IdempotentCall};
use super::request_body::{Ahead, ReadAhead, RequestBody, read_ahead};
use super::size;
use super::usage::{
    FormExtent, RequestedOptions, Shape, read_form, read_request, requesting_usage, unpriced_member,
};
use super::{credential, metadata};
use crate::caller_address::CallerAddress;
use crate::error::{ApiError, ForwardError, Issue};
use crate::known_keys::Owner;
use crate::providers::{BilledBy, CallersKey, Key, StreamUsage, Unpriced, UsageLimit};
use crate::serve::CallInFlight;
use crate::target::{self, KeyParameter, Query};

/// A call that is ready to be opened and sent.
pub(super) struct PreparedCall {
    /// The partition of the caller.
    pub(super) partition: Partition,
    /// The command that opens it.
    pub(super) command: OpenRequest,
    /// The request to the provider.
    pub(super) outgoing: Request<RequestBody>,
    pub(super) method: Method,
    /// How the provider reports usage.
    pub(super) shape: Shape,
    /// Its use of an idempotency key.
    pub(super) idempotent_call: Option<IdempotentCall>,
    /// The party that requested the usage of a stream.
    pub(super) usage_requested_by: UsageRequestedBy,
    /// The usage that it may report.
    pub(super) usage_limit: UsageLimit,
    /// Why it has no list price, if it has none.
    pub(super) unpriced: Option<Unpriced>,
}

/// The party that requested the usage of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsageRequestedBy {
    /// The caller, or neither. The answer passes unchanged.
    Caller,
    /// This gateway. The usage chunk is removed from the answer.
    Gateway,
}

/// Reads and checks the call. Its `trace` begins once it is known who makes it.
pub(super) async fn prepare(
    forwarder: &Forwarder,
    request_id: RequestId,
    request: Request<Body>,
    trace: &mut CallTrace,
) -> Result<PreparedCall, ApiError> {
    let app = &forwarder.app;
    let (parts, body) = request.into_parts();
    let address = CallerAddress::of_request(&parts);
    if let Some(name) = headers::is_of_a_browser_itself(&parts.headers) {
        let message = "must be that of a program's own request: nothing here is a page, a script or a worker";
        return Err(ApiError::issue([name], message));
    }
    if headers::is_of_a_webhook(&parts.headers) {
        let message = "must not name this service: a webhook's delivery cannot be forwarded";
        return Err(ApiError::issue([LOOP_HEADER.0], message));
    }
    let query = Query::read(parts.uri.query().unwrap_or_default());
    let found = credential::find(&parts.headers, &query.keys, &app.server_key)?;
    // The log records the URL without the caller's own provider key.
    let recorded = target(&query, &found, None)?;
    let provider = app.providers.at(&recorded);
    let key_place = provider.key_slot(&recorded).map_or(KeyPlace::Carrier(found.slot), KeyPlace::Providers);
    let authority = recorded.authority().map_or("", |authority| authority.as_str());
    let path_and_query = recorded.path_and_query().map_or("", |path| path.as_str());
    if credential::is_within(authority)
        || credential::is_within(path_and_query)
        || target::keys_within(&recorded).iter().any(|key| credential::is_ours(key))
    {
        return Err(ApiError::Forward(ForwardError::UrlInvalid("contains a credential of this service")));
    }
    if found.credential.provider_key.as_deref().is_some_and(credential::is_within) {
        let issue = Issue::new(["provider_key"], "must not be a credential of this service");
        return Err(ApiError::Forward(ForwardError::TokenJsonInvalid(vec![issue])));
    }
    let key_in_url =
        found.credential.provider_key.as_deref().filter(|_| key_place == KeyPlace::Carrier(Slot::Query));
    let target = target(&query, &found, key_in_url)?;
    if let Some(address) = literal_address(&target)
        && !forwarder.guard.permits(address)
    {
        return Err(ApiError::Forward(ForwardError::UrlForbidden));
    }
    let metadata = metadata::read(&parts.headers, query.metadata.as_deref())?;

    let Owner { partition, merchant_id } =
        app.known_keys.owner_of(&found.credential.caller, address, &app.ledger, &app.reads).await?;
    trace.authenticated(&app.traces, &parts, request_id);
    CallInFlight::belongs_to(merchant_id, &parts.extensions)?;
    let receiving = trace.stage("receive request");
    let turn = forwarder.turns.body_of(merchant_id);
    turn.step().await;

    let key = idempotent_call::key(&parts.method, &parts.headers)?.map(str::to_owned);
    // Elsewhere a form may be anything, and passes as it comes.
    let is_transcription = provider.shape(&target) == Shape::Transcription;
    let ahead = match (&key, is_transcription) {
        (Some(_), _) => Ahead::Any,
        (None, true) => Ahead::JsonOrForm,
        (None, false) => Ahead::Json,
    };
    let timeout = app.timeouts.body;
    let ReadAhead { mut body, json, form, known_bytes, fingerprint } =
        tokio::time::timeout(timeout, read_ahead(&parts.headers, body, ahead, turn, timeout))
            .await
            .map_err(|_| ApiError::issue(["body"], "did not come in time"))?
            .map_err(|error| ApiError::issue(["body"], format!("cannot be read: {error}")))?;
    drop(receiving);
    let _preparing = trace.stage("prepare");
    let on_spend_key = matches!(found.credential.caller, Caller::SpendKey(_));
    let form = form.filter(|_| is_transcription).and_then(|(bytes, extent)| {
        let content_type = parts.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        Some((read_form(content_type, &bytes, extent)?, extent))
    });
    let mut options = match (&json, &form) {
        (Some(json), _) => read_request(json),
        // What follows the beginning could name another model, which a list of models must not miss.
        (None, Some((form, extent))) if *extent == FormExtent::Whole || !on_spend_key => form.options.clone(),
        (None, _) => RequestedOptions::default(),
    };

    let mut outgoing_headers = headers::to_provider(parts.headers, &found.slots);
    if let Some(name) = credential::header_with_one(&outgoing_headers) {
        let message = "holds a credential of this service, which must not reach a provider; send it in one of its own \
                       slots alone";
        return Err(ApiError::issue([name.as_str()], message));
    }
    let own_keys = headers::own_keys(&outgoing_headers);
    if let Some(key) = found.credential.provider_key.as_deref().filter(|_| key_in_url.is_none()) {
        headers::set_provider_key(&mut outgoing_headers, key_place, key).map_err(|_| {
            let issue = Issue::new(["provider_key"], "cannot stand in a header");
            ApiError::Forward(ForwardError::TokenJsonInvalid(vec![issue]))
        })?;
    }
    let brings_key = found.credential.provider_key.is_some()
        || !own_keys.is_empty()
        || !target::keys_within(&target).is_empty();
    let callers_key = if brings_key { CallersKey::Present } else { CallersKey::Absent };
    let provider_key = app
        .providers
        .key(provider, callers_key)
        .map_err(|_| ApiError::Forward(ForwardError::ProviderKeyMissing))?;
    let ambiguous = match provider_key {
        Key::Managed(_) => options.ambiguous,
        // A spend key may be for some models only. One that is spelled otherwise is no model to it.
        Key::Callers => (on_spend_key && options.repeats_model).then_some("model"),
    };
    if let Some(name) = ambiguous {
        return Err(ApiError::issue([name], "must be given once in the body, in exactly this spelling"));
    }
    // A provider ignores the body's model if the URL names one.
    let model = provider.model_within(&target).or_else(|| options.model.take());
    let priced = app.providers.list_price(provider, provider_key, &parts.method, &target, model.as_deref());
    let (list_price, unpriced) = match priced {
        Ok(list_price) => (list_price, None),
        Err(why) => (ListPrice::Unlisted, Some(why)),
    };
    let limits = app.providers.max_tokens(provider, model.as_deref());
    let size = size::of_call(&options, json.as_deref().filter(|_| on_spend_key), known_bytes, limits);
    let mut usage_requested_by = UsageRequestedBy::Caller;
    let mut usage_limit = UsageLimit::default();
    if let Key::Managed(key) = provider_key {
        usage_limit = app.providers.usage_limit(provider, model.as_deref(), options.answers);
        // The instance pays for calls on its own keys, so these must report their usage and have a list price.
        let stream_usage = provider.stream_usage(&target);
        if options.hides_usage && stream_usage == StreamUsage::Unknown {
            let message = "must be false: this provider is not known to report the usage of such a stream";
            return Err(ApiError::issue(["stream"], message));
        }
        if options.hides_usage && stream_usage == StreamUsage::OnRequest {
            let altered = json.as_deref().and_then(requesting_usage);
            let altered = altered.ok_or_else(|| ApiError::issue(["stream_options"], "must be an object"))?;
            headers::fit_altered_body(&mut outgoing_headers, altered.len());
            body = RequestBody::whole(altered.into());
            usage_requested_by = UsageRequestedBy::Gateway;
        }
        if options.is_background {
            return Err(ApiError::issue(["background"], "must not be true"));
        }
        // What cannot be read may request anything. A call without a list price is refused for that.
        let unpriced_member = match (&json, &form) {
            (Some(json), _) => unpriced_member(json, provider.unpriced_members()),
            (None, Some((form, FormExtent::Whole))) => form.hides_duration.then_some("response_format"),
            (None, _) => (!body.is_end_stream()).then_some("body"),
        };
        match unpriced_member.filter(|_| list_price != ListPrice::Unlisted) {
            Some("body") => {
                return Err(ApiError::issue(
                    ["body"],
                    "must be a JSON object, or a form with sound, of at most 256 KiB, with its type",
                ));
            }
            Some(name @ "response_format") => {
                return Err(ApiError::issue(
                    [name],
                    "must be json or verbose_json: others do not report the duration",
                ));
            }
            Some(name) => {
                let message = "requests a feature that has no listed price, or cannot be read";
                return Err(ApiError::issue([name], message));
            }
            None => {}
        }
        // A compressed response may be too long to be read for its usage.
        outgoing_headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if json.is_some() {
            // The provider reads the body as it was read here.
            outgoing_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        headers::fit_managed_key(&mut outgoing_headers);
        if let Some(name) = provider.parameter_of_the_response(&target) {
            let message = format!(
                "has the query parameter {name}, which a call on a managed provider key may not have: it could leave the \
                 usage out of the response"
            );
            return Err(ApiError::issue(["u"], message));
        }
        let (name, value) = provider.key_header(&target, key);
        outgoing_headers.insert(name, value);
    }
    if provider.billed_by(&target) == BilledBy::InputCharacters {
        usage_limit = usage_limit.with_sent_characters(options.input_characters);
    }
    let provider_key_type = provider_key.key_type();
    let shape = provider.shape(&target);
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
        size,
        settings: app.settings,
        now: request_id.made_at(),
    };
    let idempotent_call = match key.zip(fingerprint) {
        Some((key, fingerprint)) => {
            let provider_key = credential.provider_key.as_deref();
            let content = CallContent {
                method: &parts.method,
                url: &recorded,
                provider_key,
                own_keys: &own_keys,
                body: &fingerprint,
            };
            Some(IdempotentCall::new(app, partition, &key, content, &command).await?)
        }
        None => None,
    };
    let mut outgoing = Request::new(body);
    *outgoing.method_mut() = parts.method.clone();
    *outgoing.uri_mut() = target;
    *outgoing.headers_mut() = outgoing_headers;
    let unsized_body = !outgoing.body().is_end_stream() && outgoing.body().size_hint().exact().is_none();
    if unsized_body && parts.method == Method::GET {
        // A GET may have a body; hyper sends it only with a Transfer-Encoding header.
        outgoing.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    *outgoing.version_mut() = Version::HTTP_11;
    Ok(PreparedCall {
        partition,
        command,
        outgoing,
        method: parts.method,
        shape,
        idempotent_call,
        usage_requested_by,
        usage_limit,
        unpriced,
    })
}

fn target(query: &Query<'_>, found: &credential::Found, provider_key: Option<&str>) -> Result<Uri, ApiError> {
    let key = if found.slots.contains(&Slot::Query) {
        KeyParameter::IsCredential
    } else {
        KeyParameter::IsProviders
    };
    query.target(key, provider_key).map_err(|error| match error {
        target::Error::Missing => ApiError::Forward(ForwardError::UrlMissing),
        target::Error::Invalid(why) => ApiError::Forward(ForwardError::UrlInvalid(why)),
    })
}

/// The IP address that the URL names literally, if any. Checking it here refuses the call before it is opened; the
/// dialer checks every resolved address again.
fn literal_address(target: &Uri) -> Option<IpAddr> {
    target.host()?.trim_matches(['[', ']']).parse().ok()
}
