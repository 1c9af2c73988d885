//! Calls under an `Idempotency-Key` (completion.md section 1). Invariant: a key never causes a second call to a
//! provider: it is claimed in the transaction of the call's `RequestOpened`, and stays claimed however the call ends,
//! unless no connection to the provider was made.

use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use farthing_ledger::command::{Billing, Caller, CustomerRef, MeterRef, OpenRequest, Opened, Refusal};
use farthing_ledger::idempotency::{Claim, ClaimId, Scope, Standing};
use farthing_ledger::ids::MerchantId;
use farthing_ledger::log::appender::{Closing, Keep, Written};
use farthing_ledger::log::claims;
use farthing_ledger::secret::ServerKey;
use farthing_ledger::state::{State, StateKey};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use http_body::Frame;

use super::request_body::Known;
use crate::app::App;
use crate::error::ApiError;
use crate::idempotency::{self, Answer};
use crate::rest::within;

/// The longest answer that is kept, in bytes.
const MAX_KEPT: usize = 256 * 1024;

/// The content types of answers that come piece by piece; these are not kept.
const STREAMS: [&str; 4] =
    ["text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl"];

/// The key of a call, where it has one and the method is one that may change something.
pub(super) fn key<'a>(method: &Method, headers: &'a HeaderMap) -> Result<Option<&'a str>, ApiError> {
    if matches!(*method, Method::GET | Method::HEAD) { Ok(None) } else { idempotency::key(headers) }
}

/// A call under a key.
#[derive(Debug, Clone)]
pub(super) struct Keyed {
    claim: Claim,
    /// Is the body known to its last byte, so that an answer to it may be given again?
    keeps: bool,
}

impl Keyed {
    /// The claim of `key` on the call that `command` would open. The path of its scope is the URL it goes to.
    pub(super) async fn new(
        app: &App,
        key: &str,
        method: &Method,
        body: &Known,
        command: &OpenRequest,
    ) -> Result<Self, ApiError> {
        let (merchant_id, path) = scope(app, command).await?;
        let scope = Scope { merchant_id, method: method.as_str(), path: &path };
        let length = body.length.map(|bytes| bytes.to_string()).unwrap_or_default();
        let payer = payer(command);
        let content = [&body.first[..], length.as_bytes(), payer.as_bytes()];
        Ok(Self { claim: Claim::new(&app.server_key, scope, key, &content), keeps: body.whole })
    }

    /// Opens the call, unless the key has been used: then what it is answered.
    pub(super) async fn open(&self, app: &App, command: OpenRequest) -> Result<Option<Response>, ApiError> {
        let connection = app.connection().await?;
        let before = within(claims::find(&connection, &self.claim)).await?;
        drop(connection);
        let Some(standing) = (match before {
            Some(standing) => Some(standing),
            None => self.claim(app, command).await?,
        }) else {
            return Ok(None);
        };
        let answer = idempotency::answer_to(standing, &app.server_key, &self.claim.id)?;
        Ok(Some(answer.into_response()))
    }

    /// Opens the call and claims the key in one append, or says what has claimed the key before.
    async fn claim(&self, app: &App, command: OpenRequest) -> Result<Option<Standing>, ApiError> {
        let request_id = command.request_id;
        let keep = move |outcome: &Result<Opened, Refusal>| match outcome {
            Ok(_) => Keep::Call(request_id),
            // A refused call is no call: the key is free for another try.
            Err(_) => Keep::Nothing,
        };
        match app.ledger.submit_claiming(command, self.claim.clone(), keep).await? {
            Written::Now(Ok(_), _) => Ok(None),
            Written::Now(Err(refusal), _) => Err(refusal.into()),
            Written::Before(standing) => Ok(Some(standing)),
        }
    }

    /// What keeps the answer that begins with `status` and `headers`.
    pub(super) fn keeper(&self, status: StatusCode, headers: &HeaderMap) -> Keeper {
        let content_type =
            headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let keeps = self.keeps && !STREAMS.contains(&essence.as_str());
        let head = keeps.then(|| (status, headers.clone()));
        Keeper { claim: self.claim.id.clone(), head, body: BytesMut::new() }
    }

    /// The end of the claim of a call that made no connection to its provider.
    pub(super) fn release(&self) -> (ClaimId, Closing) {
        (self.claim.id.clone(), Closing::Release)
    }
}

/// The merchant and the path that a key counts under: of a merchant's own call the URL it goes to, of a spend key's
/// the spend key as well, since whoever holds one knows nothing of another's calls.
async fn scope(app: &App, command: &OpenRequest) -> Result<(MerchantId, String), ApiError> {
    match &command.caller {
        Caller::SecretKey(hash) => match app.state(StateKey::SecretKey(hash.clone())).await? {
            Some(State::SecretKey(key)) => Ok((key.merchant_id, command.endpoint.clone())),
            Some(_) | None => Err(ApiError::SecretKeyInvalid),
        },
        Caller::SpendKey(hash) => {
            let unknown = ApiError::SpendKeyInvalid;
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
            Ok((key.merchant_id, format!("{id} {}", command.endpoint)))
        }
    }
}

/// Who pays, as the caller named it: the same key for another payer is another request.
fn payer(command: &OpenRequest) -> String {
    let customer = match &command.customer {
        None => String::new(),
        Some(CustomerRef::Id(id) | CustomerRef::Secret(id)) => id.to_string(),
        Some(CustomerRef::Reference(reference)) => format!("={reference}"),
    };
    let meter = match &command.meter {
        None => String::new(),
        Some(MeterRef::Id(id) | MeterRef::Secret(id)) => id.to_string(),
        Some(MeterRef::Slug(slug)) => format!("={slug}"),
    };
    let billing = match command.billing {
        Billing::Usual => "usual",
        Billing::Disabled => "disabled",
        Billing::MeteringOnly => "metering only",
    };
    serde_json::json!([customer, meter, billing]).to_string()
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
    pub(super) fn kept(&self, server_key: &ServerKey) -> Option<(ClaimId, Closing)> {
        let (status, headers) = self.head.clone()?;
        let answer = Answer { status, headers, body: Bytes::copy_from_slice(&self.body) };
        Some((self.claim.clone(), Closing::Answer(answer.seal(server_key, &self.claim))))
    }
}
