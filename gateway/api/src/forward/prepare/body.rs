//! How much of a body is read ahead, and the bodies that readers may understand in two ways.

use http::Uri;

use super::Terms;
use crate::error::ApiError;
use crate::forward::read_call::too_many_members;
use crate::forward::request_body::Ahead;
use crate::forward::usage::{RequestedOptions, Shape};
use crate::providers::{Key, Recognised};

/// What is read ahead of a body that passes unchanged.
pub(super) fn ahead_of(provider: Recognised<'_>, target: &Uri, idempotency_key: Option<&str>) -> Ahead {
    // Elsewhere a form may be anything, and passes as it comes.
    let is_transcription = provider.shape(target) == Shape::Transcription;
    match (idempotency_key, is_transcription) {
        (Some(_), _) => Ahead::Any,
        (None, true) => Ahead::JsonOrForm,
        (None, false) => Ahead::Json,
    }
}

/// Refuses a body of which the provider may read something else than was read here, if that matters on these terms.
pub(super) fn check_members(terms: Terms<'_>, options: &RequestedOptions) -> Result<(), ApiError> {
    if options.has_too_many_members && terms.is_managed() {
        return Err(too_many_members());
    }
    let ambiguous = match terms.key {
        Key::Managed(_) => options.ambiguous,
        // A spend key may be for some models only. One that is spelled otherwise is no model to it.
        Key::Callers => (terms.on_spend_key && options.repeats_model).then_some("model"),
    };
    ambiguous.map_or(Ok(()), |name| Err(ambiguous_member(name)))
}

/// A member that readers may understand in two ways.
pub(in crate::forward) fn ambiguous_member(name: &str) -> ApiError {
    ApiError::issue([name], "must be given once in the body, in exactly this spelling")
}
