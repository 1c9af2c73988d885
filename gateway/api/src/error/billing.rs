//! Errors of money: balances, payments, subscriptions and checkout sessions.

use farthing_core::command::WalletShortfall;
use farthing_core::event::DeclineReason;
use farthing_core::money::Amount;
use http::StatusCode;

/// The money does not cover the request, or a payment, subscription or checkout session does not permit it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BillingError {
    /// 402: the available balance does not cover the hold.
    #[error("The available balance, {available}, does not cover this call's hold of {needed}.")]
    InsufficientBalance {
        /// Balance minus open holds.
        available: Amount,
        /// The hold.
        needed: Amount,
        /// The wallet that fell short, if it recharges automatically.
        auto_recharge: Option<WalletShortfall>,
    },
    /// 402: the payment processor declined the payment.
    #[error("The payment was declined: {}.", decline_reason(*.0))]
    PaymentDeclined(DeclineReason),
    /// 501: the instance has no payment processor.
    #[error("This instance has no payment processor, so it takes no payments.")]
    PaymentsUnavailable,
    /// 409: another payment for the same thing is pending.
    #[error("Another payment for this is in progress.")]
    PaymentInProgress,
    /// 400: the plan has a price, so subscribing to it takes a checkout session.
    #[error("The plan has a price. Subscribe to it through a checkout session.")]
    PlanNotFree,
    /// 400: the credit bundle does not belong to the subscription's plan.
    #[error("The credit bundle belongs to another plan.")]
    CreditBundlePlanMismatch,
    /// 409: the customer has a subscription, which may be cancelled at the end of its cycle or await its first payment.
    #[error("The customer already has a subscription, or one that awaits its first payment.")]
    SubscriptionAlreadyActive,
    /// 410: the checkout session has expired.
    #[error("The checkout session has expired.")]
    CheckoutSessionExpired,
}

impl BillingError {
    pub(super) const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::InsufficientBalance { .. } => (StatusCode::PAYMENT_REQUIRED, "insufficient_balance"),
            Self::PaymentDeclined(_) => (StatusCode::PAYMENT_REQUIRED, "payment_declined"),
            Self::PaymentsUnavailable => (StatusCode::NOT_IMPLEMENTED, "payments_unavailable"),
            Self::PaymentInProgress => (StatusCode::CONFLICT, "payment_in_progress"),
            Self::PlanNotFree => (StatusCode::BAD_REQUEST, "plan_not_free"),
            Self::CreditBundlePlanMismatch => (StatusCode::BAD_REQUEST, "credit_bundle_plan_mismatch"),
            Self::SubscriptionAlreadyActive => (StatusCode::CONFLICT, "subscription_already_active"),
            Self::CheckoutSessionExpired => (StatusCode::GONE, "checkout_session_expired"),
        }
    }
}

const fn decline_reason(reason: DeclineReason) -> &'static str {
    match reason {
        DeclineReason::CardDeclined => "the card was declined",
        DeclineReason::InsufficientFunds => "the card has insufficient funds",
        DeclineReason::ExpiredCard => "the card has expired",
        DeclineReason::MethodRemoved => "the payment method was removed",
    }
}
