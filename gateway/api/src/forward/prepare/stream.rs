//! Streams, which must report their usage if the instance pays for them, or if their answer is converted.

use http::HeaderMap;

use super::Terms;
use crate::body_memory::beside_others;
use crate::error::ApiError;
use crate::forward::headers;
use crate::forward::read_call::ReadCall;
use crate::forward::request_body::RequestBody;
use crate::forward::response_change::ResponseRule;
use crate::forward::usage::{RequestedStream, requesting_usage};
use crate::providers::StreamUsage;

/// Refuses a stream on a managed key that is not known to report its usage, and asks for the usage where it is needed.
pub(super) fn fit_stream(
    terms: Terms<'_>,
    read: &mut ReadCall,
    outgoing: &mut HeaderMap,
) -> Result<(), ApiError> {
    let stream_usage = terms.provider.stream_usage(&read.target);
    let is_stream = read.options.stream != RequestedStream::None;
    // Also one that asks for its usage: whether the provider then reports it is not known.
    if terms.is_managed() && is_stream && stream_usage == StreamUsage::Unknown {
        let message = "must be false: this provider is not known to report the usage of such a stream";
        return Err(ApiError::issue(["stream"], message));
    }
    let hides_usage = read.options.stream == RequestedStream::WithoutUsage;
    if needs_usage(terms, read.rule) && hides_usage && stream_usage == StreamUsage::OnRequest {
        request_usage(read, outgoing)?;
    }
    Ok(())
}

/// Whether the usage of a stream is needed.
fn needs_usage(terms: Terms<'_>, rule: ResponseRule) -> bool {
    match rule {
        // The instance pays for calls on its own keys, so these must report their usage and have a list price.
        ResponseRule::Unchanged | ResponseRule::WithoutUsageChunk => terms.is_managed(),
        // The usage of a stream is a part of the caller's format, whoever pays.
        ResponseRule::Converted(..) => terms.provider.is_known(),
    }
}

/// Alters the body so that it asks for the usage, which does not reach a caller that did not ask.
fn request_usage(read: &mut ReadCall, outgoing: &mut HeaderMap) -> Result<(), ApiError> {
    let altered = read.json.as_ref().and_then(|json| beside_others(json.len(), || requesting_usage(json)));
    let altered = altered.ok_or_else(|| ApiError::issue(["stream_options"], "must be an object"))?;
    headers::fit_altered_body(outgoing, altered.len());
    read.body = RequestBody::whole(altered.into());
    if let ResponseRule::Unchanged = read.rule {
        read.rule = ResponseRule::WithoutUsageChunk;
    }
    Ok(())
}
