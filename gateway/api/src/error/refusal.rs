//! Answers for the refusals and failures of the ledger and of payments.

use farthing_core::command::Refusal;
use farthing_log::appender;
use farthing_worker::payments;

use super::{ApiError, AuthError, BillingError, ConflictError, ForwardError, Issue, LimitError, Resource};

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::SecretKeyInvalid => Self::Auth(AuthError::SecretKeyInvalid),
            Refusal::ConnectionSecretInvalid => Self::Auth(AuthError::ConnectionSecretInvalid),
            Refusal::ProductSecretInvalid => Self::Auth(AuthError::ProductSecretInvalid),
            Refusal::CustomerNotFound => Self::NotFound(Resource::Customer),
            Refusal::MeterNotFound => Self::NotFound(Resource::Meter),
            Refusal::SpendKeyNotFound => Self::NotFound(Resource::SpendKey),
            Refusal::SecretKeyNotFound => Self::NotFound(Resource::SecretKey),
            Refusal::SecretKeyLastRemaining => Self::Conflict(ConflictError::SecretKeyLastRemaining),
            Refusal::ReferenceIdConflict => Self::Conflict(ConflictError::ReferenceId),
            Refusal::SpendKeyInvalid => Self::Auth(AuthError::SpendKeyInvalid),
            Refusal::SpendKeyExpired => Self::Auth(AuthError::SpendKeyExpired),
            Refusal::SpendKeyPaused => Self::Auth(AuthError::SpendKeyPaused),
            Refusal::ModelNotAllowed => Self::Auth(AuthError::ModelNotAllowed),
            Refusal::ProviderNotAllowed => Self::Auth(AuthError::ProviderNotAllowed),
            Refusal::RequestLimitExceeded { retry_after_seconds } => {
                Self::Limit(LimitError::RequestLimitExceeded { retry_after_seconds })
            }
            Refusal::RateLimitExceeded { retry_after_seconds } => {
                Self::Limit(LimitError::RateLimitExceeded { retry_after_seconds })
            }
            Refusal::SpendLimitExceeded { left, needed } => {
                Self::Limit(LimitError::SpendLimitExceeded { left, needed })
            }
            Refusal::MeterSlugConflict => Self::Conflict(ConflictError::MeterSlug),
            Refusal::ModelNotPriced => Self::Forward(ForwardError::ModelNotPriced),
            Refusal::InsufficientBalance { available, needed, auto_recharge } => {
                Self::Billing(BillingError::InsufficientBalance { available, needed, auto_recharge })
            }
            Refusal::Amount(why) => Self::issue(["amount"], why.to_string()),
            Refusal::UsageOutOfRange => {
                Self::issue(["usage"], "is out of range: nobody could be billed for it")
            }
            Refusal::AmountNotPositive => Self::issue(["amount"], "must be above zero"),
            Refusal::PlanNotFound => Self::NotFound(Resource::Plan),
            Refusal::PlanNotFree => Self::Billing(BillingError::PlanNotFree),
            Refusal::CreditAbovePrice => {
                Self::issue(["included_credit"], "must not be above period_amount, where that is above zero")
            }
            Refusal::CreditBundleNotFound => Self::NotFound(Resource::CreditBundle),
            Refusal::CreditBundlePlanMismatch => Self::Billing(BillingError::CreditBundlePlanMismatch),
            Refusal::SubscriptionNotFound => Self::NotFound(Resource::Subscription),
            Refusal::SubscriptionAlreadyActive => Self::Billing(BillingError::SubscriptionAlreadyActive),
            Refusal::PaymentMethodNotFound => Self::NotFound(Resource::PaymentMethod),
            Refusal::NoPaymentMethod => {
                Self::issue(["payment_method_id"], "is required: the wallet has no payment method yet")
            }
            Refusal::AutopayIncomplete { enabled, threshold, amount } => {
                let why = if enabled {
                    "is required while autopay is enabled"
                } else {
                    "goes with autopay_enabled"
                };
                let parts = [("autopay_threshold", threshold), ("autopay_amount", amount)];
                let wrong = parts.into_iter().filter(|(_, is_wrong)| *is_wrong);
                Self::validation(wrong.map(|(name, _)| Issue::new([name], why)).collect())
            }
            Refusal::OfferChanged => Self::issue(["amount"], "is not what it costs any more"),
            Refusal::PaymentUnderWay => Self::Billing(BillingError::PaymentInProgress),
            Refusal::CheckoutSessionNotFound => Self::NotFound(Resource::CheckoutSession),
            Refusal::CheckoutSessionExpired => Self::Billing(BillingError::CheckoutSessionExpired),
            Refusal::WebhookNotFound => Self::NotFound(Resource::Webhook),
            Refusal::WebhookLimitReached => Self::Limit(LimitError::WebhookLimitReached),
            Refusal::ClockOutOfRange => Self::issue(
                ["advance_seconds"],
                "must be above zero, and the clock at most a hundred years ahead",
            ),
            Refusal::MerchantNotFound | Refusal::RequestNotOpen | Refusal::PaymentNotOpen => {
                Self::internal(refusal.to_string())
            }
        }
    }
}

impl From<appender::Error> for ApiError {
    fn from(error: appender::Error) -> Self {
        match error {
            appender::Error::Refused(refusal) => refusal.into(),
            appender::Error::Unavailable(why) => Self::ledger_unavailable(why),
        }
    }
}

impl From<payments::Error> for ApiError {
    fn from(error: payments::Error) -> Self {
        match error {
            payments::Error::Refused(refusal) => refusal.into(),
            payments::Error::Unavailable(why) => Self::ledger_unavailable(why),
            payments::Error::Internal(why) => Self::internal(why),
        }
    }
}
