//! The keys of the facts of calls.

use farthing_core::ids::RequestId;

/// The key of the fact that opens a call.
pub(super) fn opened(request_id: RequestId) -> String {
    format!("{request_id}/opened")
}

/// The key of the fact that meters a call.
pub(super) fn metered(request_id: RequestId) -> String {
    format!("{request_id}/metered")
}

/// The key of the fact that ends a call without a charge.
pub(super) fn failed_call(request_id: RequestId) -> String {
    format!("{request_id}/failed")
}
