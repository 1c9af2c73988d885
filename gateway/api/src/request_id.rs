//! The id of the request that a task answers, for the log lines of code that does not know it.

use farthing_core::ids::RequestId;
use tokio::task_local;
use tracing::field::{DisplayValue, display};

task_local! {
    static CURRENT: RequestId;
}

/// Does the `work` for the request.
pub(crate) fn answering<F: Future>(request_id: RequestId, work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(request_id, work)
}

/// The same for work that does not wait.
pub(crate) fn answering_at_once<T>(request_id: RequestId, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(request_id, work)
}

/// The field `request_id` of a log line. It is left out where no request is answered.
pub(crate) fn log_field() -> Option<DisplayValue<RequestId>> {
    CURRENT.try_with(|request_id| display(*request_id)).ok()
}
