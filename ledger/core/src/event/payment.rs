//! The events of payments through the payment processor. A payment is asked for first, under an id that is also its
//! idempotency key at the processor, and what it pays for happens in the append that tells of its success: so it is
//! paid once and has its effect once, whoever dies in between.

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

/// What a payment is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum Purpose {
    /// Money into the wallet's balance, asked for by its owner.
    Fund,
    /// Money into the wallet's balance, because it fell below its threshold.
    Autopay,
    /// A credit bundle, asked for by the customer.
    Bundle {
        /// The bundle.
        credit_bundle_id: CreditBundleId,
        /// The credit it brings.
        credit_amount: Amount,
    },
    /// A credit bundle, because the subscription's credit is used up.
    AutoTopUp {
        /// The bundle.
        credit_bundle_id: CreditBundleId,
        /// The credit it brings.
        credit_amount: Amount,
    },
    /// A new subscription.
    Subscribe {
        /// Its id.
        subscription_id: SubscriptionId,
        /// The plan.
        plan_id: PlanId,
        /// The plan's terms.
        terms: Box<PlanTerms>,
    },
    /// A dearer plan.
    Upgrade {
        /// The subscription.
        subscription_id: SubscriptionId,
        /// The plan to come.
        plan_id: PlanId,
        /// Its terms.
        terms: Box<PlanTerms>,
    },
    /// The next cycle of a subscription.
    Renewal {
        /// The subscription.
        subscription_id: SubscriptionId,
        /// The cycle, since the anchor.
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
    /// The credit that it brings into the wallet.
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

/// A card that a payment is made with for the first time: it becomes the wallet's payment method when the payment has
/// succeeded, and is none of it before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardBrought {
    /// Which processor.
    pub processor: String,
    /// The processor's own name for it; pays nothing without the processor's key.
    pub token: String,
    /// What may be shown of it.
    pub card: Card,
}

/// A payment is to be made; whoever runs payments carries it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentRequested {
    /// The payment, and its idempotency key at the processor.
    pub payment_id: PaymentId,
    /// The wallet it is for.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is; none for the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// What it is paid with.
    pub payment_method_id: PaymentMethodId,
    /// How much, in dollars; above zero.
    pub amount: Amount,
    /// What for.
    pub purpose: Purpose,
    /// The checkout session that it completes.
    pub checkout_session_id: Option<CheckoutSessionId>,
    /// The card behind `payment_method_id`, where the wallet does not have it yet.
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
    /// How much.
    pub amount: Amount,
    /// The processor's own id of it.
    pub reference: String,
}

/// Why the processor took no money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeclineReason {
    /// Without a reason.
    CardDeclined,
    /// The account does not cover it.
    InsufficientFunds,
    /// The card's time is over.
    ExpiredCard,
    /// The payment method is no more.
    MethodRemoved,
}

/// The processor declined; no money moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentDeclined {
    /// The payment.
    pub payment_id: PaymentId,
    /// The wallet it was for.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is.
    pub customer_id: Option<CustomerId>,
    /// Why.
    pub reason: DeclineReason,
    /// Nothing is paid by itself on this wallet before then, where this was such a payment.
    pub not_again_before: Option<DateTime<Utc>>,
    /// The subscription that did not begin for it.
    pub not_started: Option<SubscriptionId>,
    /// The checkout session that it did not complete; another payment may.
    pub checkout_session_id: Option<CheckoutSessionId>,
}

/// A payment came to nothing because its customer is no more: the processor takes nothing for it any more, and gave back
/// what it had taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentVoided {
    /// The payment.
    pub payment_id: PaymentId,
    /// The wallet it was for.
    pub wallet_id: WalletId,
    /// The customer whose wallet it was.
    pub customer_id: Option<CustomerId>,
    /// How much it was to be, in dollars.
    pub amount: Amount,
    /// The processor's own id of the money that it gave back, all of it; none where it had taken none.
    pub refund: Option<String>,
    /// The checkout session that it did not complete.
    pub checkout_session_id: Option<CheckoutSessionId>,
}

/// What may be shown of a card.
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

/// A payment method was added to a wallet; it is the one used from now on. The card's number is the processor's alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentMethodAdded {
    /// The payment method.
    pub payment_method_id: PaymentMethodId,
    /// The wallet it pays for.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is; none for the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// Which processor.
    pub processor: String,
    /// The processor's own name for it; pays nothing without the processor's key.
    pub token: String,
    /// What may be shown of it.
    pub card: Card,
}
