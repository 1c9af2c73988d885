//! Changes of a wallet's credit and of how it is paid for.

use chrono::{DateTime, Utc};

use super::wallet::{BundleCredit, PlanCredit, Wallet};
use crate::event::{Autopay, ExpiredBundle};
use crate::ids::{CreditBundleId, PaymentId, PaymentMethodId};
use crate::money::{Amount, Error};

/// What happens to a wallet's credit, or to how it is paid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalletChange {
    /// A cycle brings credit, beside what is left of an earlier one.
    GrantPlan(PlanCredit),
    /// Some of the plan's credit expires.
    ExpirePlan(Amount),
    /// The subscription is no more.
    EndPlan,
    /// The bundle that is bought when the plan's credit is used up.
    TopUpWith(Option<CreditBundleId>),
    /// A bundle was bought.
    GrantBundle(BundleCredit),
    /// Bundle credit expires.
    ExpireBundles(Vec<ExpiredBundle>),
    /// What payments are made with from now on.
    PayWith(PaymentMethodId),
    /// It is filled up so, or not any more; counts the changes.
    Autopay(Option<Autopay>, u32),
    /// A payment that it asked for by itself is under way.
    AutoRecharge(PaymentId),
    /// The payment has ended; nothing is asked for by itself before then.
    PaymentEnded(PaymentId, Option<DateTime<Utc>>),
    /// Its customer is no more: it asks for nothing by itself again.
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
            WalletChange::AutoRecharge(payment_id) => self.filling_up = Some(payment_id),
            WalletChange::PaymentEnded(payment_id, not_again_before) => {
                if self.filling_up == Some(payment_id) {
                    self.filling_up = None;
                    self.not_again_before = not_again_before;
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
