//! The events of payments through the payment processor. A payment is recorded before it is made, under an id that is
//! also its idempotency key at the processor. Its effect is recorded in the same append as its success. So a payment
//! is charged once and has its effect once, even if a process dies in between.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::kind::area;
use crate::ids::{
    CheckoutSessionId, CreditBundleId, CustomerId, PaymentId, PaymentMethodId, PlanId, SubscriptionId,
    WalletId,
};
use crate::money::Amount;
use crate::plan::PlanTerms;

area! {
    /// The events of payments and payment methods.
    Event::Payment(PaymentEvent) {
        MethodAdded(PaymentMethodAdded) = "payment_method.added",
        Requested(Box<PaymentRequested>) = "payment.requested",
        Succeeded(PaymentSucceeded) = "payment.succeeded",
        Declined(PaymentDeclined) = "payment.declined",
        Voided(PaymentVoided) = "payment.voided",
    }
}

impl PaymentEvent {
    pub(super) fn customer_id(&self) -> Option<CustomerId> {
        match self {
            Self::MethodAdded(event) => event.customer_id,
            Self::Requested(event) => event.customer_id,
            Self::Succeeded(event) => event.customer_id,
            Self::Declined(event) => event.customer_id,
            Self::Voided(event) => event.customer_id,
        }
    }

    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::MethodAdded(event) => format!("{}/added", event.payment_method_id),
            Self::Requested(event) => format!("{}/requested", event.payment_id),
            Self::Succeeded(event) => format!("{}/succeeded", event.payment_id),
            Self::Declined(event) => format!("{}/declined", event.payment_id),
            Self::Voided(event) => format!("{}/voided", event.payment_id),
        }
    }
}

/// The purpose of a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum Purpose {
    /// Adds money to the wallet's balance, on request of its owner.
    Fund,
    /// Adds money to the wallet's balance because the balance fell below its threshold.
    Autopay,
    /// Buys a credit bundle, on request of the customer.
    Bundle {
        /// The bundle.
        credit_bundle_id: CreditBundleId,
        /// The credit that it grants.
        credit_amount: Amount,
    },
    /// Buys a credit bundle because the subscription's credit is used up.
    AutoTopUp {
        /// The bundle.
        credit_bundle_id: CreditBundleId,
        /// The credit that it grants.
        credit_amount: Amount,
    },
    /// Starts a subscription.
    Subscribe {
        /// Its id.
        subscription_id: SubscriptionId,
        /// The plan.
        plan_id: PlanId,
        /// The plan's terms.
        terms: Box<PlanTerms>,
    },
    /// Moves a subscription to a more expensive plan.
    Upgrade {
        /// The subscription.
        subscription_id: SubscriptionId,
        /// The new plan.
        plan_id: PlanId,
        /// Its terms.
        terms: Box<PlanTerms>,
    },
    /// Renews a subscription for its next cycle.
    Renewal {
        /// The subscription.
        subscription_id: SubscriptionId,
        /// The number of the cycle since the anchor.
        cycle_number: u32,
        /// Counts the attempts at this cycle, from 1.
        attempt: u32,
        /// The plan of the cycle.
        plan_id: PlanId,
        /// Its terms.
        terms: Box<PlanTerms>,
    },
}

impl Purpose {
    /// The credit that the payment adds to the wallet.
    pub fn credit(&self) -> Amount {
        match self {
            Self::Fund | Self::Autopay => Amount::ZERO,
            Self::Bundle { credit_amount, .. } | Self::AutoTopUp { credit_amount, .. } => *credit_amount,
            Self::Subscribe { terms, .. } | Self::Upgrade { terms, .. } | Self::Renewal { terms, .. } => {
                terms.included_credit
            }
        }
    }
}

/// A card that is new to the wallet. It becomes the wallet's payment method when its first payment succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardBrought {
    /// The payment processor.
    pub processor: String,
    /// The processor's token for it; useless without the processor's key.
    pub token: String,
    /// The details that may be shown.
    pub card: Card,
}

/// A payment was requested. A worker charges it at the processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentRequested {
    /// The payment, and its idempotency key at the processor.
    pub payment_id: PaymentId,
    /// The wallet it is for.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is; `None` if it is the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// The payment method.
    pub payment_method_id: PaymentMethodId,
    /// The amount in dollars; above zero.
    pub amount: Amount,
    /// Its purpose.
    pub purpose: Purpose,
    /// The checkout session that it completes.
    pub checkout_session_id: Option<CheckoutSessionId>,
    /// The card behind `payment_method_id`, if the wallet does not have it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brings: Option<CardBrought>,
}

/// The processor took the money.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentSucceeded {
    /// The payment.
    pub payment_id: PaymentId,
    /// The wallet it is for.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is.
    pub customer_id: Option<CustomerId>,
    /// The amount in dollars.
    pub amount: Amount,
    /// The processor's own id of the payment.
    pub reference: String,
}

/// Why the processor declined a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeclineReason {
    /// No reason was given.
    CardDeclined,
    /// The card's account does not cover the amount.
    InsufficientFunds,
    /// The card has expired.
    ExpiredCard,
    /// The payment method was removed.
    MethodRemoved,
}

/// The processor declined a payment. No money moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentDeclined {
    /// The payment.
    pub payment_id: PaymentId,
    /// The wallet it was for.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is.
    pub customer_id: Option<CustomerId>,
    /// The reason.
    pub reason: DeclineReason,
    /// The wallet makes no automatic payment before this instant; set if this was an automatic payment by the card that
    /// the wallet still has.
    pub not_again_before: Option<DateTime<Utc>>,
    /// The subscription that did not start because of the decline.
    pub not_started: Option<SubscriptionId>,
    /// The checkout session that stays open, so that another payment can complete it.
    pub checkout_session_id: Option<CheckoutSessionId>,
}

/// A payment was voided because its customer was deleted. The processor charges nothing for it, and has refunded any
/// charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentVoided {
    /// The payment.
    pub payment_id: PaymentId,
    /// The wallet it was for.
    pub wallet_id: WalletId,
    /// The customer whose wallet it was.
    pub customer_id: Option<CustomerId>,
    /// The requested amount in dollars.
    pub amount: Amount,
    /// The processor's own id of the full refund; `None` if no money was taken.
    pub refund: Option<String>,
    /// The checkout session that it did not complete.
    pub checkout_session_id: Option<CheckoutSessionId>,
}

/// The details of a card that may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Card {
    /// `visa`, `mastercard`, …
    pub brand: String,
    /// Its last four digits.
    pub last4: String,
    /// 1 to 12.
    pub exp_month: u8,
    /// Four digits.
    pub exp_year: u16,
}

/// A payment method was added to a wallet and replaces the previous one. Only the processor knows the card number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentMethodAdded {
    /// The payment method.
    pub payment_method_id: PaymentMethodId,
    /// The wallet it pays for.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is; `None` if it is the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// The payment processor.
    pub processor: String,
    /// The processor's token for it; useless without the processor's key.
    pub token: String,
    /// The details that may be shown.
    pub card: Card,
}
