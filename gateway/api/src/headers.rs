//! Header names that several parts of the interface share.

use http::HeaderName;

/// Names the call, for finding it in logs; on the forward endpoint it is the request's id.
pub(crate) const SERVICE_REQUEST_ID: HeaderName = HeaderName::from_static("x-service-request-id");
