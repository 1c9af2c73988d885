//! The key that a call carries to its provider: the caller's own, or a managed one.

use http::{HeaderMap, HeaderValue, Uri};

use crate::app::App;
use crate::error::{ApiError, ForwardError, Issue};
use crate::forward::called_endpoint::CalledEndpoint;
use crate::forward::credential::Found;
use crate::forward::headers::{self, KeyPlace, Slot};
use crate::providers::{CallersKey, Key, ProviderKey, Recognised};
use crate::target;

/// Where the caller's own provider key goes, of a call whose credential came in `slot`.
pub(super) fn key_place(provider: Recognised<'_>, target: &Uri, slot: Slot) -> KeyPlace {
    provider.key_slot(target).map_or(KeyPlace::Carrier(slot), KeyPlace::Providers)
}

/// Puts the provider key of the token, if there is one, into a header, unless the URL has it.
pub(super) fn set_key_of_token(
    called: CalledEndpoint,
    (provider, target): (Recognised<'_>, &Uri),
    found: &Found,
    outgoing: &mut HeaderMap,
) -> Result<(), ApiError> {
    let place = key_place(provider, target, found.slot);
    let is_in_url = called == CalledEndpoint::Forward && place == KeyPlace::Carrier(Slot::Query);
    let Some(key) = found.credential.provider_key.as_deref().filter(|_| !is_in_url) else { return Ok(()) };
    let invalid = || {
        let issue = Issue::new(["provider_key"], "cannot stand in a header");
        ApiError::Forward(ForwardError::TokenJsonInvalid(vec![issue]))
    };
    if called != CalledEndpoint::Forward && ProviderKey::new(key).is_none() {
        return Err(invalid());
    }
    headers::set_provider_key(outgoing, place, key).map_err(|_| invalid())
}

/// The key of a call to `target`: the caller's own, in the token, a header or the URL, or else a managed one. Fails if the
/// provider requires one and there is none.
pub(super) fn choose<'a>(
    app: &'a App,
    (provider, target): (Recognised<'_>, &Uri),
    found: &Found,
    own_keys: &[(&'static str, HeaderValue)],
) -> Result<Key<'a>, ApiError> {
    let brings_key = found.credential.provider_key.is_some()
        || !own_keys.is_empty()
        || !target::keys_within(target).is_empty();
    let callers = if brings_key { CallersKey::Present } else { CallersKey::Absent };
    let key = app.providers.key(provider, callers);
    key.map_err(|_| ApiError::Forward(ForwardError::ProviderKeyMissing))
}
