//! The states of plans, subscriptions, payments and checkout sessions.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{
    BundleOffer, CheckoutSessionCreated, PaymentMethodAdded, PaymentRequested, PendingChange, Subscriber,
};
use crate::ids::{CreditBundleId, MerchantId, PaymentId, PaymentMethodId, PlanId};
use crate::plan::{BillingCycle, PlanTerms};

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Whose plan.
    pub merchant_id: MerchantId,
    /// What it takes and gives.
    pub terms: PlanTerms,
    /// Its bundles, in the order of their creation.
    pub credit_bundle_ids: Vec<CreditBundleId>,
    /// Its changes so far.
    pub revision: u32,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}

/// A credit bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditBundle {
    /// Whose.
    pub merchant_id: MerchantId,
    /// The plan whose subscribers may buy it.
    pub plan_id: PlanId,
    /// What it costs and brings.
    pub offer: BundleOffer,
    /// Its changes so far.
    pub revision: u32,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}

/// Where a subscription stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Phase {
    /// In a cycle that is paid for.
    Running,
    /// Its cycle has ended, the next one is to be paid.
    Renewing {
        /// The attempts so far.
        attempts: u32,
        /// The payment under way.
        payment_id: Option<PaymentId>,
        /// When the next attempt is due, where none is under way.
        retry_at: DateTime<Utc>,
    },
}

/// A subscription; there as long as it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// Whose customer's.
    pub merchant_id: MerchantId,
    /// Whose.
    pub subscriber: Subscriber,
    /// The plan.
    pub plan_id: PlanId,
    /// The terms of this cycle.
    pub terms: PlanTerms,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// What its cycles are counted from.
    pub anchor: DateTime<Utc>,
    /// The cycle.
    pub cycle: BillingCycle,
    /// Where it stands.
    pub phase: Phase,
    /// What renewals are paid with where the wallet has no method of its own.
    pub payment_method_id: Option<PaymentMethodId>,
    /// The bundle that is bought when the credit is used up.
    pub auto_top_up_bundle_id: Option<CreditBundleId>,
    /// What is to happen at the end of the cycle.
    pub pending_change: Option<PendingChange>,
    /// Its changes so far.
    pub revision: u32,
    /// When there is something to do, in milliseconds of Unix time: what a scheduler looks for. Always
    /// [`Subscription::due_at`]; none while a payment is under way.
    pub due_ms: Option<i64>,
}

impl Subscription {
    /// When there is something to do next: the end of the cycle, or another attempt to pay.
    pub fn due_at(&self) -> Option<DateTime<Utc>> {
        match self.phase {
            Phase::Running => Some(self.cycle.end),
            Phase::Renewing { payment_id: Some(_), .. } => None,
            Phase::Renewing { payment_id: None, retry_at, .. } => Some(retry_at),
        }
    }

    /// What of the pending change is still to come when a cycle begins that is on this plan and ends then: what was asked for
    /// while the renewal was being paid.
    pub fn outlasting(&self, plan_id: PlanId, effective_at: DateTime<Utc>) -> Option<PendingChange> {
        match &self.pending_change {
            Some(PendingChange::Cancellation { .. }) => Some(PendingChange::Cancellation { effective_at }),
            Some(PendingChange::Downgrade { plan_id: wanted, terms, .. }) if *wanted != plan_id => {
                Some(PendingChange::Downgrade { effective_at, plan_id: *wanted, terms: terms.clone() })
            }
            Some(PendingChange::Downgrade { .. }) | None => None,
        }
    }

    /// The same with [`Subscription::due_ms`] as it must be.
    pub(super) fn scheduled(mut self) -> Self {
        self.due_ms = self.due_at().map(|at| at.timestamp_millis());
        self
    }
}

/// A payment under way; there until it succeeded or was declined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPayment {
    /// Whose wallet's.
    pub merchant_id: MerchantId,
    /// When it was asked for.
    pub requested_at: DateTime<Utc>,
    /// What was asked for.
    pub requested: PaymentRequested,
}

/// A payment method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentMethod {
    /// Whose wallet's.
    pub merchant_id: MerchantId,
    /// What was added.
    pub added: PaymentMethodAdded,
}

/// A checkout session; there until it is completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutSession {
    /// Whose.
    pub merchant_id: MerchantId,
    /// What was created.
    pub created: CheckoutSessionCreated,
    /// The payment under way that completes it.
    pub payment_id: Option<PaymentId>,
    /// The customer that it made, before it was paid.
    pub customer_id: Option<crate::ids::CustomerId>,
}
