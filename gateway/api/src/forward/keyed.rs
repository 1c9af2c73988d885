//! Calls under an `Idempotency-Key` (completion.md section 1). Invariant: a key never causes a second call to a
//! provider: it is claimed in the transaction of the call's `RequestOpened`, and stays claimed however the call ends,
//! unless no connection to the provider was made.

use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use farthing_core::command::{
    Billing, Caller, CustomerRef, CustomerRefusal, MeterRef, MeterRefusal, OpenRequest, Opened, Refusal,
};
use farthing_core::idempotency::{Claim, ClaimId, Scope, Standing};
use farthing_core::ids::MerchantId;
use farthing_core::secret::ServerKey;
use farthing_core::state::{State, StateKey};
use farthing_log::appender::{ClaimEnd, ClaimRecord, IdempotentOutcome};
use farthing_log::claims;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body::Frame;

use super::request_body::Known;
use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, AuthError};
use crate::idempotency::{self, Answer};

/// The longest answer that is kept, in bytes.
const MAX_KEPT: usize = 256 * 1024;

/// The path of the endpoint, in whichever spelling it was called.
const PATH: &str = "/v1/forward";

/// The content types of answers that come piece by piece; these are not kept.
const STREAMS: [&str; 4] =
    ["text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl"];

/// The key of a call, where it has one and the method is one that may change something.
pub(super) fn key<'a>(method: &Method, headers: &'a HeaderMap) -> Result<Option<&'a str>, ApiError> {
    if matches!(*method, Method::GET | Method::HEAD) { Ok(None) } else { idempotency::key(headers) }
}

/// What a call under a key asks for: under the same key, anything else is another call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The method.
    pub(super) method: &'a Method,
    /// Where it goes, with the keys that stand there, but without the one that the credential brought.
    pub(super) url: &'a Uri,
    /// The provider key that the credential brought.
    pub(super) provider_key: Option<&'a str>,
    /// The caller's own keys in headers, with the names of these.
    pub(super) own_keys: &'a [(&'static str, HeaderValue)],
    /// What is known of the body.
    pub(super) body: &'a Known,
}

/// A call under a key.
#[derive(Debug, Clone)]
pub(super) struct Keyed {
    claim: Claim,
    /// Is the body known to its last byte, so that an answer to it may be given again?
    keeps: bool,
}

/// Whether a call under a key begins.
pub(super) enum Begun {
    /// It is open.
    Now(Opened),
    /// The key has been used: this is answered.
    Before(Response),
}

impl Keyed {
    /// The claim of `key` on the call that `command` would open.
    pub(super) async fn new(
        app: &App,
        key: &str,
        asked: Asked<'_>,
        command: &OpenRequest,
    ) -> Result<Self, ApiError> {
        let (merchant_id, path) = scope(app, command).await?;
        let scope = Scope { merchant_id, method: asked.method.as_str(), path: &path };
        let url = asked.url.to_string();
        let length = asked.body.length.map(|bytes| bytes.to_string()).unwrap_or_default();
        let payer = payer(app, merchant_id, command).await?;
        let metadata = serde_json::json!(command.metadata).to_string();
        let provider_key = asked.provider_key.unwrap_or_default();
        let mut content = vec![
            url.as_bytes(),
            &asked.body.first[..],
            length.as_bytes(),
            payer.as_bytes(),
            metadata.as_bytes(),
            provider_key.as_bytes(),
        ];
        content.extend(asked.own_keys.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
        Ok(Self { claim: Claim::new(&app.server_key, scope, key, &content), keeps: asked.body.whole })
    }

    /// Opens the call, unless the key has been used: then what it is answered.
    pub(super) async fn open(&self, app: &App, command: OpenRequest) -> Result<Begun, ApiError> {
        let connection = app.connection().await?;
        let before = within(claims::find(&connection, &self.claim)).await?;
        drop(connection);
        let standing = match before {
            Some(standing) => standing,
            None => match self.claim(app, command).await? {
                Ok(opened) => return Ok(Begun::Now(opened)),
                Err(standing) => standing,
            },
        };
        let answer = idempotency::answer_to(standing, &app.server_key, &self.claim.id)?;
        Ok(Begun::Before(answer.into_response()))
    }

    /// Opens the call and claims the key in one append, or says what has claimed the key before.
    async fn claim(&self, app: &App, command: OpenRequest) -> Result<Result<Opened, Standing>, ApiError> {
        let request_id = command.request_id;
        let keep = move |outcome: &Result<Opened, Refusal>| match outcome {
            Ok(_) => ClaimRecord::Call(request_id),
            // A refused call is no call: the key is free for another try.
            Err(_) => ClaimRecord::Nothing,
        };
        match app.ledger.submit_idempotent(command, self.claim.clone(), keep).await? {
            IdempotentOutcome::Decided(Ok(opened), _) => Ok(Ok(opened)),
            IdempotentOutcome::Decided(Err(refusal), _) => Err(refusal.into()),
            IdempotentOutcome::Repeated(standing) => Ok(Err(standing)),
        }
    }

    /// What keeps the answer that begins with `status` and `headers`. A provider's 5xx is the end of the call, but no
    /// answer to rely on: it is not kept.
    pub(super) fn keeper(&self, status: StatusCode, headers: &HeaderMap) -> Keeper {
        let content_type =
            headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let keeps = self.keeps && !status.is_server_error() && !STREAMS.contains(&essence.as_str());
        let head = keeps.then(|| (status, headers.clone()));
        Keeper { claim: self.claim.id.clone(), head, body: BytesMut::new() }
    }

    /// The end of the claim of a call that made no connection to its provider.
    pub(super) fn release(&self) -> (ClaimId, ClaimEnd) {
        (self.claim.id.clone(), ClaimEnd::Release)
    }
}

/// The merchant and the path that a key counts under: the endpoint's, in either spelling. Of a spend key's call the
/// spend key is named as well, since whoever holds one knows nothing of another's calls.
async fn scope(app: &App, command: &OpenRequest) -> Result<(MerchantId, String), ApiError> {
    match &command.caller {
        Caller::SecretKey(hash) => match app.state(StateKey::SecretKey(hash.clone())).await? {
            Some(State::SecretKey(key)) => Ok((key.merchant_id, PATH.to_owned())),
            Some(_) | None => Err(ApiError::Auth(AuthError::SecretKeyInvalid)),
        },
        Caller::SpendKey(hash) => {
            let unknown = ApiError::Auth(AuthError::SpendKeyInvalid);
            let Some(State::SpendKeyHash(id)) = app.state(StateKey::SpendKeyHash(hash.clone())).await? else {
                return Err(unknown);
            };
            let Some(State::SpendKey(key)) = app.state(StateKey::SpendKey(id)).await? else {
                return Err(unknown);
            };
            if let Some(customer_id) = key.customer_id
                && app.state(StateKey::Customer(customer_id)).await?.is_none()
            {
                return Err(unknown);
            }
            Ok((key.merchant_id, format!("{PATH} {id}")))
        }
    }
}

/// Who pays by which meter, however the caller spelled it. What is not there is refused as the ledger would: a
/// deleted customer's credential is not answered from before either.
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

/// Collects an answer for keeping, as far as it may be kept.
#[derive(Debug)]
pub(super) struct Keeper {
    claim: ClaimId,
    /// None once it is known that the answer is not kept.
    head: Option<(StatusCode, HeaderMap)>,
    body: BytesMut,
}

impl Keeper {
    /// Takes note of a frame that passes.
    pub(super) fn note(&mut self, frame: &Frame<Bytes>) {
        if self.head.is_none() {
            return;
        }
        match frame.data_ref() {
            Some(data) if self.body.len() + data.len() <= MAX_KEPT => self.body.extend_from_slice(data),
            // Too long, or with trailers, which could not be given again.
            Some(_) | None => {
                self.head = None;
                self.body = BytesMut::new();
            }
        }
    }

    /// The sealed answer, now that it is whole.
    pub(super) fn kept(&self, server_key: &ServerKey) -> Option<(ClaimId, ClaimEnd)> {
        let (status, headers) = self.head.clone()?;
        let answer = Answer { status, headers, body: Bytes::copy_from_slice(&self.body) };
        Some((self.claim.clone(), ClaimEnd::Answer(answer.seal(server_key, &self.claim))))
    }
}
