//! Changes of a wallet's credit and of its payment settings.

use chrono::{DateTime, Utc};

use super::wallet::{BundleCredit, PlanCredit, Wallet};
use crate::event::{Autopay, ExpiredBundle};
use crate::ids::{CreditBundleId, PaymentId, PaymentMethodId};
use crate::money::{Amount, Error};

/// A change of a wallet's credit or of its payment settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalletChange {
    /// Grants the credit of a cycle, in addition to credit carried over.
    GrantPlan(PlanCredit),
    /// Expires some of the plan's credit.
    ExpirePlan(Amount),
    /// Removes the plan: the subscription has ended.
    EndPlan,
    /// Sets the bundle bought automatically when the plan's credit is used up.
    TopUpWith(Option<CreditBundleId>),
    /// Grants the credit of a bundle.
    GrantBundle(BundleCredit),
    /// Expires bundle credit.
    ExpireBundles(Vec<ExpiredBundle>),
    /// Sets the payment method.
    PayWith(PaymentMethodId),
    /// Sets or clears autopay; with the number of changes.
    Autopay(Option<Autopay>, u32),
    /// Records the open payment of an automatic recharge.
    AutoRecharge(PaymentId),
    /// Records the open payment of an upgrade.
    Upgrade(PaymentId),
    /// Records the end of a payment; no automatic recharge before the instant, if any.
    PaymentEnded(PaymentId, Option<DateTime<Utc>>),
    /// Disables automatic recharge: the customer was deleted.
    Orphan,
}

impl Wallet {
    /// Applies `change`.
    pub(super) fn change(&mut self, change: WalletChange) -> Result<(), Error> {
        match change {
            WalletChange::GrantPlan(granted) => {
                let kept = self.plan.as_ref().and_then(|plan| plan.auto_top_up_bundle_id);
                let plan = PlanCredit {
                    remaining: self.plan_credit().plus(granted.remaining)?,
                    auto_top_up_bundle_id: granted.auto_top_up_bundle_id.or(kept),
                    ..granted
                };
                self.set_plan(Some(plan));
            }
            WalletChange::ExpirePlan(amount) => {
                if let Some(plan) = &mut self.plan {
                    plan.remaining = plan.remaining.minus(amount)?;
                }
            }
            WalletChange::EndPlan => self.set_plan(None),
            WalletChange::TopUpWith(bundle) => {
                if let Some(plan) = &mut self.plan {
                    plan.auto_top_up_bundle_id = bundle;
                }
            }
            WalletChange::GrantBundle(bundle) => {
                if bundle.remaining.is_positive() {
                    self.bundles.push(bundle);
                }
            }
            WalletChange::ExpireBundles(expired) => self.expire_bundles(&expired)?,
            WalletChange::PayWith(id) => {
                self.payment_method_id = Some(id);
                self.not_again_before = None;
            }
            WalletChange::Autopay(autopay, revision) => {
                self.autopay = autopay;
                self.autopay_revision = revision;
                self.not_again_before = None;
            }
            WalletChange::AutoRecharge(payment_id) => self.auto_recharge_payment_id = Some(payment_id),
            WalletChange::Upgrade(payment_id) => self.upgrade_payment_id = Some(payment_id),
            WalletChange::PaymentEnded(payment_id, not_again_before) => {
                if self.auto_recharge_payment_id == Some(payment_id) {
                    self.auto_recharge_payment_id = None;
                    self.not_again_before = not_again_before;
                }
                if self.upgrade_payment_id == Some(payment_id) {
                    self.upgrade_payment_id = None;
                }
            }
            WalletChange::Orphan => {
                self.autopay = None;
                self.set_plan(None);
            }
        }
        Ok(())
    }
}
