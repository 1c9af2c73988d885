//! Errors of the gateway and the ledger. Their reasons are logged and never sent to the caller.

use std::sync::LazyLock;

use farthing_telemetry::CounterFamily;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use super::GatewayLimit;
use crate::request_id;

/// `Retry-After` of a 503, in seconds.
const RETRY_AFTER_SECONDS: u64 = 1;

/// The answers with status 503, by their limit or cause. One for the process, as its log is: an error is answered in many
/// places.
static SHED: LazyLock<CounterFamily<1>> = LazyLock::new(CounterFamily::default);

/// The label of [`SHED`].
const REASON: &str = "reason";

const LEDGER: &str = "the ledger";
const UNKNOWN_OUTCOME: &str = "the outcome is not known";

/// The counters of answers with status 503. All are there from the first on: the rate of one that appears with its first
/// count is zero.
pub(crate) fn counters_of_503s() -> &'static CounterFamily<1> {
    let limits = GatewayLimit::ALL.iter().map(|limit| limit.name());
    for reason in limits.chain([LEDGER, UNKNOWN_OUTCOME]) {
        drop(SHED.with([(REASON, reason)]));
    }
    &SHED
}

/// The gateway or the ledger failed. The text is the reason, for the log only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServerError {
    /// 500: a fault of the gateway.
    #[error("An internal error occurred.")]
    Internal(String),
    /// 503: the ledger is unavailable; nothing was charged.
    #[error("The ledger is unavailable; nothing was charged.")]
    LedgerUnavailable(String),
    /// 503: the answer of the gateway that leads the merchant's partition was lost, or this gateway stops before it knows how
    /// a call was settled.
    #[error(
        "The ledger did not answer; whether the request was carried out is not known. Look before you repeat it, or repeat it with the Idempotency-Key that it had."
    )]
    OutcomeUnknown(String),
    /// 503: a limit of this gateway is reached; nothing was charged. It has the code of an unavailable ledger, the only
    /// 503 of the specification: a caller does the same in both cases.
    #[error("The service is overloaded; nothing was charged. Retry the call later.")]
    Overloaded(GatewayLimit),
    /// 503: the same for a limit of one merchant. A merchant can reach it as often as it likes, so it is no warning.
    #[error("The service is overloaded; nothing was charged. Retry the call later.")]
    OverloadedByMerchant(GatewayLimit),
}

impl ServerError {
    pub(super) const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "rest_internal_server_error"),
            Self::LedgerUnavailable(_)
            | Self::OutcomeUnknown(_)
            | Self::Overloaded(_)
            | Self::OverloadedByMerchant(_) => (StatusCode::SERVICE_UNAVAILABLE, "ledger_unavailable"),
        }
    }

    /// The limit or the cause of a 503.
    const fn shed_for(&self) -> Option<&'static str> {
        match self {
            Self::Internal(_) => None,
            Self::LedgerUnavailable(_) => Some(LEDGER),
            Self::OutcomeUnknown(_) => Some(UNKNOWN_OUTCOME),
            Self::Overloaded(limit) | Self::OverloadedByMerchant(limit) => Some(limit.name()),
        }
    }

    pub(super) fn add_headers(&self, headers: &mut HeaderMap) {
        match self {
            Self::Internal(_) => {}
            Self::LedgerUnavailable(_)
            | Self::OutcomeUnknown(_)
            | Self::Overloaded(_)
            | Self::OverloadedByMerchant(_) => {
                headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS.into());
            }
        }
    }

    /// Logs the reason, and counts a 503.
    pub(super) fn log(&self) {
        if let Some(reason) = self.shed_for() {
            SHED.with([(REASON, reason)]).inc();
        }
        let request_id = request_id::log_field();
        match self {
            Self::Internal(reason) => {
                tracing::error!(event = "api.internal_error", request_id, reason, "answering 500");
            }
            Self::LedgerUnavailable(reason) => {
                tracing::warn!(event = "api.ledger_unavailable", request_id, reason, "answering 503");
            }
            Self::OutcomeUnknown(reason) => {
                tracing::warn!(
                    event = "api.outcome_unknown",
                    request_id,
                    reason,
                    "answering 503: the outcome is not known"
                );
            }
            Self::Overloaded(limit) => {
                let limit = limit.name();
                tracing::warn!(event = "api.overloaded", request_id, limit, "answering 503: too much work");
            }
            Self::OverloadedByMerchant(limit) => {
                let limit = limit.name();
                tracing::debug!(
                    event = "api.overloaded",
                    request_id,
                    limit,
                    "answering 503: too much work of one merchant"
                );
            }
        }
    }
}
