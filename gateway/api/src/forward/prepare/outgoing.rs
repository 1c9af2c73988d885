//! The request to the provider: its headers as far as they do not depend on who pays, and its parts put together.

use bytes::Bytes;
use http::header::TRANSFER_ENCODING;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;

use super::Terms;
use crate::error::ApiError;
use crate::forward::called_endpoint::CalledEndpoint;
use crate::forward::credential::{self, Found};
use crate::forward::headers;
use crate::forward::read_call::ReadCall;
use crate::forward::request_body::RequestBody;
use crate::forward::response_change::ResponseRule;

/// The headers that pass to the provider. Refuses a credential of this service in one that is none of its slots.
pub(super) fn headers_to_provider(
    called: CalledEndpoint,
    given: HeaderMap,
    found: &Found,
) -> Result<HeaderMap, ApiError> {
    let mut outgoing = headers::to_provider(given, &found.slots);
    if let CalledEndpoint::Model(_) = called {
        headers::without_own_keys(&mut outgoing);
    }
    if let Some(name) = credential::header_with_one(&outgoing) {
        let message = "holds a credential of this service, which must not reach a provider; send it in one of its own \
                       slots alone";
        return Err(ApiError::issue([name.as_str()], message));
    }
    Ok(outgoing)
}

/// Fits the headers to a body that was read whole, at the model endpoints and the rewrite endpoint.
pub(super) fn fit_read_body(terms: Terms<'_>, read: &ReadCall, outgoing: &mut HeaderMap) {
    if terms.called == CalledEndpoint::Forward {
        return;
    }
    headers::fit_whole_body(outgoing, read.json.as_ref().map_or(0, Bytes::len));
    if let ResponseRule::Converted(..) = read.rule {
        headers::fit_converted_body(outgoing);
    }
    if terms.provider.name == "anthropic" {
        headers::fit_anthropic(outgoing);
    }
}

/// The request with these parts.
pub(super) fn request(
    method: Method,
    target: Uri,
    headers: HeaderMap,
    body: RequestBody,
) -> Request<RequestBody> {
    let has_unsized_body = !body.is_end_stream() && body.size_hint().exact().is_none();
    let is_unsized_get = has_unsized_body && method == Method::GET;
    let mut outgoing = Request::new(body);
    *outgoing.method_mut() = method;
    *outgoing.uri_mut() = target;
    *outgoing.headers_mut() = headers;
    if is_unsized_get {
        // A GET may have a body; hyper sends it only with a Transfer-Encoding header.
        outgoing.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    *outgoing.version_mut() = Version::HTTP_11;
    outgoing
}
