//! The state of a subscription.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{
    PendingChange, Subscriber, SubscriptionRenewed, SubscriptionUpdated, SubscriptionUpgraded,
};
use crate::ids::{CreditBundleId, MerchantId, PaymentId, PaymentMethodId, PlanId};
use crate::plan::{BillingCycle, PlanTerms};

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

/// What happens to a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionChange {
    /// Other settings.
    Update(Box<SubscriptionUpdated>),
    /// Its cycle has ended, at this instant.
    EndCycle(DateTime<Utc>),
    /// A renewal is being paid, for this many times now.
    Pay(PaymentId, u32),
    /// That payment failed, for this many times now; again then.
    Fail(u32, DateTime<Utc>),
    /// A new cycle.
    Renew(Box<SubscriptionRenewed>),
    /// Another plan.
    Upgrade(Box<SubscriptionUpgraded>),
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

    /// The subscription after `change`.
    pub(super) fn changed(mut self, change: SubscriptionChange) -> Self {
        match change {
            SubscriptionChange::Update(event) => {
                self.revision = event.revision;
                self.auto_top_up_bundle_id = event.auto_top_up_bundle_id;
                self.payment_method_id = event.payment_method_id;
                self.pending_change = event.pending_change;
            }
            SubscriptionChange::EndCycle(ended_at) => {
                self.phase = Phase::Renewing { attempts: 0, payment_id: None, retry_at: ended_at };
            }
            SubscriptionChange::Pay(payment_id, attempts) => {
                let retry_at = self.cycle.end;
                self.phase = Phase::Renewing { attempts, payment_id: Some(payment_id), retry_at };
            }
            SubscriptionChange::Fail(attempts, retry_at) => {
                self.phase = Phase::Renewing { attempts, payment_id: None, retry_at };
            }
            SubscriptionChange::Renew(event) => {
                self.pending_change = self.outlasting(event.plan_id, event.cycle.end);
                self.plan_id = event.plan_id;
                self.terms = event.terms;
                self.cycle = event.cycle;
                self.phase = Phase::Running;
                if event.cycle.number == 0 {
                    self.anchor = event.cycle.start;
                }
            }
            SubscriptionChange::Upgrade(event) => {
                self.revision = event.revision;
                self.plan_id = event.plan_id;
                self.terms = event.terms;
                self.anchor = event.cycle.start;
                self.cycle = event.cycle;
                self.phase = Phase::Running;
                self.pending_change = None;
                self.payment_method_id = event.payment_method_id.or(self.payment_method_id);
            }
        }
        self.scheduled()
    }
}
