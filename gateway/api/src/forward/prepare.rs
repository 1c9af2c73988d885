//! Reads and checks a call before it is opened in the ledger: the credential, the target, the body and the price. A
//! refusal here leaves no trace in the log.

mod addressed;
mod body;
mod managed;
mod outgoing;
mod price;
mod provider_key;
mod sender;
mod spend_key;
mod stream;

use std::collections::BTreeMap;

use axum::body::Body;
use bytes::Bytes;
use farthing_core::command::{Caller, OpenRequest};
use farthing_core::ids::{MerchantId, RequestId};
use farthing_core::partition::Partition;
use http::{Method, Request};
use http_body::Body as _;

use self::addressed::{Addressed, recorded_endpoint};
pub(super) use self::addressed::{check_target, key_parameter};
pub(super) use self::body::ambiguous_member;
use self::body::{ahead_of, check_members};
use self::outgoing::{fit_read_body, headers_to_provider};
use self::provider_key::set_key_of_token;
use self::sender::{check_key_is_a_providers, check_sender};
use self::spend_key::{check_further_models, check_shape};
use self::stream::fit_stream;
use super::call_trace::CallTrace;
use super::called_endpoint::CalledEndpoint;
use super::forwarder::Forwarder;
use super::headers;
use super::idempotent_call::{self, CallContent, IdempotentCall};
use super::read_call::ReadCall;
use super::request_body::RequestBody;
use super::response_change::ResponseRule;
use super::signature::{credentials_of_token, sign_call};
use super::turns::{Conversions, TurnWithMemory};
use super::usage::{Shape, may_name_further_models};
use super::whole_body::read_whole;
use super::{credential, metadata};
use crate::body_memory::{BodyKind, beside_others};
use crate::caller_address::CallerAddress;
use crate::caller_key::CallerKey;
use crate::error::ApiError;
use crate::known_keys::Owner;
use crate::model_endpoints::AllowedProviders;
use crate::providers::{BilledBy, Key, ProviderKey, Recognised, Unpriced, UsageLimit};
use crate::serve::CallInFlight;
use crate::target::Query;

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
    check_sender(&parts.headers)?;
    let query = Query::read(parts.uri.query().unwrap_or_default());
    let found = credential::find(&parts.headers, &query.keys, &app.server_key)?;
    let addressed = Addressed::read(forwarder, called, &parts.uri, &query, &found)?;
    check_key_is_a_providers(&found)?;
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
                let ahead = ahead_of(provider, &urls.1, key.as_deref());
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

/// The terms on which a call is sent.
#[derive(Clone, Copy)]
struct Terms<'a> {
    called: CalledEndpoint,
    provider: Recognised<'a>,
    /// The provider key that it carries.
    key: Key<'a>,
    /// Whether its credential is a spend key.
    on_spend_key: bool,
    /// The unit by which it is billed.
    billed_by: BilledBy,
}

impl Terms<'_> {
    /// Whether the instance pays for it, on its own provider key.
    fn is_managed(&self) -> bool {
        matches!(self.key, Key::Managed(_))
    }
}

/// Chooses the provider key of a call to `provider` that is read, checks what it may ask for and makes the request to the
/// provider. A long body has its turn, until it is read no more, and another one to be signed.
async fn finish(
    forwarder: &Forwarder,
    request_id: RequestId,
    (called, parts): (CalledEndpoint, http::request::Parts),
    KnownCaller { partition, merchant_id, found, key }: KnownCaller,
    (mut read, provider, mut turn, conversions): (
        ReadCall,
        Recognised<'_>,
        Option<TurnWithMemory>,
        Conversions,
    ),
    metadata: BTreeMap<String, String>,
) -> Result<PreparedCall, ApiError> {
    let app = &forwarder.app;
    let mut outgoing_headers = headers_to_provider(called, parts.headers, &found)?;
    let own_keys = headers::own_keys(&outgoing_headers);
    debug_assert_eq!(provider, app.providers.at(&read.target), "the provider is that of the URL");
    let mut signed_with = credentials_of_token(provider, &found)?;
    if signed_with.is_none() {
        set_key_of_token(called, (provider, &read.target), &found, &mut outgoing_headers)?;
    }
    let terms = Terms {
        called,
        provider,
        key: provider_key::choose(app, (provider, &read.target), &found, &own_keys)?,
        on_spend_key: matches!(found.credential.caller, Caller::SpendKey(_)),
        billed_by: provider.billed_by(&read.target),
    };
    check_members(terms, &read.options)?;
    // No reference to all of `read` may be kept over an `await`: its body cannot be shared between threads.
    if let (Caller::SpendKey(hash), Some(json)) = (&found.credential.caller, read.json.as_deref())
        && beside_others(json.len(), || may_name_further_models(json))
    {
        // Boxed, so that other calls have no room for it.
        let of_provider = provider.unpriced_members();
        let turns = (turn, &conversions);
        turn = Box::pin(check_further_models(app, (merchant_id, hash), json, of_provider, turns)).await?;
    }
    let (list_price, unpriced) = price::list_price(app, terms, &parts.method, &read);
    price::count_characters(terms, &mut read);
    let size = price::size(app, terms, &read);
    fit_read_body(terms, &read, &mut outgoing_headers);
    fit_stream(terms, &mut read, &mut outgoing_headers)?;
    if let Key::Managed(key) = terms.key {
        signed_with = managed::check_and_fit(terms, key, &read, &list_price, &mut outgoing_headers)?;
    }
    let usage_limit = price::usage_limit(app, terms, &read, &list_price, size)?;
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
        provider_key_type: terms.key.key_type(),
        endpoint: recorded_endpoint(&parts.method, &read.recorded),
        model: read.model,
        list_price,
        metadata,
        size,
        settings: app.settings,
        now: request_id.made_at(),
    };
    drop(turn);
    let idempotent_call = match key.zip(read.fingerprint) {
        Some((key, fingerprint)) => {
            let content = CallContent {
                path: read.scope,
                method: &parts.method,
                url: &read.recorded,
                provider_key: credential.provider_key.as_deref(),
                own_keys: &own_keys,
                asked: &read.asked,
                body: &fingerprint,
            };
            let opening = (&command, parts.extensions.get().cloned());
            // Boxed, so that calls without a key have no room for it.
            Some(Box::pin(IdempotentCall::new(app, partition, &key, content, opening)).await?)
        }
        None => None,
    };
    let shape = provider.shape(&read.target);
    let mut outgoing = outgoing::request(parts.method.clone(), read.target, outgoing_headers, read.body);
    // A managed call without a price is refused when it is opened.
    if let Some(credentials) = signed_with.filter(|_| !terms.is_managed() || unpriced.is_none()) {
        let length = outgoing.body().in_memory().map_or(0, |body| body.len());
        let _turn = conversions.turn(length).await?;
        sign_call(app, provider, &credentials, &mut outgoing)?;
    }
    let managed_key = match terms.key {
        Key::Managed(key) => Some(key.clone()),
        Key::Callers => None,
    };
    Ok(PreparedCall {
        partition,
        command,
        outgoing,
        method: parts.method,
        shape,
        idempotent_call,
        rule: read.rule,
        usage_limit,
        managed_key,
        unpriced,
    })
}
