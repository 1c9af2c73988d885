//! What the head of a call says about who sends it, as far as it is checked without the ledger.

use farthing_worker::webhooks::LOOP_HEADER;
use http::HeaderMap;

use crate::error::{ApiError, ForwardError, Issue};
use crate::forward::credential::{self, Found};
use crate::forward::headers;

/// Refuses what a browser sends by itself, and the delivery of a webhook.
pub(super) fn check_sender(headers: &HeaderMap) -> Result<(), ApiError> {
    if let Some(name) = headers::is_of_a_browser_itself(headers) {
        let message = "must be that of a program's own request: nothing here is a page, a script or a worker";
        return Err(ApiError::issue([name], message));
    }
    if headers::is_of_a_webhook(headers) {
        let message = "must not name this service: a webhook's delivery cannot be forwarded";
        return Err(ApiError::issue([LOOP_HEADER.0], message));
    }
    Ok(())
}

/// Refuses a token whose provider key is a credential of this service.
pub(super) fn check_key_is_a_providers(found: &Found) -> Result<(), ApiError> {
    if found.credential.provider_key.as_deref().is_some_and(credential::is_within) {
        let issue = Issue::new(["provider_key"], "must not be a credential of this service");
        return Err(ApiError::Forward(ForwardError::TokenJsonInvalid(vec![issue])));
    }
    Ok(())
}
