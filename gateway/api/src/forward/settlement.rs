//! The settlement of one call: from what the answer reported to a command, and the command until it is durable.

use std::sync::Arc;
use std::time::Duration;

use farthing_core::command::{Ending, Failed, Metered, SettleRequest, Settled};
use farthing_core::event::FailureReason;
use farthing_core::idempotency::ClaimId;
use farthing_core::ids::RequestId;
use farthing_log::appender::{ClaimEnd, Error};
use farthing_log::backoff::Backoff;
use tokio_util::sync::CancellationToken;

use super::usage::{Report, Reported};
use crate::app::App;

/// The first and the longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The call could not be settled: its answer must not be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsettled {
    /// It has been ended by someone else, who took this process for dead.
    #[error("the request had been ended before it was settled")]
    Ended,
    /// This process stops.
    #[error("the gateway stops")]
    Stopping,
}

/// How an answer came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The provider completed it.
    Whole,
    /// The provider broke off, or was no longer waited for.
    BrokenOff,
    /// The caller had gone, and the provider was left before its end.
    Left,
}

/// What a provider's answer with `status` comes to.
pub(crate) fn settle(status: http::StatusCode, report: Report, end: End) -> Settled {
    let http_status = status.as_u16();
    let Report { reported, raw_usage, response_id, model, timestamp } = report;
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
        (Reported::Invalid, _) => return failed(FailureReason::UsageInvalid, raw_usage),
        (Reported::Nothing, End::BrokenOff) => return failed(FailureReason::ProviderGone, None),
        (Reported::Nothing, End::Left) => return failed(FailureReason::CallerGone, None),
        (Reported::Nothing, End::Whole) => None,
        (Reported::Usage(usage), _) => Some(usage),
    };
    let ending = match end {
        End::Whole => Ending::Whole,
        End::BrokenOff | End::Left => Ending::Partial,
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

/// The last word on a call that this process leaves unsettled. It will be ended as `abandoned` and charged nothing;
/// what it used is known here alone, and what it would have been charged by stands in its `request.opened`.
fn tell_lost(request_id: RequestId, settled: &Settled) {
    const LOST: &str = "a call is left unsettled: charge it by the terms in its request.opened";
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
                %request_id, http_status, usage, ?ending, raw_usage, response_id, model, ?provider_timestamp, "{LOST}"
            );
        }
        Settled::Failed(Failed { reason, http_status, raw_usage, response_id, model }) => {
            tracing::error!(
                %request_id, ?reason, http_status, raw_usage, response_id, model,
                "a call is left unsettled: it failed, and costs nothing"
            );
        }
    }
}

/// Submits the settlement until it is durable, with what becomes of the idempotency key it was made under. While the
/// ledger is away it waits: nothing is lost by waiting.
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
            None => app.ledger.submit(command).await,
            Some((claim, closing)) => app.ledger.submit_closing(command, claim, request_id, closing).await,
        };
        match submitted {
            Ok(()) => return Ok(()),
            Err(Error::Refused(refusal)) => {
                tracing::error!(%request_id, %refusal, "a settlement was refused");
                return Err(Unsettled::Ended);
            }
            Err(Error::Unavailable(why)) => {
                tracing::warn!(%request_id, why, "a settlement waits for the ledger");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next_delay()) => {}
            () = stop.cancelled() => {
                tell_lost(request_id, &settled);
                return Err(Unsettled::Stopping);
            }
        }
    }
}
