//! Errors of limits: of a key's rate, a spend key's requests and money, a merchant's webhooks.

use farthing_core::money::Amount;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

/// `Retry-After` of a request limit that never resets, in seconds: a day, because the limit may be raised by then.
const NEVER_RETRY_AFTER_SECONDS: u64 = 86_400;

/// A limit is reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitError {
    /// 429: too many calls with this key.
    #[error("Too many requests with this key.")]
    RateLimitExceeded {
        /// Until the next window.
        retry_after_seconds: u64,
    },
    /// 429: the spend key's calls of this cycle are used up.
    #[error(
        "{}",
        .retry_after_seconds.map_or(
            "The spend key's request limit is used up and does not reset.",
            |_| "The spend key's request limit for this cycle is used up.",
        )
    )]
    RequestLimitExceeded {
        /// Until the next cycle; `None` if the limit never resets.
        retry_after_seconds: Option<u64>,
    },
    /// 402: the rest of the spend key's limit does not cover the most that the call can cost.
    #[error(
        "The rest of the spend key's limit, {left}, does not cover the most that this call can cost, {needed}. Set an output \
         limit in the body, such as max_tokens, or a lower one."
    )]
    SpendLimitExceeded {
        /// The limit less the money spent and held.
        left: Amount,
        /// The upper bound of the call's cost.
        needed: Amount,
    },
    /// 400: the merchant has the maximum number of webhooks.
    #[error("A merchant can have at most three webhooks. Delete one first.")]
    WebhookLimitReached,
}

impl LimitError {
    pub(super) const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::RateLimitExceeded { .. } => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded"),
            Self::RequestLimitExceeded { .. } => (StatusCode::TOO_MANY_REQUESTS, "request_limit_exceeded"),
            Self::SpendLimitExceeded { .. } => (StatusCode::PAYMENT_REQUIRED, "spend_limit_exceeded"),
            Self::WebhookLimitReached => (StatusCode::BAD_REQUEST, "webhook_limit_reached"),
        }
    }

    pub(super) fn add_headers(&self, headers: &mut HeaderMap) {
        let retry_after_seconds = match self {
            Self::RateLimitExceeded { retry_after_seconds } => *retry_after_seconds,
            Self::RequestLimitExceeded { retry_after_seconds } => {
                retry_after_seconds.unwrap_or(NEVER_RETRY_AFTER_SECONDS)
            }
            Self::SpendLimitExceeded { .. } | Self::WebhookLimitReached => return,
        };
        headers.insert(RETRY_AFTER, retry_after_seconds.into());
    }
}
