//! The events of a subscription's life, and of the credit it brings. Invariant: credit granted = credit used (the
//! sources of `WalletDebited`) + expired + remaining, for every wallet, at every position.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::kind::area;
use super::movement::Movement;
use super::webhook::{Topic, WebhookNotice};
use crate::ids::{CreditBundleId, CustomerId, PaymentId, PaymentMethodId, PlanId, SubscriptionId, WalletId};
use crate::money;
use crate::money::Amount;
use crate::plan::BillingCycle;
use crate::plan::PlanTerms;

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

    /// What webhooks are notified of.
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

/// Whose subscription, in each event of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscriber {
    /// The subscription.
    pub subscription_id: SubscriptionId,
    /// The customer.
    pub customer_id: CustomerId,
    /// The customer's wallet, which holds the credit.
    pub wallet_id: WalletId,
}

/// A subscription began; its first cycle's credit is granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionStarted {
    /// Whose.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// The plan.
    pub plan_id: PlanId,
    /// The plan's terms as they are now.
    pub terms: PlanTerms,
    /// The first cycle; its start anchors all others.
    pub cycle: BillingCycle,
    /// The credit that the cycle brings.
    pub granted: Amount,
    /// What paid for it; none where the plan is free.
    pub payment_id: Option<PaymentId>,
    /// What renewals are paid with.
    pub payment_method_id: Option<PaymentMethodId>,
    /// The bundle that is bought when the credit is used up.
    pub auto_top_up_bundle_id: Option<CreditBundleId>,
}

/// The credit of one bundle purchase that expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredBundle {
    /// The payment that bought it.
    pub payment_id: PaymentId,
    /// What was left of it.
    pub amount: Amount,
}

/// A cycle came to its end: what is left of its credit is carried over or expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleEnded {
    /// Whose.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// Which cycle, since the anchor.
    pub cycle_number: u32,
    /// The instant it ended at, which may be before that of this event.
    pub ended_at: DateTime<Utc>,
    /// The plan's credit that is carried over.
    pub carried_over: Amount,
    /// The plan's credit that expired.
    pub expired: Amount,
    /// The bundle credit that expired.
    pub expired_bundles: Vec<ExpiredBundle>,
}

/// A new cycle began; its credit is granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionRenewed {
    /// Whose.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// The plan: another one than before where a downgrade took effect.
    pub plan_id: PlanId,
    /// The plan's terms for this cycle.
    pub terms: PlanTerms,
    /// The cycle.
    pub cycle: BillingCycle,
    /// The credit that the cycle brings, beside what was carried over.
    pub granted: Amount,
    /// What paid for it; none where the plan is free.
    pub payment_id: Option<PaymentId>,
}

/// A subscription moved to a dearer plan at once: a new cycle begins now and anchors those after it. What was left of
/// the credit stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionUpgraded {
    /// Whose.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// Counts the changes of this subscription, from 1.
    pub revision: u32,
    /// The plan left.
    pub from_plan_id: PlanId,
    /// The plan from now on.
    pub plan_id: PlanId,
    /// Its terms.
    pub terms: PlanTerms,
    /// The first cycle on it.
    pub cycle: BillingCycle,
    /// The credit that the cycle brings, beside what was left.
    pub granted: Amount,
    /// What paid for it.
    pub payment_id: Option<PaymentId>,
    /// What renewals are paid with from now on.
    pub payment_method_id: Option<PaymentMethodId>,
}

/// What is to become of a subscription at the end of its cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum PendingChange {
    /// It ends.
    Cancellation {
        /// The end of the cycle.
        effective_at: DateTime<Utc>,
    },
    /// It moves to another plan.
    Downgrade {
        /// The end of the cycle.
        effective_at: DateTime<Utc>,
        /// The plan from then on.
        plan_id: PlanId,
        /// Its terms, as they were when the change was asked for.
        terms: Box<PlanTerms>,
    },
}

/// A subscription's settings were changed, or what is to become of it. All of them stand here as they are from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionUpdated {
    /// Whose.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// Counts the changes of this subscription, from 1.
    pub revision: u32,
    /// The bundle that is bought when the credit is used up.
    pub auto_top_up_bundle_id: Option<CreditBundleId>,
    /// What renewals are paid with.
    pub payment_method_id: Option<PaymentMethodId>,
    /// What is to happen at the end of the cycle.
    pub pending_change: Option<PendingChange>,
}

/// The payment of a renewal failed; it is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalFailed {
    /// Whose.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// The cycle that was to be paid, since the anchor.
    pub cycle_number: u32,
    /// Counts the attempts at this cycle, from 1.
    pub attempt: u32,
    /// The payment that failed; none where there was nothing to pay with.
    pub payment_id: Option<PaymentId>,
    /// When it is tried again.
    pub retry_at: DateTime<Utc>,
}

/// Why a subscription ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// It was asked for.
    Requested,
    /// The renewal could not be paid.
    PaymentFailed,
    /// The customer was deleted.
    CustomerDeleted,
}

/// A subscription ended. What was left of the plan's credit expired; bundle credit and balance stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionCancelled {
    /// Whose.
    #[serde(flatten)]
    pub subscriber: Subscriber,
    /// The plan it was on.
    pub plan_id: PlanId,
    /// Why.
    pub reason: CancelReason,
    /// The plan's credit that expired.
    pub expired: Amount,
}

/// A credit bundle was bought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundlePurchased {
    /// The payment that bought it; it names this credit from now on.
    pub payment_id: PaymentId,
    /// The customer.
    pub customer_id: CustomerId,
    /// The wallet that holds the credit.
    pub wallet_id: WalletId,
    /// The bundle.
    pub credit_bundle_id: CreditBundleId,
    /// What it cost.
    pub cost: Amount,
    /// The credit it brought.
    pub granted: Amount,
}
