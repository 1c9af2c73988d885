//! The events of subscriptions and of the credit that they grant. Invariant: credit granted = credit used (the
//! sources of `WalletDebited`) + expired + remaining, for every wallet, at every position.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::kind::area;
use super::movement::Movement;
use super::webhook::{Topic, WebhookNotice};
use crate::ids::{CreditBundleId, CustomerId, PaymentId, PaymentMethodId, PlanId, SubscriptionId, WalletId};
use crate::money::{self, Amount};
use crate::plan::{BillingCycle, PlanTerms};

area! {
    /// The events of a subscription.
    Event::Subscription(SubscriptionEvent) {
        Started(Box<SubscriptionStarted>) = "subscription.started",
        Updated(Box<SubscriptionUpdated>) = "subscription.updated",
        CycleEnded(CycleEnded) = "subscription.cycle_ended",
        Renewed(Box<SubscriptionRenewed>) = "subscription.renewed",
        RenewalFailed(RenewalFailed) = "subscription.renewal_failed",
        Upgraded(Box<SubscriptionUpgraded>) = "subscription.upgraded",
        Cancelled(SubscriptionCancelled) = "subscription.cancelled",
        BundlePurchased(BundlePurchased) = "bundle.purchased",
    }
}

impl SubscriptionEvent {
    pub(super) fn customer_id(&self) -> CustomerId {
        match self {
            Self::Started(event) => event.subscriber.customer_id,
            Self::Renewed(event) => event.subscriber.customer_id,
            Self::Upgraded(event) => event.subscriber.customer_id,
            Self::Updated(event) => event.subscriber.customer_id,
            Self::CycleEnded(event) => event.subscriber.customer_id,
            Self::RenewalFailed(event) => event.subscriber.customer_id,
            Self::Cancelled(event) => event.subscriber.customer_id,
            Self::BundlePurchased(event) => event.customer_id,
        }
    }

    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Started(event) => format!("{}/started", event.subscriber.subscription_id),
            Self::Updated(event) => {
                format!("{}/updated/{}", event.subscriber.subscription_id, event.revision)
            }
            Self::CycleEnded(event) => {
                let id = event.subscriber.subscription_id;
                format!("{id}/ended/{}", event.ended_at.timestamp_millis())
            }
            Self::Renewed(event) => {
                let id = event.subscriber.subscription_id;
                format!("{id}/renewed/{}", event.cycle.start.timestamp_millis())
            }
            Self::RenewalFailed(event) => {
                let id = event.subscriber.subscription_id;
                format!("{id}/failed/{}/{}", event.retry_at.timestamp_millis(), event.attempt)
            }
            Self::Upgraded(event) => {
                format!("{}/upgraded/{}", event.subscriber.subscription_id, event.revision)
            }
            Self::Cancelled(event) => format!("{}/cancelled", event.subscriber.subscription_id),
            Self::BundlePurchased(event) => format!("{}/purchased", event.payment_id),
        }
    }

    /// The wallet whose money the event moves, and how.
    pub(super) fn movement(&self) -> Result<Option<(WalletId, Movement)>, money::Error> {
        Ok(Some(match self {
            Self::Started(event) => (event.subscriber.wallet_id, Movement::Granted(event.granted)),
            Self::Renewed(event) => (event.subscriber.wallet_id, Movement::Granted(event.granted)),
            Self::Upgraded(event) => (event.subscriber.wallet_id, Movement::Granted(event.granted)),
            Self::BundlePurchased(event) => (event.wallet_id, Movement::Granted(event.granted)),
            Self::CycleEnded(event) => {
                let bundles = Amount::sum(event.expired_bundles.iter().map(|bundle| bundle.amount))?;
                (event.subscriber.wallet_id, Movement::Expired(event.expired.plus(bundles)?))
            }
            Self::Cancelled(event) => (event.subscriber.wallet_id, Movement::Expired(event.expired)),
            Self::Updated(_) | Self::RenewalFailed(_) => return Ok(None),
        }))
    }

    /// The webhook event that the event leads to.
    pub(super) fn webhook_notice(&self) -> Option<WebhookNotice> {
        let (topic, customer_id) = match self {
            Self::Started(event) => (Topic::SubscriptionStarted, event.subscriber.customer_id),
            Self::Cancelled(event) => (Topic::SubscriptionCancelled, event.subscriber.customer_id),
            Self::Updated(_)
            | Self::CycleEnded(_)
            | Self::Renewed(_)
            | Self::RenewalFailed(_)
            | Self::Upgraded(_)
            | Self::BundlePurchased(_) => return None,
        };
        Some(WebhookNotice { topic, customer_id: Some(customer_id) })
    }
}

/// A subscription with its customer, in every event of the subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscriber {
    /// The subscription.
    pub subscription_id: SubscriptionId,
    /// The customer.
    pub customer_id: CustomerId,
    /// The customer's wallet, which holds the credit.
    pub wallet_id: WalletId,
}

/// A subscription started, and the credit of its first cycle was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionStarted {
    /// The subscription and its customer.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// The plan.
    pub plan_id: PlanId,
    /// The plan's present terms.
    pub terms: PlanTerms,
    /// The first cycle; its start anchors all others.
    pub cycle: BillingCycle,
    /// The credit granted for the cycle.
    pub granted: Amount,
    /// The payment for the cycle; `None` if the plan is free.
    pub payment_id: Option<PaymentId>,
    /// The payment method of renewals.
    pub payment_method_id: Option<PaymentMethodId>,
    /// The bundle bought automatically when the credit is used up.
    pub auto_top_up_bundle_id: Option<CreditBundleId>,
    /// Whether the subscriber chose that setting; a plan's default otherwise. Programs that did not record it left it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_top_up_chosen: Option<bool>,
}

/// The credit of one bundle purchase that expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredBundle {
    /// The payment that bought it.
    pub payment_id: PaymentId,
    /// The amount that expired.
    pub amount: Amount,
}

/// A cycle ended. Its remaining credit is carried over or expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleEnded {
    /// The subscription and its customer.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// The number of the cycle since the anchor.
    pub cycle_number: u32,
    /// When it ended; may be before the instant of this event.
    pub ended_at: DateTime<Utc>,
    /// The plan's credit that is carried over.
    pub carried_over: Amount,
    /// The plan's credit that expired.
    pub expired: Amount,
    /// The bundle credit that expired.
    pub expired_bundles: Vec<ExpiredBundle>,
}

/// A new cycle started, and its credit was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionRenewed {
    /// The subscription and its customer.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// The plan; a new one if a downgrade took effect.
    pub plan_id: PlanId,
    /// The plan's terms for this cycle.
    pub terms: PlanTerms,
    /// The cycle.
    pub cycle: BillingCycle,
    /// The credit granted for the cycle, in addition to the credit carried over.
    pub granted: Amount,
    /// The payment for the cycle; `None` if the plan is free.
    pub payment_id: Option<PaymentId>,
    /// The payment of an upgrade that is still open, if the plan was chosen while it was. After that upgrade, the
    /// subscription moves to this plan again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlasts: Option<PaymentId>,
}

/// A subscription moved to a more expensive plan. A new cycle starts at once and anchors the following ones. The
/// remaining credit stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionUpgraded {
    /// The subscription and its customer.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// Counts the changes of this subscription, from 1.
    pub revision: u32,
    /// The old plan.
    pub from_plan_id: PlanId,
    /// The new plan.
    pub plan_id: PlanId,
    /// Its terms.
    pub terms: PlanTerms,
    /// The first cycle on the new plan.
    pub cycle: BillingCycle,
    /// The credit granted for the cycle, in addition to the remaining credit.
    pub granted: Amount,
    /// The payment for the cycle.
    pub payment_id: Option<PaymentId>,
    /// The new payment method of renewals.
    pub payment_method_id: Option<PaymentMethodId>,
}

/// A change that takes effect at the end of the cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum PendingChange {
    /// The subscription ends.
    Cancellation {
        /// The end of the cycle.
        effective_at: DateTime<Utc>,
        /// See [`PendingChange::outlasts`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outlasts: Option<PaymentId>,
    },
    /// The subscription moves to another plan.
    Downgrade {
        /// The end of the cycle.
        effective_at: DateTime<Utc>,
        /// The new plan.
        plan_id: PlanId,
        /// Its terms when the change was requested.
        terms: Box<PlanTerms>,
        /// See [`PendingChange::outlasts`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outlasts: Option<PaymentId>,
    },
}

impl PendingChange {
    /// The payment of an upgrade that was open when the change was requested. That upgrade, unlike a later one, does not
    /// take the change back.
    pub fn outlasts(&self) -> Option<PaymentId> {
        match self {
            Self::Cancellation { outlasts, .. } | Self::Downgrade { outlasts, .. } => *outlasts,
        }
    }
}

/// A subscription's settings or its pending change were changed. The event holds all new values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionUpdated {
    /// The subscription and its customer.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// Counts the changes of this subscription, from 1.
    pub revision: u32,
    /// The bundle bought automatically when the credit is used up.
    pub auto_top_up_bundle_id: Option<CreditBundleId>,
    /// See [`SubscriptionStarted::auto_top_up_chosen`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_top_up_chosen: Option<bool>,
    /// The payment method of renewals.
    pub payment_method_id: Option<PaymentMethodId>,
    /// The change at the end of the cycle.
    pub pending_change: Option<PendingChange>,
}

/// The payment of a renewal failed, or was not requested yet because the payment of an upgrade is open. It is tried again at
/// `retry_at`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalFailed {
    /// The subscription and its customer.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// The number of the unpaid cycle since the anchor.
    pub cycle_number: u32,
    /// Counts the attempts at this cycle, from 1. If the next one waits: those made so far, 0 before the first.
    pub attempt: u32,
    /// The failed payment; `None` if there was no payment method, or if the attempt waits.
    pub payment_id: Option<PaymentId>,
    /// The payment of an upgrade that the next attempt waits for; `None` if an attempt failed. Programs that did not
    /// record it left it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<PaymentId>,
    /// When the payment is tried again.
    pub retry_at: DateTime<Utc>,
}

/// Why a subscription ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// A caller requested it.
    Requested,
    /// The renewal could not be paid.
    PaymentFailed,
    /// The customer was deleted.
    CustomerDeleted,
}

/// A subscription ended. The remaining plan credit expired; bundle credit and balance stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionCancelled {
    /// The subscription and its customer.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// Its plan.
    pub plan_id: PlanId,
    /// The reason.
    pub reason: CancelReason,
    /// The plan's credit that expired.
    pub expired: Amount,
}

/// A credit bundle was bought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundlePurchased {
    /// The payment that bought it; identifies this credit from now on.
    pub payment_id: PaymentId,
    /// The customer.
    pub customer_id: CustomerId,
    /// The wallet that holds the credit.
    pub wallet_id: WalletId,
    /// The bundle.
    pub credit_bundle_id: CreditBundleId,
    /// Its price.
    pub cost: Amount,
    /// The credit granted.
    pub granted: Amount,
}
