//! Authentication of the standard endpoints: `Authorization: Bearer <secret key>` (interface.md, Authentication). The list of
//! models takes what the model endpoints take (completion.md section 11).
//! Invariant: a handler gets a merchant only from [`Merchant`], so it cannot act for an unknown caller.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use farthing_core::command;
use farthing_core::ids::MerchantId;
use farthing_core::secret::{KeyHash, ServerKey};
use farthing_core::state::{SpendKey, State, StateKey};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;

use super::response_headers::Notes;
use crate::app::App;
use crate::caller_address::CallerAddress;
use crate::error::{ApiError, AuthError, LimitError};
use crate::forward;
use crate::known_keys::Owner;
use crate::peers::FromGateway;
use crate::serve::CallInFlight;

/// The merchant of the call's secret key. The call counts against the key's rate limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Merchant {
    /// Its id.
    pub(super) merchant_id: MerchantId,
}

impl FromRequestParts<Arc<App>> for Merchant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let hash = app.server_key.hash(bearer(&parts.headers)?);
        merchant(parts, app, &hash).await
    }
}

/// The merchant whose secret key has this hash.
async fn merchant(parts: &Parts, app: &App, hash: &KeyHash) -> Result<Merchant, ApiError> {
    match state(parts, app, StateKey::SecretKey(hash.clone())).await? {
        Some((_, State::SecretKey(key))) => {
            count(parts, app, key.merchant_id, hash).await?;
            Ok(Merchant { merchant_id: key.merchant_id })
        }
        Some(_) | None => Err(ApiError::Auth(AuthError::SecretKeyInvalid)),
    }
}

/// The state under the key's hash, with its owner; `None` for an unknown key.
async fn state(parts: &Parts, app: &App, key: StateKey) -> Result<Option<(Owner, State)>, ApiError> {
    app.known_keys.state(key, CallerAddress::of_request(parts), &app.ledger, &app.reads).await
}

/// Counts a call that is made with the merchant's key of this hash: as one in flight, which may have to wait for others of
/// the merchant, and then against the key's rate limit.
async fn count(parts: &Parts, app: &App, merchant_id: MerchantId, hash: &KeyHash) -> Result<(), ApiError> {
    if parts.extensions.get::<FromGateway>().is_some() {
        // The gateway that passed the call on has counted it, and has the memory for its bodies.
        return CallInFlight::belongs_to(merchant_id, hash.into(), &parts.extensions).await;
    }
    let notes = parts.extensions.get::<Notes>();
    if let Some(notes) = notes {
        notes.merchant(merchant_id);
    }
    let status = if let Some(full) = app.rate_limits.full(hash) {
        full
    } else {
        CallInFlight::belongs_to(merchant_id, hash.into(), &parts.extensions).await?;
        app.rate_limits.count_call(app, merchant_id, hash).await?
    };
    if let Some(notes) = notes {
        notes.rate_limit(status);
    }
    match status.retry_after_seconds {
        Some(retry_after_seconds) => {
            Err(ApiError::Limit(LimitError::RateLimitExceeded { retry_after_seconds }))
        }
        None => Ok(()),
    }
}

/// The holder of a secret key or a spend key, which travels as at the model endpoints: in any slot, alone or in a forward token.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    /// A merchant, by a secret key.
    Merchant(#[expect(dead_code, reason = "only its presence matters")] Merchant),
    /// A spend key that is usable now, by the rules of the forward endpoint.
    SpendKey(Box<SpendKey>),
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        let hash = match in_any_slot(&parts.headers, query, &app.server_key)? {
            command::Caller::SecretKey(hash) => return merchant(parts, app, &hash).await.map(Self::Merchant),
            command::Caller::SpendKey(hash) => hash,
        };
        let found = state(parts, app, StateKey::SpendKeyHash(hash.clone())).await?;
        let Some((Owner { partition, merchant_id }, State::SpendKeyHash(id))) = found else {
            return Err(ApiError::Auth(AuthError::SpendKeyInvalid));
        };
        match app
            .ledger
            .states(partition, Some(merchant_id), [StateKey::SpendKey(id), StateKey::Spending(id)])
            .await?
        {
            [Some(State::SpendKey(key)), Some(State::Spending(spending))] => {
                count(parts, app, key.merchant_id, &hash).await?;
                if let Some(customer) = key.customer_id
                    && app.state(merchant_id, StateKey::Customer(customer)).await?.is_none()
                {
                    return Err(ApiError::Auth(AuthError::SpendKeyInvalid));
                }
                key.check_usable(spending.instant(app.merchants_now(key.merchant_id).await?))?;
                Ok(Self::SpendKey(key))
            }
            _ => Err(ApiError::Auth(AuthError::SpendKeyInvalid)),
        }
    }
}

/// The key of a call with this raw query, in any slot. Where no slot has a credential of ours, a bearer token is an unknown secret
/// key, as at the other standard endpoints.
fn in_any_slot(
    headers: &HeaderMap,
    query: &str,
    server_key: &ServerKey,
) -> Result<command::Caller, ApiError> {
    forward::caller_of(headers, query, server_key).map_err(|error| match bearer(headers) {
        Ok(_) if !forward::has_credential(headers, query) => ApiError::Auth(AuthError::SecretKeyInvalid),
        Ok(_) | Err(_) => error,
    })
}

/// The one bearer token of `headers`.
fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(ApiError::Auth(AuthError::HeaderMissing))?;
    if values.next().is_some() {
        return Err(ApiError::Auth(AuthError::HeaderInvalid));
    }
    let text = value.to_str().map_err(|_| ApiError::Auth(AuthError::HeaderInvalid))?;
    let (scheme, token) = text.split_once(' ').ok_or(ApiError::Auth(AuthError::HeaderInvalid))?;
    let token = token.trim();
    let plain = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if scheme.eq_ignore_ascii_case("bearer") && plain {
        Ok(token)
    } else {
        Err(ApiError::Auth(AuthError::HeaderInvalid))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(values: &[&'static [u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn the_scheme_is_read_in_any_case() {
        assert_eq!(bearer(&headers(&[b"Bearer aks_test_x"])), Ok("aks_test_x"));
        assert_eq!(bearer(&headers(&[b"bEARER  aks_test_x "])), Ok("aks_test_x"));
    }

    #[test]
    fn a_key_in_any_slot_is_read_and_a_bearer_token_of_no_known_form_is_an_unknown_key() {
        let server_key = ServerKey::random();
        let read = |pairs: &[(&'static str, &'static str)], query: &str| {
            let header = |(name, text): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(text))
            };
            in_any_slot(&pairs.iter().map(header).collect(), query, &server_key)
        };
        let secret = command::Caller::SecretKey(server_key.hash("aks_test_k"));
        let spend = command::Caller::SpendKey(server_key.hash("spk_k"));
        for name in ["x-api-key", "x-goog-api-key", "xi-api-key", "api-key"] {
            assert_eq!(read(&[(name, "spk_k")], ""), Ok(spend.clone()), "{name}");
            let beside_anothers = [("authorization", "Bearer sk-theirs"), (name, "aks_test_k")];
            assert_eq!(read(&beside_anothers, ""), Ok(secret.clone()), "{name}");
        }
        assert_eq!(read(&[], "limit=7&key=spk_k"), Ok(spend.clone()));
        assert_eq!(read(&[("authorization", "Bearer spk_k")], "key=sk-theirs"), Ok(spend.clone()));
        // The first slot with a credential decides.
        let both = [("authorization", "Bearer spk_k"), ("x-api-key", "aks_test_k")];
        assert_eq!(read(&both, ""), Ok(spend));
        // {"secret_key":"aks_test_k"}
        let token = [("x-api-key", "eyJzZWNyZXRfa2V5IjoiYWtzX3Rlc3RfayJ9")];
        assert_eq!(read(&token, ""), Ok(secret));
        let code =
            |pairs: &[(&'static str, &'static str)], query: &str| read(pairs, query).unwrap_err().code();
        assert_eq!(code(&[], "a=b"), "auth_header_missing");
        assert_eq!(code(&[("authorization", "Basic eDp5")], ""), "auth_header_invalid");
        assert_eq!(code(&[("authorization", "Bearer ")], ""), "auth_header_invalid");
        assert_eq!(code(&[("authorization", "Bearer sk-theirs")], ""), "secret_key_invalid");
        // e30= is {}.
        assert_eq!(code(&[("authorization", "Bearer e30=")], ""), "forward_token_json_invalid");
        assert_eq!(code(&[("x-api-key", "sk-theirs")], ""), "forward_token_json_invalid");
        let beside_anothers = [("authorization", "Bearer sk-theirs"), ("x-api-key", "e30=")];
        assert_eq!(code(&beside_anothers, ""), "forward_token_json_invalid");
    }

    #[test]
    fn a_missing_header_and_an_invalid_one_have_different_errors() {
        assert_eq!(bearer(&headers(&[])), Err(ApiError::Auth(AuthError::HeaderMissing)));
        let no_tokens: [&[&[u8]]; 7] = [
            &[b""],
            &[b"Bearer"],
            &[b"Bearer "],
            &[b"Basic eA=="],
            &[b"Bearer a b"],
            &[b"Bearer \xff"],
            &[b"x", b"y"],
        ];
        for values in no_tokens {
            assert_eq!(bearer(&headers(values)), Err(ApiError::Auth(AuthError::HeaderInvalid)), "{values:?}");
        }
    }
}
