//! Reads and checks a call before it is opened in the ledger: the credential, the target, the body and the price. A
//! refusal here leaves no trace in the log.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::body::Body;
use bytes::Bytes;
use farthing_core::command::{Caller, OpenRequest};
use farthing_core::event::RequestShape;
use farthing_core::ids::{MerchantId, RequestId};
use farthing_core::model_price::ListPrice;
use farthing_core::partition::Partition;
use farthing_core::pricing;
use farthing_core::secret::KeyHash;
use farthing_core::state::{SpendKey, State, StateKey};
use farthing_worker::webhooks::LOOP_HEADER;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;

use super::call_trace::CallTrace;
use super::called_endpoint::CalledEndpoint;
use super::forwarder::Forwarder;
use super::headers::{self, KeyPlace, Slot};
use super::idempotent_call::{self, CallContent, IdempotentCall};
use super::managed_body::check_managed_body;
use super::read_call::{ReadCall, too_many_members};
use super::request_body::{Ahead, RequestBody};
use super::response_change::ResponseRule;
use super::signature::{credentials_of_token, sign_call};
use super::size;
use super::turns::{Conversions, TurnWithMemory};
use super::usage::{
    RequestedStream, Shape, are_further_models_among, may_name_further_models, requesting_usage,
};
use super::whole_body::read_whole;
use super::{credential, metadata};
use crate::app::App;
use crate::body_memory::{BodyKind, beside_others};
use crate::caller_address::CallerAddress;
use crate::caller_key::CallerKey;
use crate::error::{ApiError, AuthError, ForwardError, Issue};
use crate::known_keys::Owner;
use crate::model_endpoints::{AllowedProviders, ModelEndpoint};
use crate::providers::{
    BilledBy, CallersKey, Key, ProviderKey, Recognised, StreamUsage, Unpriced, UsageLimit,
};
use crate::rewrite::Rewrite;
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
    /// What is done to the response.
    pub(super) rule: ResponseRule,
    /// The usage that it may report.
    pub(super) usage_limit: UsageLimit,
    /// The managed provider key, if it is sent with one.
    pub(super) managed_key: Option<ProviderKey>,
    /// Why it has no list price, if it has none.
    pub(super) unpriced: Option<Unpriced>,
}

/// Reads and checks the call that came to an endpoint. Its `trace` begins once it is known who makes it.
pub(super) async fn prepare(
    forwarder: &Forwarder,
    request_id: RequestId,
    (called, request): (CalledEndpoint, Request<Body>),
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
    let addressed = Addressed::read(forwarder, called, &parts.uri, &query, &found)?;
    if found.credential.provider_key.as_deref().is_some_and(credential::is_within) {
        let issue = Issue::new(["provider_key"], "must not be a credential of this service");
        return Err(ApiError::Forward(ForwardError::TokenJsonInvalid(vec![issue])));
    }
    let metadata = metadata::read(&parts.headers, &query.metadata)?;

    let Owner { partition, merchant_id } =
        app.known_keys.owner_of(&found.credential.caller, address, &app.ledger, &app.reads).await?;
    trace.authenticated(&app.traces, (called, &parts), request_id);
    let caller_key = CallerKey::from(&found.credential.caller);
    CallInFlight::belongs_to(merchant_id, caller_key, &parts.extensions).await?;
    let allowed = match called {
        CalledEndpoint::Model(endpoint) => {
            check_shape(forwarder, merchant_id, &found.credential.caller, endpoint).await?
        }
        CalledEndpoint::Forward | CalledEndpoint::Rewrite => AllowedProviders::All,
    };
    let receiving = trace.stage("receive request");
    let turn = forwarder.turns.body_of(merchant_id);
    let conversions = turn.conversions(caller_key);
    turn.step().await;
    let key = idempotent_call::key(&parts.method, &parts.headers)?.map(str::to_owned);
    let (idle, share) = (app.timeouts.body, || app.body_memory.share(merchant_id, BodyKind::Request));
    let (read, provider, turn) = match addressed {
        Addressed::Forward { provider, recorded, target } => {
            let urls = (recorded, target);
            if credentials_of_token(provider, &found)?.is_some() {
                // A signature needs all of the body.
                let whole = if body.is_end_stream() {
                    Bytes::new()
                } else {
                    read_whole(&parts.headers, body, turn, idle, share()).await?
                };
                let turn = conversions.turn_with_memory(&whole).await?;
                (ReadCall::forwarded_whole(provider, urls, &whole)?, provider, turn)
            } else {
                // Elsewhere a form may be anything, and passes as it comes.
                let is_transcription = provider.shape(&urls.1) == Shape::Transcription;
                let ahead = match (&key, is_transcription) {
                    (Some(_), _) => Ahead::Any,
                    (None, true) => Ahead::JsonOrForm,
                    (None, false) => Ahead::Json,
                };
                let by = &found.credential.caller;
                let given = (&parts.headers, body);
                let read = ReadCall::forwarded((provider, by), urls, given, ahead, (turn, idle)).await?;
                (read, provider, None)
            }
        }
        Addressed::ByModel(endpoint) => {
            let whole = read_whole(&parts.headers, body, turn, idle, share()).await?;
            let turn = conversions.turn_with_memory(&whole).await?;
            let read =
                ReadCall::by_model(forwarder, (endpoint, &allowed), &whole, (&query, &found), share())?;
            let provider = app.providers.at(&read.target);
            (read, provider, turn)
        }
        Addressed::Rewrite(rewrite) => {
            let whole = read_whole(&parts.headers, body, turn, idle, share()).await?;
            let turn = conversions.turn_with_memory(&whole).await?;
            let read = ReadCall::rewritten(forwarder, rewrite, &whole, share())?;
            let provider = app.providers.at(&read.target);
            (read, provider, turn)
        }
    };
    drop(receiving);
    let _preparing = trace.stage("prepare");
    let known = KnownCaller { partition, merchant_id, found, key };
    finish(forwarder, request_id, (called, parts), known, (read, provider, turn, conversions), metadata).await
}

/// The caller of a call, and the idempotency key.
struct KnownCaller {
    partition: Partition,
    merchant_id: MerchantId,
    found: credential::Found,
    key: Option<String>,
}

/// Chooses the provider key of a call to `provider` that is read, checks what it may ask for and makes the request to the
/// provider. A long body has its turn, until it is read no more, and another one to be signed.
async fn finish(
    forwarder: &Forwarder,
    request_id: RequestId,
    (called, parts): (CalledEndpoint, http::request::Parts),
    KnownCaller { partition, merchant_id, found, key }: KnownCaller,
    (read, provider, mut turn, conversions): (ReadCall, Recognised<'_>, Option<TurnWithMemory>, Conversions),
    metadata: BTreeMap<String, String>,
) -> Result<PreparedCall, ApiError> {
    let app = &forwarder.app;
    let ReadCall {
        scope,
        recorded,
        target,
        mut body,
        json,
        form,
        mut options,
        model,
        known_bytes,
        asked,
        fingerprint,
        mut rule,
    } = read;
    let mut outgoing_headers = headers::to_provider(parts.headers, &found.slots);
    if let CalledEndpoint::Model(_) = called {
        headers::without_own_keys(&mut outgoing_headers);
    }
    if let Some(name) = credential::header_with_one(&outgoing_headers) {
        let message = "holds a credential of this service, which must not reach a provider; send it in one of its own \
                       slots alone";
        return Err(ApiError::issue([name.as_str()], message));
    }
    let own_keys = headers::own_keys(&outgoing_headers);
    debug_assert_eq!(provider, app.providers.at(&target), "the provider is that of the URL");
    let mut signed_with = credentials_of_token(provider, &found)?;
    let key_place = key_place(provider, &target, found.slot);
    let is_in_url = called == CalledEndpoint::Forward && key_place == KeyPlace::Carrier(Slot::Query);
    let is_sent = !is_in_url && signed_with.is_none();
    if let Some(key) = found.credential.provider_key.as_deref().filter(|_| is_sent) {
        let invalid = || {
            let issue = Issue::new(["provider_key"], "cannot stand in a header");
            ApiError::Forward(ForwardError::TokenJsonInvalid(vec![issue]))
        };
        if called != CalledEndpoint::Forward && ProviderKey::new(key).is_none() {
            return Err(invalid());
        }
        headers::set_provider_key(&mut outgoing_headers, key_place, key).map_err(|_| invalid())?;
    }
    let brings_key = found.credential.provider_key.is_some()
        || !own_keys.is_empty()
        || !target::keys_within(&target).is_empty();
    let callers_key = if brings_key { CallersKey::Present } else { CallersKey::Absent };
    let provider_key = app
        .providers
        .key(provider, callers_key)
        .map_err(|_| ApiError::Forward(ForwardError::ProviderKeyMissing))?;
    if options.has_too_many_members && matches!(provider_key, Key::Managed(_)) {
        return Err(too_many_members());
    }
    let on_spend_key = matches!(found.credential.caller, Caller::SpendKey(_));
    let ambiguous = match provider_key {
        Key::Managed(_) => options.ambiguous,
        // A spend key may be for some models only. One that is spelled otherwise is no model to it.
        Key::Callers => (on_spend_key && options.repeats_model).then_some("model"),
    };
    if let Some(name) = ambiguous {
        return Err(ambiguous_member(name));
    }
    if let (Caller::SpendKey(hash), Some(json)) = (&found.credential.caller, json.as_deref())
        && beside_others(json.len(), || may_name_further_models(json))
    {
        // Boxed, so that other calls have no room for it.
        let of_provider = provider.unpriced_members();
        let turns = (turn, &conversions);
        turn = Box::pin(check_further_models(app, (merchant_id, hash), json, of_provider, turns)).await?;
    }
    let priced = app.providers.list_price(provider, provider_key, &parts.method, &target, model.as_deref());
    let (list_price, unpriced) = match priced {
        Ok(list_price) => (list_price, None),
        Err(why) => (ListPrice::Unlisted, Some(why)),
    };
    let billed_by = provider.billed_by(&target);
    if billed_by == BilledBy::InputCharacters
        && let Some(json) = json.as_deref()
    {
        beside_others(json.len(), || options.read_input_characters(json));
    }
    let limits = size::Limits {
        members: provider.limit_members(&target),
        model: app.providers.max_tokens(provider, &target, model.as_deref()),
        billed_by,
        unbounded: provider.unbounded(model.as_deref()),
    };
    let size = match json.as_deref().filter(|_| on_spend_key) {
        Some(json) => beside_others(json.len(), || size::of_call(&options, Some(json), known_bytes, limits)),
        None if on_spend_key && form.is_some() => size::of_form(&options, known_bytes, limits),
        None => size::of_call(&options, None, known_bytes, limits),
    };
    if called != CalledEndpoint::Forward {
        headers::fit_whole_body(&mut outgoing_headers, json.as_ref().map_or(0, Bytes::len));
        if let ResponseRule::Converted(..) = rule {
            headers::fit_converted_body(&mut outgoing_headers);
        }
        if provider.name == "anthropic" {
            headers::fit_anthropic(&mut outgoing_headers);
        }
    }
    let asks_for_usage = match rule {
        ResponseRule::Unchanged | ResponseRule::WithoutUsageChunk => matches!(provider_key, Key::Managed(_)),
        // The usage of a stream is a part of the caller's format, whoever pays.
        ResponseRule::Converted(..) => provider.is_known(),
    };
    // The instance pays for calls on its own keys, so these must report their usage and have a list price.
    let stream_usage = provider.stream_usage(&target);
    let is_managed = matches!(provider_key, Key::Managed(_));
    let is_stream = options.stream != RequestedStream::None;
    // Also one that asks for its usage: whether the provider then reports it is not known.
    if is_managed && is_stream && stream_usage == StreamUsage::Unknown {
        let message = "must be false: this provider is not known to report the usage of such a stream";
        return Err(ApiError::issue(["stream"], message));
    }
    let hides_usage = options.stream == RequestedStream::WithoutUsage;
    if asks_for_usage && hides_usage && stream_usage == StreamUsage::OnRequest {
        let altered = json.as_ref().and_then(|json| beside_others(json.len(), || requesting_usage(json)));
        let altered = altered.ok_or_else(|| ApiError::issue(["stream_options"], "must be an object"))?;
        headers::fit_altered_body(&mut outgoing_headers, altered.len());
        body = RequestBody::whole(altered.into());
        if let ResponseRule::Unchanged = rule {
            rule = ResponseRule::WithoutUsageChunk;
        }
    }
    let mut usage_limit = UsageLimit::default();
    if let Key::Managed(key) = provider_key {
        usage_limit = app.providers.usage_limit(provider, &target, model.as_deref(), options.answers);
        if options.is_background {
            return Err(ApiError::issue(["background"], "must not be true"));
        }
        if let Some(name) = options.unread_count {
            return Err(ApiError::issue([name], "must be a whole number"));
        }
        // A call without a list price is refused for that.
        if list_price != ListPrice::Unlisted {
            let given = (json.as_ref(), form.as_ref());
            check_managed_body(provider, (&target, model.as_deref()), given, &body, &list_price)?;
        }
        // A compressed response may be too long to be read for its usage.
        outgoing_headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if json.is_some() {
            // The provider reads the body as it was read here.
            outgoing_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        headers::fit_managed_key(&mut outgoing_headers);
        if billed_by == BilledBy::Report {
            headers::ask_for_a_readable_answer(&mut outgoing_headers);
        }
        if provider.is_bedrock() {
            headers::fit_managed_key_of_bedrock(&mut outgoing_headers).map_err(|name| {
                ApiError::issue([name.as_str()], "requests a feature that has no listed price")
            })?;
        }
        if let Some(name) = provider.parameter_of_the_response(&target) {
            let message = format!(
                "has the query parameter {name}, which a call on a managed provider key may not have: it could leave the \
                 usage out of the response"
            );
            return Err(ApiError::issue(["u"], message));
        }
        signed_with = provider
            .credentials_within(key.reveal())
            .map_err(|invalid| ApiError::internal(format!("the key of {}: {invalid}", provider.name)))?;
        if signed_with.is_none() {
            let (name, value) = provider.key_header(&target, key);
            outgoing_headers.insert(name, value);
        }
    }
    if billed_by == BilledBy::InputCharacters {
        if is_managed && options.input_characters.is_none() {
            return Err(ApiError::issue(["input"], "must be a text: the price is one for its characters"));
        }
        usage_limit = usage_limit.with_sent_characters(options.input_characters);
    }
    if is_managed && let ListPrice::Listed(price) = &list_price {
        usage_limit = usage_limit.counting(&size, pricing::max_model_cost(price, size));
    }
    let provider_key_type = provider_key.key_type();
    let managed_key = match provider_key {
        Key::Managed(key) => Some(key.clone()),
        Key::Callers => None,
    };
    let shape = provider.shape(&target);
    let mut endpoint = parts.method.to_string();
    endpoint.push(' ');
    endpoint.push_str(&target::without_keys(&recorded.to_string()));
    let credential = found.credential;
    let command = OpenRequest {
        request_id,
        gateway_id: app.gateway_id,
        merchant_id,
        caller: credential.caller,
        customer: credential.customer,
        meter: credential.meter,
        billing: credential.billing,
        provider: provider.name.to_owned(),
        provider_key_type,
        endpoint,
        model,
        list_price,
        metadata,
        size,
        settings: app.settings,
        now: request_id.made_at(),
    };
    drop(turn);
    let idempotent_call = match key.zip(fingerprint) {
        Some((key, fingerprint)) => {
            let provider_key = credential.provider_key.as_deref();
            let content = CallContent {
                path: scope,
                method: &parts.method,
                url: &recorded,
                provider_key,
                own_keys: &own_keys,
                asked: &asked,
                body: &fingerprint,
            };
            let opening = (&command, parts.extensions.get().cloned());
            // Boxed, so that calls without a key have no room for it.
            Some(Box::pin(IdempotentCall::new(app, partition, &key, content, opening)).await?)
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
    // A managed call without a price is refused when it is opened.
    if let Some(credentials) = signed_with.filter(|_| !is_managed || unpriced.is_none()) {
        let length = outgoing.body().in_memory().map_or(0, |body| body.len());
        let _turn = conversions.turn(length).await?;
        sign_call(app, provider, &credentials, &mut outgoing)?;
    }
    Ok(PreparedCall {
        partition,
        command,
        outgoing,
        method: parts.method,
        shape,
        idempotent_call,
        rule,
        usage_limit,
        managed_key,
        unpriced,
    })
}

/// Where the caller's own provider key goes, of a call whose credential came in `slot`.
fn key_place(provider: Recognised<'_>, target: &Uri, slot: Slot) -> KeyPlace {
    provider.key_slot(target).map_or(KeyPlace::Carrier(slot), KeyPlace::Providers)
}

/// Refuses a spend key of another shape than the endpoint's. Keys without a shape, and merchants, may call every endpoint.
/// Returns the providers that the caller may call.
async fn check_shape(
    forwarder: &Forwarder,
    merchant_id: MerchantId,
    caller: &Caller,
    endpoint: ModelEndpoint,
) -> Result<AllowedProviders, ApiError> {
    let Caller::SpendKey(hash) = caller else { return Ok(AllowedProviders::All) };
    let key = spend_key(&forwarder.app, merchant_id, hash).await?;
    match key.settings.request_shape {
        Some(shape) if shape != endpoint.shape() => {
            let message = match shape {
                RequestShape::Openai => {
                    "of this spend key is openai: it calls /v1/chat/completions, /v1/responses and /v1/embeddings"
                }
                RequestShape::Anthropic => "of this spend key is anthropic: it calls /v1/messages",
            };
            Err(ApiError::issue(["request_shape"], message))
        }
        Some(_) | None => {
            let allowed = key.settings.allowed_providers.clone();
            Ok(allowed.map_or(AllowedProviders::All, AllowedProviders::Listed))
        }
    }
}

/// Refuses a body that names, beside its `model`, one that its spend key does not allow. The `model` is checked when the call is
/// opened. A long body gives its turn back while the state of the key is read, and returns the next one.
async fn check_further_models(
    app: &App,
    (merchant_id, hash): (MerchantId, &KeyHash),
    json: &[u8],
    of_provider: &[&str],
    (turn, conversions): (Option<TurnWithMemory>, &Conversions),
) -> Result<Option<TurnWithMemory>, ApiError> {
    let had_turn = turn.is_some();
    drop(turn);
    let key = spend_key(app, merchant_id, hash).await?;
    let turn = if had_turn { conversions.turn_with_memory(json).await? } else { None };
    let is_allowed =
        |list: &Vec<String>| beside_others(json.len(), || are_further_models_among(list, json, of_provider));
    if key.settings.allowed_models.as_ref().is_none_or(is_allowed) {
        Ok(turn)
    } else {
        Err(ApiError::Auth(AuthError::ModelNotAllowed))
    }
}

/// The state of the merchant's spend key with this hash.
async fn spend_key(app: &App, merchant_id: MerchantId, hash: &KeyHash) -> Result<Box<SpendKey>, ApiError> {
    let Some(State::SpendKeyHash(id)) = app.state(merchant_id, StateKey::SpendKeyHash(hash.clone())).await?
    else {
        return Err(ApiError::Auth(AuthError::SpendKeyInvalid));
    };
    match app.state(merchant_id, StateKey::SpendKey(id)).await? {
        Some(State::SpendKey(key)) => Ok(key),
        Some(_) | None => Err(ApiError::Auth(AuthError::SpendKeyInvalid)),
    }
}

/// A member that readers may understand in two ways.
pub(super) fn ambiguous_member(name: &str) -> ApiError {
    ApiError::issue([name], "must be given once in the body, in exactly this spelling")
}

/// Where a call goes, as far as its head says.
enum Addressed<'a> {
    /// To the URL `u`, or the one in the path.
    Forward {
        /// The provider at both URLs, which differ in their query alone.
        provider: Recognised<'a>,
        /// The URL as the log has it: without the credential's provider key.
        recorded: Uri,
        target: Uri,
    },
    /// To the provider of its model.
    ByModel(ModelEndpoint),
    /// To the URL in the path.
    Rewrite(Rewrite),
}

impl<'a> Addressed<'a> {
    fn read(
        forwarder: &'a Forwarder,
        called: CalledEndpoint,
        uri: &Uri,
        query: &Query<'_>,
        found: &credential::Found,
    ) -> Result<Self, ApiError> {
        match called {
            CalledEndpoint::Forward => {
                let in_path = uri.path().split_once("/forward/").map(|(_, given)| given);
                let in_path = in_path.filter(|given| !given.is_empty());
                let named = in_path.map(|given| query.with_url_in_path(given)).transpose()?;
                let query = named.as_ref().unwrap_or(query);
                let recorded = target(query, found, None)?;
                check_target(forwarder, &recorded)?;
                let provider = forwarder.app.providers.at(&recorded);
                let in_url = key_place(provider, &recorded, found.slot) == KeyPlace::Carrier(Slot::Query);
                let key_in_url = found.credential.provider_key.as_deref().filter(|_| in_url);
                let target = match key_in_url {
                    Some(_) => target(query, found, key_in_url)?,
                    None => recorded.clone(),
                };
                Ok(Self::Forward { provider, recorded, target })
            }
            CalledEndpoint::Model(endpoint) => Ok(Self::ByModel(endpoint)),
            CalledEndpoint::Rewrite => {
                let rewrite = Rewrite::read(uri.path(), query, key_parameter(found))?;
                check_target(forwarder, &rewrite.target)?;
                Ok(Self::Rewrite(rewrite))
            }
        }
    }
}

/// Refuses a URL with a credential of this service, and one whose address is forbidden.
pub(super) fn check_target(forwarder: &Forwarder, target: &Uri) -> Result<(), ApiError> {
    let authority = target.authority().map_or("", |authority| authority.as_str());
    let path_and_query = target.path_and_query().map_or("", |path| path.as_str());
    if credential::is_within(authority)
        || credential::is_within(path_and_query)
        || target::keys_within(target).iter().any(|key| credential::is_ours(key))
    {
        return Err(ApiError::Forward(ForwardError::UrlInvalid("contains a credential of this service")));
    }
    if let Some(address) = literal_address(target)
        && !forwarder.guard.permits(address)
    {
        return Err(ApiError::Forward(ForwardError::UrlForbidden));
    }
    Ok(())
}

/// What the query parameter `key` is.
pub(super) fn key_parameter(found: &credential::Found) -> KeyParameter {
    if found.slots.contains(&Slot::Query) { KeyParameter::IsCredential } else { KeyParameter::IsProviders }
}

fn target(query: &Query<'_>, found: &credential::Found, provider_key: Option<&str>) -> Result<Uri, ApiError> {
    Ok(query.target(key_parameter(found), provider_key)?)
}

/// The IP address that the URL names literally, if any. Checking it here refuses the call before it is opened; the
/// dialer checks every resolved address again.
fn literal_address(target: &Uri) -> Option<IpAddr> {
    target.host()?.trim_matches(['[', ']']).parse().ok()
}
