//! Reads the forward credential from any of its slots, in each of its forms (interface.md, Authentication; completion.md
//! section 3). Pure.

mod disguise;
mod token;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use farthing_core::command::{Billing, Caller, CustomerRef, MeterRef};
use farthing_core::secret::ServerKey;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName};

use self::token::TokenBody;
use super::headers::Slot;
use crate::error::{ApiError, AuthError, ForwardError, Issue};
use crate::input;
use crate::target::Query;

/// The longest credential that is read, in bytes.
const MAX_CREDENTIAL: usize = 16 * 1024;

/// The headers whose whole value is the credential, in the order in which they are searched. The last is that of Azure's
/// clients.
const KEY_HEADERS: [&str; 4] = ["x-api-key", "x-goog-api-key", "xi-api-key", "api-key"];

/// The prefix of a spend key.
const SPEND_KEY: &str = "spk_";

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// A credential, checked as far as possible without the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) caller: Caller,
    pub(crate) customer: Option<CustomerRef>,
    pub(crate) meter: Option<MeterRef>,
    pub(crate) billing: Billing,
    /// The caller's own provider key.
    pub(crate) provider_key: Option<String>,
}

impl Credential {
    /// A plain key.
    fn plain(caller: Caller) -> Self {
        Self { caller, customer: None, meter: None, billing: Billing::Usual, provider_key: None }
    }
}

/// A credential and its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) credential: Credential,
    /// The slot it came in.
    pub(crate) slot: Slot,
    /// All slots that hold a credential of this service. None of them reaches the provider.
    pub(crate) slots: Vec<Slot>,
}

/// The content of a slot, by its beginning and its encoding.
enum Token<'a> {
    SecretKey(&'a str),
    SpendKey(&'a str),
    /// A text in base64: a forward token if it is a JSON object, whatever its fields are.
    Text(String),
}

impl Token<'_> {
    /// Fails for a text that is no forward token. It is another service's credential, or an invalid one.
    fn check(&self) -> Result<(), ApiError> {
        match self {
            Self::Text(json) if input::check_object(json).is_err() => {
                Err(foreign("must be base64 of a JSON object"))
            }
            Self::SecretKey(_) | Self::SpendKey(_) | Self::Text(_) => Ok(()),
        }
    }

    /// The credential, or why it is refused. Fails as [`Token::check`] does. The text of a token is read once, unless
    /// something is wrong with it.
    fn credential(&self, server_key: &ServerKey) -> Result<Result<Credential, ApiError>, ApiError> {
        let caller = match self {
            Self::SecretKey(key) => Caller::SecretKey(server_key.hash(key)),
            Self::SpendKey(key) => Caller::SpendKey(server_key.hash(key)),
            Self::Text(json) => {
                return match TokenBody::read(json) {
                    Ok(body) => Ok(body.credential(server_key)),
                    Err(refused) => self.check().map(|()| Err(refused)),
                };
            }
        };
        Ok(Ok(Credential::plain(caller)))
    }
}

/// Finds the credential: the first slot that holds one of this service, in the order of the specification.
pub(crate) fn find(headers: &HeaderMap, keys: &[String], server_key: &ServerKey) -> Result<Found, ApiError> {
    let mut first_ours = None;
    let mut first_foreign = None;
    let mut slots = Vec::new();
    for Present { slot, scheme, bytes, text } in present(headers, keys) {
        let token = text.ok_or(ApiError::Auth(AuthError::HeaderInvalid)).and_then(read);
        // The fields of the first one of ours alone are read.
        let ours = match (token, scheme) {
            (Ok(token), Scheme::Right) if first_ours.is_none() => token.credential(server_key).map(Some),
            (Ok(token), _) => token.check().map(|()| None),
            (Err(error), _) => Err(error),
        };
        match (ours, scheme) {
            (Err(error), scheme) => {
                // It authorises nothing, but may hold a secret of ours all the same.
                slots.extend(disguise::holds_a_secret(bytes).then_some(slot));
                let error = match scheme {
                    Scheme::Right => error,
                    Scheme::Wrong => ApiError::Auth(AuthError::HeaderInvalid),
                };
                first_foreign = first_foreign.or(Some(error));
            }
            // The scheme is wrong, but the value is still a secret to remove.
            (Ok(_), Scheme::Wrong) => {
                slots.push(slot);
                first_foreign = first_foreign.or(Some(ApiError::Auth(AuthError::HeaderInvalid)));
            }
            (Ok(credential), Scheme::Right) => {
                slots.push(slot);
                first_ours = first_ours.or(credential.map(|credential| (slot, credential)));
            }
        }
    }
    let Some((slot, credential)) = first_ours else {
        return Err(first_foreign.unwrap_or(ApiError::Auth(AuthError::HeaderMissing)));
    };
    Ok(Found { credential: credential?, slot, slots })
}

/// The key of the credential that [`find`] finds in a request with this raw query.
pub(crate) fn caller_of(
    headers: &HeaderMap,
    query: &str,
    server_key: &ServerKey,
) -> Result<Caller, ApiError> {
    find(headers, &Query::read(query).keys, server_key).map(|found| found.credential.caller)
}

/// Whether a slot of a request with this raw query holds what has the form of a credential of this service.
pub(crate) fn has_credential(headers: &HeaderMap, query: &str) -> bool {
    present(headers, &Query::read(query).keys).iter().any(|present| present.text.is_some_and(is_ours))
}

/// Whether this text has the form of a credential of this service.
pub(crate) fn is_ours(text: &str) -> bool {
    read(text).is_ok_and(|token| token.check().is_ok())
}

/// Whether this text holds a secret of this service, whatever it is wrapped in.
pub(crate) fn is_within(text: &str) -> bool {
    disguise::holds_a_secret(text.as_bytes())
}

/// The first header whose value holds a secret of this service, whatever it is wrapped in.
pub(crate) fn header_with_one(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.iter().find(|(_, value)| disguise::holds_a_secret(value.as_bytes())).map(|(name, _)| name)
}

/// Whether a value has the scheme that its slot requires.
#[derive(Clone, Copy)]
enum Scheme {
    Right,
    Wrong,
}

/// A value in a slot; without text if it is not printable ASCII.
struct Present<'a> {
    slot: Slot,
    scheme: Scheme,
    /// The whole value.
    bytes: &'a [u8],
    text: Option<&'a str>,
}

/// Every value of every slot, in the order of the specification. An empty slot beside `Authorization` counts as absent.
fn present<'a>(headers: &'a HeaderMap, keys: &'a [String]) -> Vec<Present<'a>> {
    let mut found = Vec::with_capacity(2);
    for value in headers.get_all(AUTHORIZATION) {
        let text = value.to_str().ok().map(str::trim);
        let (scheme, text) = match text.and_then(|text| text.split_once(' ')) {
            Some((word, token)) if word.eq_ignore_ascii_case("bearer") => (Scheme::Right, Some(token.trim())),
            Some((_, token)) => (Scheme::Wrong, Some(token.trim())),
            None => (Scheme::Wrong, text),
        };
        found.push(Present { slot: Slot::Authorization, scheme, bytes: value.as_bytes(), text });
    }
    for name in KEY_HEADERS {
        for value in headers.get_all(name) {
            let text = value.to_str().ok().map(str::trim);
            let bare = text.map(|text| match text.split_once(' ') {
                Some((word, token)) if word.eq_ignore_ascii_case("bearer") => token.trim(),
                Some(_) | None => text,
            });
            if text == Some("") {
                continue;
            }
            let (slot, scheme) = (Slot::Plain(name), Scheme::Right);
            found.push(Present { slot, scheme, bytes: value.as_bytes(), text: bare });
        }
    }
    found.extend(keys.iter().filter(|key| !key.is_empty()).map(|key| Present {
        slot: Slot::Query,
        scheme: Scheme::Right,
        bytes: key.as_bytes(),
        text: Some(key),
    }));
    found
}

/// The content of a slot. Fails for what cannot be a credential of this service.
fn read(text: &str) -> Result<Token<'_>, ApiError> {
    if text.starts_with("aks_") {
        return Ok(Token::SecretKey(text));
    }
    if text.starts_with(SPEND_KEY) {
        return Ok(Token::SpendKey(text));
    }
    if text.is_empty() || text.len() > MAX_CREDENTIAL {
        return Err(foreign("must be base64 of at most 16 KiB"));
    }
    let Ok(bytes) = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)) else {
        return Err(foreign("must be base64"));
    };
    String::from_utf8(bytes).map(Token::Text).map_err(|_| foreign("must be base64 of a JSON object"))
}

/// The answer to a credential of another service, or an invalid one, if there is none of ours.
fn foreign(message: &str) -> ApiError {
    ApiError::Forward(ForwardError::TokenJsonInvalid(vec![Issue::new([""; 0], message)]))
}

#[cfg(test)]
mod tests;
