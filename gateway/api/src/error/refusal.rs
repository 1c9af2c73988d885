//! Answers for the refusals and failures of the ledger and of payments.

use farthing_core::command::{
    CheckoutRefusal, CustomerRefusal, MerchantRefusal, MeterRefusal, PaymentRefusal, PlanRefusal, Refusal,
    RequestRefusal, SecretKeyRefusal, SpendKeyRefusal, SubscriptionRefusal, WalletRefusal, WebhookRefusal,
};
use farthing_log::appender;
use farthing_worker::payments;

use super::{
    ApiError, AuthError, BillingError, ConflictError, ForwardError, GatewayLimit, Issue, LimitError,
    Resource, ServerError,
};

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Merchant(MerchantRefusal::ClockOutOfRange) => Self::issue(
                ["advance_seconds"],
                "must be above zero and must not put the clock more than 100 years ahead",
            ),
            Refusal::Merchant(MerchantRefusal::NotFound)
            | Refusal::Request(RequestRefusal::NotOpen)
            | Refusal::Payment(PaymentRefusal::NotOpen) => Self::internal(refusal.to_string()),
            Refusal::SecretKey(refusal) => match refusal {
                SecretKeyRefusal::Invalid => Self::Auth(AuthError::SecretKeyInvalid),
                SecretKeyRefusal::NotFound => Self::NotFound(Resource::SecretKey),
                SecretKeyRefusal::LastRemaining => Self::Conflict(ConflictError::SecretKeyLastRemaining),
            },
            Refusal::Customer(refusal) => match refusal {
                CustomerRefusal::NotFound => Self::NotFound(Resource::Customer),
                CustomerRefusal::SecretInvalid => Self::Auth(AuthError::ConnectionSecretInvalid),
                CustomerRefusal::ReferenceIdTaken => Self::Conflict(ConflictError::ReferenceId),
            },
            Refusal::Meter(refusal) => match refusal {
                MeterRefusal::NotFound => Self::NotFound(Resource::Meter),
                MeterRefusal::SecretInvalid => Self::Auth(AuthError::ProductSecretInvalid),
                MeterRefusal::SlugTaken => Self::Conflict(ConflictError::MeterSlug),
            },
            Refusal::SpendKey(refusal) => spend_key(refusal),
            Refusal::Wallet(refusal) => wallet(refusal),
            Refusal::Amount(why) => Self::issue(["amount"], why.to_string()),
            Refusal::Request(RequestRefusal::ModelNotPriced) => Self::Forward(ForwardError::ModelNotPriced),
            Refusal::Request(RequestRefusal::UsageOutOfRange) => {
                Self::issue(["usage"], "is too large to be billed")
            }
            Refusal::Plan(refusal) => match refusal {
                PlanRefusal::NotFound => Self::NotFound(Resource::Plan),
                PlanRefusal::NotFree => Self::Billing(BillingError::PlanNotFree),
                PlanRefusal::CreditAbovePrice => Self::issue(
                    ["included_credit"],
                    "must not exceed period_amount unless period_amount is zero",
                ),
                PlanRefusal::BundleNotFound => Self::NotFound(Resource::CreditBundle),
                PlanRefusal::BundlePlanMismatch => Self::Billing(BillingError::CreditBundlePlanMismatch),
                PlanRefusal::TooManyBundles => {
                    Self::issue(["credit_bundles"], "must leave the plan at most 100 bundles")
                }
            },
            Refusal::Subscription(refusal) => match refusal {
                SubscriptionRefusal::NotFound => Self::NotFound(Resource::Subscription),
                SubscriptionRefusal::AlreadyActive => Self::Billing(BillingError::SubscriptionAlreadyActive),
            },
            Refusal::Payment(PaymentRefusal::MethodNotFound) => Self::NotFound(Resource::PaymentMethod),
            Refusal::Payment(PaymentRefusal::NoMethod) => {
                Self::issue(["payment_method_id"], "is required because the wallet has no payment method")
            }
            Refusal::Payment(PaymentRefusal::OfferChanged) => {
                Self::issue(["amount"], "does not match the current price")
            }
            Refusal::Payment(PaymentRefusal::InProgress) => Self::Billing(BillingError::PaymentInProgress),
            Refusal::Checkout(refusal) => match refusal {
                CheckoutRefusal::SessionNotFound => Self::NotFound(Resource::CheckoutSession),
                CheckoutRefusal::SessionExpired => Self::Billing(BillingError::CheckoutSessionExpired),
            },
            Refusal::Webhook(refusal) => match refusal {
                WebhookRefusal::NotFound => Self::NotFound(Resource::Webhook),
                WebhookRefusal::LimitReached => Self::Limit(LimitError::WebhookLimitReached),
            },
        }
    }
}

fn spend_key(refusal: SpendKeyRefusal) -> ApiError {
    match refusal {
        SpendKeyRefusal::NotFound => ApiError::NotFound(Resource::SpendKey),
        SpendKeyRefusal::Invalid => ApiError::Auth(AuthError::SpendKeyInvalid),
        SpendKeyRefusal::Expired => ApiError::Auth(AuthError::SpendKeyExpired),
        SpendKeyRefusal::Paused => ApiError::Auth(AuthError::SpendKeyPaused),
        SpendKeyRefusal::ModelNotAllowed => ApiError::Auth(AuthError::ModelNotAllowed),
        SpendKeyRefusal::ProviderNotAllowed => ApiError::Auth(AuthError::ProviderNotAllowed),
        SpendKeyRefusal::RequestLimitExceeded { retry_after_seconds } => {
            ApiError::Limit(LimitError::RequestLimitExceeded { retry_after_seconds })
        }
        SpendKeyRefusal::RateLimitExceeded { retry_after_seconds } => {
            ApiError::Limit(LimitError::RateLimitExceeded { retry_after_seconds })
        }
        SpendKeyRefusal::SpendLimitExceeded { left, needed } => {
            ApiError::Limit(LimitError::SpendLimitExceeded { left, needed })
        }
    }
}

fn wallet(refusal: WalletRefusal) -> ApiError {
    match refusal {
        WalletRefusal::InsufficientBalance { available, needed, auto_recharge } => {
            ApiError::Billing(BillingError::InsufficientBalance { available, needed, auto_recharge })
        }
        WalletRefusal::AmountNotPositive => ApiError::issue(["amount"], "must be above zero"),
        WalletRefusal::TooManyBundles => ApiError::issue(
            ["credit_bundle_id"],
            "cannot be bought while the wallet has 1,000 bundles that are not used up",
        ),
        WalletRefusal::AutopayIncomplete { enabled, threshold, amount } => {
            let why = if enabled {
                "is required while autopay is enabled"
            } else {
                "is only allowed with autopay_enabled"
            };
            let parts = [("autopay_threshold", threshold), ("autopay_amount", amount)];
            let wrong = parts.into_iter().filter(|(_, is_wrong)| *is_wrong);
            ApiError::validation(wrong.map(|(name, _)| Issue::new([name], why)).collect())
        }
    }
}

impl From<appender::Error> for ApiError {
    fn from(error: appender::Error) -> Self {
        match error {
            appender::Error::Refused(refusal) => refusal.into(),
            appender::Error::Unavailable(why) => Self::ledger_unavailable(why),
            appender::Error::Unknown(why) => Self::Server(ServerError::OutcomeUnknown(why)),
            appender::Error::Moved => Self::ledger_unavailable(error.to_string()),
            appender::Error::Internal(why) => Self::internal(why),
            appender::Error::Overloaded => Self::overloaded(GatewayLimit::Queue),
        }
    }
}

impl From<payments::NoProcessor> for ApiError {
    fn from(payments::NoProcessor: payments::NoProcessor) -> Self {
        Self::Billing(BillingError::PaymentsUnavailable)
    }
}

impl From<payments::Error> for ApiError {
    fn from(error: payments::Error) -> Self {
        match error {
            payments::Error::Refused(refusal) => refusal.into(),
            payments::Error::NoProcessor(none) => none.into(),
            payments::Error::Unavailable(why) => Self::ledger_unavailable(why),
            payments::Error::Overloaded => Self::overloaded(GatewayLimit::Queue),
            payments::Error::Internal(why) => Self::internal(why),
        }
    }
}
