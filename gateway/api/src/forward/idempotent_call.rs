//! Calls with an `Idempotency-Key` (completion.md section 1). Invariant: a key never causes a second call to a
//! provider. It is claimed in the transaction of the call's `RequestOpened` and stays claimed however the call ends,
//! unless no connection to the provider was made.

use std::sync::atomic::AtomicBool;

use axum::response::{IntoResponse as _, Response};
use farthing_core::command::{
    Billing, Caller, CustomerRef, CustomerRefusal, MeterRef, MeterRefusal, OpenRequest, Opened, Refusal,
};
use farthing_core::idempotency::{Claim, ClaimId, Scope};
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey};
use farthing_log::appender::{self, ClaimEnd, Early, IdempotentOutcome};
use farthing_log::claims;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};

use super::request_body::BodyFingerprint;
use super::response_recorder::ResponseRecorder;
use crate::app::App;
use crate::error::{ApiError, AuthError};
use crate::idempotency;
use crate::read_turns::Reader;
use crate::serve::CallInFlight;

/// The idempotency key of a call; `None` for GET and HEAD, which change nothing.
pub(super) fn key<'a>(method: &Method, headers: &'a HeaderMap) -> Result<Option<&'a str>, ApiError> {
    if matches!(*method, Method::GET | Method::HEAD) { Ok(None) } else { idempotency::key(headers) }
}

/// The parts of a call that must be the same when its idempotency key is used again.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallContent<'a> {
    /// The path that the key is scoped to, the same for both spellings of an endpoint.
    pub(super) path: &'static str,
    pub(super) method: &'a Method,
    /// The target, with the keys in its query but without the credential's provider key.
    pub(super) url: &'a Uri,
    /// The provider key of the credential.
    pub(super) provider_key: Option<&'a str>,
    /// The caller's own provider keys in headers, by header name.
    pub(super) own_keys: &'a [(&'static str, HeaderValue)],
    /// What else is asked for; empty for a forwarded call.
    pub(super) asked: &'a str,
    pub(super) body: &'a BodyFingerprint,
}

/// A call with an idempotency key.
#[derive(Debug, Clone)]
pub(super) struct IdempotentCall {
    /// The partition of the caller.
    partition: Partition,
    merchant_id: MerchantId,
    claim: Claim,
    /// Whether the whole body was read, so that the response may be replayed.
    replayable: bool,
    /// Its place among the calls in flight, which a response that is to be stored keeps.
    in_flight: Option<CallInFlight>,
}

/// The outcome of opening a call.
pub(super) enum OpenOutcome {
    /// The call is admitted.
    Opened(Early<Opened>),
    /// The key was used before. The response is the first call's.
    Replayed(Response),
}

/// Why a call is not open.
pub(super) enum OpenError {
    /// It is not.
    NotOpen(ApiError),
    /// The answer of another gateway was lost: it may be open.
    Unknown(String),
}

impl From<ApiError> for OpenError {
    fn from(error: ApiError) -> Self {
        Self::NotOpen(error)
    }
}

impl From<appender::Error> for OpenError {
    fn from(error: appender::Error) -> Self {
        match error {
            appender::Error::Unknown(why) => Self::Unknown(why),
            error => Self::NotOpen(error.into()),
        }
    }
}

impl IdempotentCall {
    /// The claim of `key` on the call that `command` would open.
    pub(super) async fn new(
        app: &App,
        partition: Partition,
        key: &str,
        content: CallContent<'_>,
        (command, in_flight): (&OpenRequest, Option<CallInFlight>),
    ) -> Result<Self, ApiError> {
        let (merchant_id, path) = scope(app, partition, command, content.path).await?;
        let scope = Scope { merchant_id, method: content.method.as_str(), path: &path };
        let url = content.url.to_string();
        let length = content.body.length.map(|bytes| bytes.to_string()).unwrap_or_default();
        let payer = payer(app, merchant_id, command).await?;
        let metadata = serde_json::json!(command.metadata).to_string();
        let provider_key = content.provider_key.unwrap_or_default();
        let mut parts = vec![
            url.as_bytes(),
            &content.body.first[..],
            length.as_bytes(),
            payer.as_bytes(),
            metadata.as_bytes(),
            provider_key.as_bytes(),
        ];
        parts.extend(content.own_keys.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
        if !content.asked.is_empty() {
            parts.push(content.asked.as_bytes());
        }
        let claim = Claim::new(&app.server_key, scope, key, &parts);
        Ok(Self { partition, merchant_id, claim, replayable: content.body.complete, in_flight })
    }

    /// Opens the call, or replays the first call's response if the key was used before.
    pub(super) async fn open(
        &self,
        app: &App,
        command: OpenRequest,
        may_be_open: &AtomicBool,
    ) -> Result<OpenOutcome, OpenError> {
        let connection = app.short_read(Reader::Merchant(self.merchant_id)).await?;
        let before = connection.within(claims::find(&connection, self.partition, &self.claim)).await;
        drop(connection);
        let standing = match before? {
            Some(standing) => standing,
            None => match app
                .ledger
                .open_under_claim(self.partition, command, self.claim.clone(), may_be_open)
                .await?
            {
                IdempotentOutcome::Decided(Ok(opened), _) => {
                    return Ok(OpenOutcome::Opened(Early::known(opened)));
                }
                IdempotentOutcome::Decided(Err(refusal), _) => return Err(ApiError::from(refusal).into()),
                IdempotentOutcome::Repeated(standing) => standing,
            },
        };
        let answer = idempotency::response_to(standing, &app.server_key, &self.claim.id)?;
        app.metrics.forward.replayed();
        Ok(OpenOutcome::Replayed(answer.into_response()))
    }

    /// A recorder of the response with this head. The provider's 5xx ends the call and is not recorded.
    pub(super) fn recorder(&self, status: StatusCode, headers: &HeaderMap) -> ResponseRecorder {
        let recorder = ResponseRecorder::new(self.claim.id.clone(), self.replayable, status, headers);
        recorder.keeping(self.in_flight.clone())
    }

    /// Releases the key of a call that made no connection to its provider.
    pub(super) fn release(&self) -> (ClaimId, ClaimEnd) {
        (self.claim.id.clone(), ClaimEnd::Release)
    }
}

/// The merchant and the path that scope the key. A spend key's id is part of the path, so that holders of different
/// spend keys do not see each other's calls.
async fn scope(
    app: &App,
    partition: Partition,
    command: &OpenRequest,
    path: &str,
) -> Result<(MerchantId, String), ApiError> {
    let merchant_id = command.merchant_id;
    match &command.caller {
        Caller::SecretKey(hash) => match app.state(merchant_id, StateKey::SecretKey(hash.clone())).await? {
            Some(State::SecretKey(key)) => Ok((key.merchant_id, path.to_owned())),
            Some(_) | None => Err(ApiError::Auth(AuthError::SecretKeyInvalid)),
        },
        Caller::SpendKey(hash) => {
            let unknown = ApiError::Auth(AuthError::SpendKeyInvalid);
            let Some(State::SpendKeyHash(id)) =
                app.state(merchant_id, StateKey::SpendKeyHash(hash.clone())).await?
            else {
                return Err(unknown);
            };
            let states = app.ledger.states(
                partition,
                Some(merchant_id),
                [StateKey::SpendKey(id), StateKey::Spending(id)],
            );
            let [Some(State::SpendKey(key)), Some(State::Spending(spending))] = states.await? else {
                return Err(unknown);
            };
            // A key that is paused or has expired gets no stored response either.
            key.check_usable(spending.instant(app.merchants_now(key.merchant_id).await?))?;
            if let Some(customer_id) = key.customer_id
                && app.state(merchant_id, StateKey::Customer(customer_id)).await?.is_none()
            {
                return Err(unknown);
            }
            Ok((key.merchant_id, format!("{path} {id}")))
        }
    }
}

/// The payer and the meter, independent of how the caller named them. Customers and meters that do not exist are
/// refused as the ledger refuses them, so that a deleted customer's credential does not replay a response.
async fn payer(app: &App, merchant_id: MerchantId, command: &OpenRequest) -> Result<String, ApiError> {
    let customer = match &command.customer {
        None => None,
        Some(named) => {
            let (name, unknown) = match named {
                CustomerRef::Id(id) => (id.to_string(), Refusal::Customer(CustomerRefusal::NotFound)),
                CustomerRef::Secret(id) => {
                    (id.to_string(), Refusal::Customer(CustomerRefusal::SecretInvalid))
                }
                CustomerRef::Reference(reference) => {
                    (reference.clone(), Refusal::Customer(CustomerRefusal::NotFound))
                }
            };
            Some(app.customer_id(merchant_id, &name).await?.ok_or(unknown)?)
        }
    };
    let meter = match &command.meter {
        None => None,
        Some(named) => {
            let (name, unknown) = match named {
                MeterRef::Id(id) => (id.to_string(), Refusal::Meter(MeterRefusal::NotFound)),
                MeterRef::Secret(id) => (id.to_string(), Refusal::Meter(MeterRefusal::SecretInvalid)),
                MeterRef::Slug(slug) => (slug.clone(), Refusal::Meter(MeterRefusal::NotFound)),
            };
            Some(app.meter(merchant_id, &name).await?.ok_or(unknown)?.0)
        }
    };
    let billing = match command.billing {
        Billing::Usual => "usual",
        Billing::Disabled => "disabled",
        Billing::MeteringOnly => "metering only",
    };
    let (customer, meter) = (customer.map(|id| id.to_string()), meter.map(|id| id.to_string()));
    Ok(serde_json::json!([customer, meter, billing]).to_string())
}
