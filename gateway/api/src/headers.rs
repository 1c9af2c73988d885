//! Header names that several parts of the interface share, and the headers that frame a message.

use http::header::{CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName};

/// Names the call, for finding it in logs; on the forward endpoint it is the request's id.
pub(crate) const SERVICE_REQUEST_ID: HeaderName = HeaderName::from_static("x-service-request-id");

/// The headers that frame one message, or that speak of its connection (RFC 9112, section 6; RFC 9110, section 7.6).
const FRAMING: [HeaderName; 8] = [
    CONNECTION,
    CONTENT_LENGTH,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Whether the header frames one message, or speaks of its connection.
pub(crate) fn is_framing(name: &HeaderName) -> bool {
    FRAMING.contains(name)
}

/// Removes what frames another message: the HTTP library frames each one by its own body.
pub(crate) fn without_framing(headers: &mut HeaderMap) {
    for name in &FRAMING {
        headers.remove(name);
    }
}
