//! The state of a subscription.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{
    PendingChange, Subscriber, SubscriptionRenewed, SubscriptionUpdated, SubscriptionUpgraded,
};
use crate::ids::{CreditBundleId, MerchantId, PaymentId, PaymentMethodId, PlanId};
use crate::plan::{BillingCycle, PlanTerms};

/// The phase of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Phase {
    /// The present cycle is paid.
    Running,
    /// The cycle has ended and the next one awaits its payment.
    #[serde(rename = "renewing")]
    Dunning {
        /// The number of attempts.
        attempts: u32,
        /// The open payment, if any.
        payment_id: Option<PaymentId>,
        /// When the next attempt is due, if no payment is open.
        retry_at: DateTime<Utc>,
    },
}

/// A subscription; exists until it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The subscription and its customer.
    pub subscriber: Subscriber,
    /// The plan.
    pub plan_id: PlanId,
    /// The terms of the present cycle.
    pub terms: PlanTerms,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// The instant that its cycles are counted from.
    pub anchor: DateTime<Utc>,
    /// The present cycle.
    pub cycle: BillingCycle,
    /// Its phase.
    pub phase: Phase,
    /// The payment method of renewals if the wallet has none.
    pub payment_method_id: Option<PaymentMethodId>,
    /// The bundle bought automatically when the credit is used up.
    pub auto_top_up_bundle_id: Option<CreditBundleId>,
    /// Whether the subscriber chose that setting; a plan's default otherwise. `None` if the log does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_top_up_chosen: Option<bool>,
    /// The change at the end of the cycle.
    pub pending_change: Option<PendingChange>,
    /// See [`SubscriptionRenewed::outlasts`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlasts: Option<PaymentId>,
    /// The number of its changes.
    pub revision: u32,
    /// When the subscription is due, in milliseconds of Unix time; read by the scheduler. Always equals
    /// [`Subscription::due_at`]; `None` while a payment is open.
    pub due_ms: Option<i64>,
}

/// A change of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionChange {
    /// New settings.
    Update(Box<SubscriptionUpdated>),
    /// The cycle ended at this instant.
    EndCycle(DateTime<Utc>),
    /// A payment for the renewal is open; with the number of attempts.
    Pay(PaymentId, u32),
    /// The payment failed; with the number of attempts and the instant of the next one.
    Fail(u32, DateTime<Utc>),
    /// A new cycle started.
    Renew(Box<SubscriptionRenewed>),
    /// The subscription moved to another plan.
    Upgrade(Box<SubscriptionUpgraded>),
}

impl Subscription {
    /// Whether the subscriber turned auto top-up off. If the log does not say who chose the setting, it was turned off
    /// where the present plan has a default.
    pub(crate) fn turned_auto_top_up_off(&self) -> bool {
        let has_default = self.terms.default_auto_top_up_bundle_id.is_some();
        self.auto_top_up_bundle_id.is_none() && self.auto_top_up_chosen.unwrap_or(has_default)
    }

    /// The bundle that auto top-up buys after a move to another plan with these `terms`: that plan's, unless the
    /// subscriber turned auto top-up off.
    pub fn auto_top_up_on(&self, terms: &PlanTerms) -> Option<CreditBundleId> {
        terms.default_auto_top_up_bundle_id.filter(|_| !self.turned_auto_top_up_off())
    }

    /// When the subscription is due: the end of the cycle or the next attempt to pay.
    pub fn due_at(&self) -> Option<DateTime<Utc>> {
        match self.phase {
            Phase::Running => Some(self.cycle.end),
            Phase::Dunning { payment_id: Some(_), .. } => None,
            Phase::Dunning { payment_id: None, retry_at, .. } => Some(retry_at),
        }
    }

    /// Whether it ends with its cycle.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.pending_change, Some(PendingChange::Cancellation { .. }))
    }

    /// The pending change that remains when a cycle starts that is on this plan and ends at `effective_at`: one that
    /// was requested while the renewal, or the upgrade, was being paid.
    pub fn outlasting(&self, plan_id: PlanId, effective_at: DateTime<Utc>) -> Option<PendingChange> {
        match &self.pending_change {
            Some(PendingChange::Cancellation { outlasts, .. }) => {
                Some(PendingChange::Cancellation { effective_at, outlasts: *outlasts })
            }
            Some(PendingChange::Downgrade { plan_id: wanted, terms, outlasts, .. }) if *wanted != plan_id => {
                let (plan_id, terms, outlasts) = (*wanted, terms.clone(), *outlasts);
                Some(PendingChange::Downgrade { effective_at, plan_id, terms, outlasts })
            }
            Some(PendingChange::Downgrade { .. }) | None => None,
        }
    }

    /// The change that is pending after an upgrade to this plan that `payment_id` paid: one that was requested while that
    /// payment was open. If a downgrade of that time was made meanwhile, it is made again at the end of the new cycle.
    pub(crate) fn outlasting_upgrade(
        &self,
        payment_id: PaymentId,
        plan_id: PlanId,
        effective_at: DateTime<Utc>,
    ) -> Option<PendingChange> {
        let outlasts = Some(payment_id);
        match &self.pending_change {
            Some(pending) if pending.outlasts() == outlasts => self.outlasting(plan_id, effective_at),
            None if self.outlasts == outlasts && self.plan_id != plan_id => {
                let (plan_id, terms) = (self.plan_id, Box::new(self.terms.clone()));
                Some(PendingChange::Downgrade { effective_at, plan_id, terms, outlasts })
            }
            // A change that was requested before the payment is taken back.
            Some(_) | None => None,
        }
    }

    /// [`SubscriptionRenewed::outlasts`] of a cycle on this plan that starts while the payment of an upgrade is `open`.
    pub(crate) fn renewed_during(&self, open: Option<PaymentId>, plan_id: PlanId) -> Option<PaymentId> {
        let chosen_during = match &self.pending_change {
            Some(PendingChange::Downgrade { plan_id: wanted, outlasts, .. }) if *wanted == plan_id => {
                *outlasts
            }
            Some(_) | None if self.plan_id == plan_id => self.outlasts,
            Some(_) | None => None,
        };
        chosen_during.filter(|chosen_during| open == Some(*chosen_during))
    }

    /// Returns the subscription with [`Subscription::due_ms`] updated.
    pub(super) fn scheduled(mut self) -> Self {
        self.due_ms = self.due_at().map(|at| at.timestamp_millis());
        self
    }

    /// Returns the subscription after `change`.
    pub(super) fn changed(mut self, change: SubscriptionChange) -> Self {
        match change {
            SubscriptionChange::Update(event) => {
                self.revision = event.revision;
                self.auto_top_up_bundle_id = event.auto_top_up_bundle_id;
                self.auto_top_up_chosen = event.auto_top_up_chosen;
                self.payment_method_id = event.payment_method_id;
                self.pending_change = event.pending_change;
            }
            SubscriptionChange::EndCycle(ended_at) => {
                self.phase = Phase::Dunning { attempts: 0, payment_id: None, retry_at: ended_at };
            }
            SubscriptionChange::Pay(payment_id, attempts) => {
                let retry_at = self.cycle.end;
                self.phase = Phase::Dunning { attempts, payment_id: Some(payment_id), retry_at };
            }
            SubscriptionChange::Fail(attempts, retry_at) => {
                self.phase = Phase::Dunning { attempts, payment_id: None, retry_at };
            }
            SubscriptionChange::Renew(event) => {
                self.pending_change = self.outlasting(event.plan_id, event.cycle.end);
                self.outlasts = event.outlasts;
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
                self.outlasts = None;
                self.payment_method_id = event.payment_method_id.or(self.payment_method_id);
            }
        }
        self.scheduled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_names_of_the_phases_are_kept() {
        let running = serde_json::to_string(&Phase::Running).unwrap();
        assert_eq!(running, r#"{"is":"running"}"#);
        let retry_at = DateTime::UNIX_EPOCH;
        let dunning = serde_json::to_string(&Phase::Dunning { attempts: 1, payment_id: None, retry_at });
        let stored = r#"{"is":"renewing","attempts":1,"payment_id":null,"retry_at":"1970-01-01T00:00:00Z"}"#;
        assert_eq!(dunning.unwrap(), stored);
    }
}
