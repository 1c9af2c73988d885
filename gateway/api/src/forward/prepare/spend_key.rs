//! What a spend key allows of a call, as far as it is checked before the call is opened.

use farthing_core::command::Caller;
use farthing_core::event::RequestShape;
use farthing_core::ids::MerchantId;
use farthing_core::secret::KeyHash;
use farthing_core::state::{SpendKey, State, StateKey};

use crate::app::App;
use crate::body_memory::beside_others;
use crate::error::{ApiError, AuthError};
use crate::forward::forwarder::Forwarder;
use crate::forward::turns::{Conversions, TurnWithMemory};
use crate::forward::usage::are_further_models_among;
use crate::model_endpoints::{AllowedProviders, ModelEndpoint};

/// Refuses a spend key of another shape than the endpoint's. Keys without a shape, and merchants, may call every endpoint.
/// Returns the providers that the caller may call.
pub(super) async fn check_shape(
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
pub(super) async fn check_further_models(
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
