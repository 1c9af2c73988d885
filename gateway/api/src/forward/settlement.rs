//! The settlement of one call: derives the command from the provider's report and submits it until it is durable.

use std::sync::Arc;
use std::time::Duration;

use farthing_core::command::{Completeness, Failed, Metered, SettleRequest, Settled};
use farthing_core::event::FailureReason;
use farthing_core::idempotency::ClaimId;
use farthing_core::ids::RequestId;
use farthing_log::appender::{ClaimEnd, Error};
use farthing_log::backoff::Backoff;
use tokio_util::sync::CancellationToken;

use super::usage::{ReportedUsage, UsageReport};
use crate::app::App;

/// The first and the longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Why a call could not be settled. Its response must not be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsettled {
    /// Another gateway ended it as abandoned, because this one sent no heartbeat.
    #[error("another gateway ended the request before it was settled")]
    Ended,
    /// This process stops.
    #[error("the gateway is stopping")]
    Stopping,
}

/// How a provider's response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseEnd {
    /// The provider completed it.
    Complete,
    /// The provider failed, or the gateway stopped waiting for it.
    Interrupted,
    /// The caller disconnected, and the gateway closed the provider's connection before the end.
    CallerGone,
}

/// The settlement of a provider's response with `status`.
pub(crate) fn settle(status: http::StatusCode, report: UsageReport, end: ResponseEnd) -> Settled {
    let http_status = status.as_u16();
    let UsageReport { reported, raw_usage, response_id, model, timestamp } = report;
    let failed = |reason, raw_usage| {
        Settled::Failed(Failed {
            reason,
            http_status: Some(http_status),
            raw_usage,
            response_id: response_id.clone(),
            model: model.clone(),
        })
    };
    if !status.is_success() {
        return failed(FailureReason::ProviderStatus, None);
    }
    let usage = match (reported, end) {
        (ReportedUsage::Invalid, _) => return failed(FailureReason::UsageInvalid, raw_usage),
        (ReportedUsage::Nothing, ResponseEnd::Interrupted) => {
            return failed(FailureReason::ProviderGone, None);
        }
        (ReportedUsage::Nothing, ResponseEnd::CallerGone) => return failed(FailureReason::CallerGone, None),
        (ReportedUsage::Nothing, ResponseEnd::Complete) => None,
        (ReportedUsage::Usage(usage), _) => Some(usage),
    };
    let ending = match end {
        ResponseEnd::Complete => Completeness::Whole,
        ResponseEnd::Interrupted | ResponseEnd::CallerGone => Completeness::Partial,
    };
    Settled::Metered(Metered {
        http_status,
        usage,
        ending,
        raw_usage,
        response_id,
        model,
        provider_timestamp: timestamp,
    })
}

/// Logs a call that this process leaves unsettled, with the facts that only this process knows. Another gateway will
/// end it as `abandoned` without a charge; its `request.opened` has the terms for a charge by hand.
fn log_unsettled(request_id: RequestId, settled: &Settled) {
    match settled {
        Settled::Metered(Metered {
            http_status,
            usage,
            ending,
            raw_usage,
            response_id,
            model,
            provider_timestamp,
        }) => {
            let usage = usage.as_ref().and_then(|usage| serde_json::to_string(usage).ok());
            tracing::error!(
                event = "forward.call_left_unsettled",
                %request_id, http_status, usage, ?ending, raw_usage, response_id, model, ?provider_timestamp,
                "a call is left unsettled: charge it by the terms in its request.opened"
            );
        }
        Settled::Failed(Failed { reason, http_status, raw_usage, response_id, model }) => {
            tracing::error!(
                event = "forward.failed_call_left_unsettled",
                %request_id, ?reason, http_status, raw_usage, response_id, model,
                "a failed call is left unsettled: nothing is to be charged"
            );
        }
    }
}

/// Submits the settlement until it is durable, together with the closing of the call's idempotency key. Retries while
/// the ledger is unavailable, until `stop`.
pub(crate) async fn until_durable(
    app: Arc<App>,
    request_id: RequestId,
    settled: Settled,
    closing: Option<(ClaimId, ClaimEnd)>,
    stop: CancellationToken,
) -> Result<(), Unsettled> {
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    loop {
        let now = app.now();
        let command = SettleRequest { request_id, settled: settled.clone(), now };
        let submitted = match closing.clone() {
            None => app.ledger.settle(command).await,
            Some((claim, closing)) => app.ledger.submit_closing(command, claim, request_id, closing).await,
        };
        match submitted {
            Ok(()) => return Ok(()),
            Err(Error::Refused(refusal)) => {
                tracing::error!(event = "forward.settlement_refused", %request_id, %refusal, "the settlement was refused");
                return Err(Unsettled::Ended);
            }
            Err(error @ (Error::Unavailable(_) | Error::Internal(_) | Error::Overloaded)) => {
                tracing::warn!(event = "forward.settlement_retried", %request_id, %error, "the settlement is retried");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next_delay()) => {}
            () = stop.cancelled() => {
                log_unsettled(request_id, &settled);
                return Err(Unsettled::Stopping);
            }
        }
    }
}
