//! The end of calls that nothing else would end: those that may be open although nobody forwards them, and those whose task
//! panics. Their holds would be kept for as long as the gateway lives.

use std::sync::Arc;

use farthing_core::command::{Failed, Settled};
use farthing_core::event::FailureReason;
use farthing_core::idempotency::ClaimId;
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;
use farthing_log::appender::ClaimEnd;
use farthing_log::ledger::OPENED_WITHIN;
use farthing_telemetry::Counted;

use super::forwarder::{Forwarder, OpenCall};
use super::request_body::Unsent;
use super::settlement::{Unsettled, leave_unsettled, log_unsettled, until_durable};
use crate::metrics::CallLabel;

/// What is known of the opening of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// It is in the log.
    Durable,
    /// It may be, or may come to be.
    InDoubt,
}

/// Takes care of a call that has come to its end, and that the ledger does not know as open. The facts of its response are
/// logged, unless the opening turns out to be in the log and the call is settled after all, with `closing` of its idempotency
/// key.
pub(super) fn settle_late(
    forwarder: &Arc<Forwarder>,
    call: OpenCall,
    settled: Settled,
    closing: Option<(ClaimId, ClaimEnd)>,
    opening: Opening,
) {
    let OpenCall { partition, request_id, provider, .. } = call;
    match opening {
        // Another gateway has ended it, which knows nothing of the response.
        Opening::Durable => leave_unsettled(request_id, &settled, &forwarder.app.metrics.forward.unsettled),
        // Nobody knows what the provider has done.
        Opening::InDoubt if !is_answered(&settled) => {
            end_if_open(forwarder, (partition, request_id), FailureReason::Abandoned, closing);
        }
        Opening::InDoubt => {
            let forwarder = Arc::clone(forwarder);
            forwarder.tasks.clone().spawn(async move {
                let (app, abort) = (&forwarder.app, forwarder.abort.clone());
                let settling = async {
                    tokio::time::sleep(OPENED_WITHIN).await;
                    until_durable(app, partition, request_id, &settled, closing, abort.clone()).await
                };
                match abort.run_until_cancelled(settling).await {
                    Some(Ok(unmetered)) => {
                        app.metrics.forward.settled(CallLabel::of(provider, &settled, unmetered));
                    }
                    // It may never have been opened, so it is not counted.
                    Some(Err(Unsettled::Ended)) | None => log_unsettled(request_id, &settled),
                    Some(Err(Unsettled::Stopping | Unsettled::Unsettleable)) => {}
                }
            });
        }
    }
}

fn is_answered(settled: &Settled) -> bool {
    matches!(settled, Settled::Metered(metered) if metered.status().is_some())
}

/// Ends a call that may be open although nobody forwards it, with `closing` of its idempotency key. An opening on its way
/// to another gateway is too late by then.
pub(super) fn end_if_open(
    forwarder: &Forwarder,
    (partition, request_id): (Partition, RequestId),
    reason: FailureReason,
    closing: Option<(ClaimId, ClaimEnd)>,
) {
    let (app, abort) = (Arc::clone(&forwarder.app), forwarder.abort.clone());
    forwarder.tasks.spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(OPENED_WITHIN) => {}
            // At the end of the process the sweeper of another gateway ends it.
            () = abort.cancelled() => return,
        }
        let settled = Settled::Failed(Failed::because(reason));
        // If it was never opened, the settlement is refused.
        let _ = until_durable(&app, partition, request_id, &settled, closing, abort).await;
    });
}

/// A call from its opening to its settlement. It counts as open, and is ended if its task panics.
pub(super) struct InFlight {
    forwarder: Arc<Forwarder>,
    call: OpenCall,
    _open: Counted,
    _unsent: Unsent,
}

impl InFlight {
    pub(super) fn begin(forwarder: &Arc<Forwarder>, call: OpenCall, unsent: Unsent) -> Self {
        let open = Counted::new(&forwarder.app.metrics.forward.open);
        Self { forwarder: Arc::clone(forwarder), call, _open: open, _unsent: unsent }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let OpenCall { partition, request_id, merchant_id, provider_key_type, .. } = self.call;
            tracing::error!(
                event = "forward.call_panicked",
                %merchant_id,
                ?provider_key_type,
                %request_id,
                "the task of a call failed by a fault of the program; the call ends as failed and is not charged"
            );
            self.forwarder.app.metrics.forward.unsettled.inc();
            end_if_open(&self.forwarder, (partition, request_id), FailureReason::Unsettleable, None);
        }
    }
}
