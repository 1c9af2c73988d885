//! A wallet: its money by source, and its holds. A customer's money is drawn in the order plan credit, bundle credit,
//! balance (completion.md section 3).
//!
//! Invariants: in a customer's wallet neither the balance nor any credit is below zero; no sum of holds is below zero.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{Autopay, ExpiredBundle, Source, WalletSource};
use crate::hold_scope::{CreditScope, HoldScope};
use crate::ids::{
    CreditBundleId, CustomerId, MerchantId, MeterId, PaymentId, PaymentMethodId, SubscriptionId,
};
use crate::money::{Amount, Error};
use crate::release::{self, Change};

/// The most money that a request may bring a wallet to: 10^11, a tenth of the largest amount. The rest is headroom for
/// open payments, so that money that was paid can always be credited.
pub const CEILING: Amount = Amount::MAX_TENTH;

/// The most bundles in a wallet that are not used up. Each decision about the wallet handles all of them.
pub const MAX_BUNDLES: usize = 1_000;

/// The owner of a wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WalletOwner {
    /// The merchant: overruns of customers may take the wallet below zero.
    Merchant,
    /// A customer: the wallet is never below zero.
    Customer(CustomerId),
}

/// The credit of a subscription; exists, even if used up, until the subscription ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCredit {
    /// The subscription.
    pub subscription_id: SubscriptionId,
    /// When the present cycle started; anchors the usage period.
    pub cycle_start: DateTime<Utc>,
    /// The remaining amount.
    pub remaining: Amount,
    /// Only calls on these meters draw it; every call does if the list is empty.
    pub meter_ids: Vec<MeterId>,
    /// The bundle bought automatically when the credit is used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_top_up_bundle_id: Option<CreditBundleId>,
}

/// The credit of one bundle purchase; removed when it is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleCredit {
    /// The payment that bought it.
    pub payment_id: PaymentId,
    /// The remaining amount; above zero.
    pub remaining: Amount,
}

/// A wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wallet {
    /// The merchant that owns it, or whose customer owns it.
    pub merchant_id: MerchantId,
    /// Its owner.
    pub owner: WalletOwner,
    /// The balance, without credit.
    pub balance: Amount,
    /// The sum of open holds.
    pub held: Amount,
    /// The part of the holds that the plan's credit does not cover.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_beside_plan: Amount,
    /// The part of the holds opened under an earlier plan or meter set. The plan's credit is conservatively assumed not
    /// to cover them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_before_plan: Amount,
    /// The number of changes of the plan's meters.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub plan_changes: u32,
    /// The plan's credit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanCredit>,
    /// Bundle credit, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bundles: Vec<BundleCredit>,
    /// The default payment method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_method_id: Option<PaymentMethodId>,
    /// The settings of automatic recharge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autopay: Option<Autopay>,
    /// The number of changes of autopay.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub autopay_revision: u32,
    /// The open payment of an automatic recharge.
    #[serde(rename = "filling_up", default, skip_serializing_if = "Option::is_none")]
    pub auto_recharge_payment_id: Option<PaymentId>,
    /// The open payment of an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_payment_id: Option<PaymentId>,
    /// No automatic recharge before this instant: the last one was declined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_again_before: Option<DateTime<Utc>>,
    /// The number of debits, in the tests' next release alone (see [`release`]).
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub debits: u32,
}

fn is_zero(amount: &Amount) -> bool {
    amount.is_zero()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes what it skips by reference")]
fn is_none_yet(count: &u32) -> bool {
    *count == 0
}

impl Wallet {
    /// An empty wallet.
    pub fn empty(merchant_id: MerchantId, owner: WalletOwner) -> Self {
        Self {
            merchant_id,
            owner,
            balance: Amount::ZERO,
            held: Amount::ZERO,
            held_beside_plan: Amount::ZERO,
            held_before_plan: Amount::ZERO,
            plan_changes: 0,
            plan: None,
            bundles: Vec::new(),
            payment_method_id: None,
            autopay: None,
            autopay_revision: 0,
            auto_recharge_payment_id: None,
            upgrade_payment_id: None,
            not_again_before: None,
            debits: 0,
        }
    }

    /// The credit scope of a call on `meter`.
    pub fn credit_scope(&self, meter: Option<MeterId>) -> CreditScope {
        match &self.plan {
            Some(plan) if !plan.meter_ids.is_empty() => {
                if meter.is_some_and(|meter| plan.meter_ids.contains(&meter)) {
                    CreditScope::All
                } else {
                    CreditScope::BesidePlan
                }
            }
            Some(_) | None => CreditScope::All,
        }
    }

    /// The remaining plan credit.
    pub fn plan_credit(&self) -> Amount {
        self.plan.as_ref().map_or(Amount::ZERO, |plan| plan.remaining)
    }

    /// The remaining bundle credit.
    pub fn bundle_credit(&self) -> Result<Amount, Error> {
        Amount::sum(self.bundles.iter().map(|bundle| bundle.remaining))
    }

    fn beside_plan(&self) -> Result<Amount, Error> {
        self.balance.plus(self.bundle_credit()?)
    }

    /// All money in the scope, held or not.
    pub fn money(&self, credit_scope: CreditScope) -> Result<Amount, Error> {
        match credit_scope {
            CreditScope::All => self.beside_plan()?.plus(self.plan_credit()),
            CreditScope::BesidePlan => self.beside_plan(),
        }
    }

    /// Checks that `amount` more does not exceed [`CEILING`].
    pub fn takes(&self, amount: Amount) -> Result<(), Error> {
        if self.money(CreditScope::All)?.plus(amount)? > CEILING { Err(Error::OutOfRange) } else { Ok(()) }
    }

    /// Returns true if another bundle may be bought. Payments under way do not count: one that succeeds always has its
    /// effect.
    pub fn takes_bundle(&self) -> bool {
        self.bundles.len() < MAX_BUNDLES
    }

    /// The money available to a new hold in the scope. Below zero if credit expired under open holds.
    pub fn available(&self, credit_scope: CreditScope) -> Result<Amount, Error> {
        let beside_plan = self.beside_plan()?;
        let all = beside_plan.plus(self.plan_credit())?.minus(self.held)?;
        match credit_scope {
            CreditScope::All => Ok(all),
            CreditScope::BesidePlan => {
                let held = self.held_beside_plan.plus(self.held_before_plan)?;
                Ok(all.min(beside_plan.minus(held)?))
            }
        }
    }

    /// The sources of a debit of `amount`, in order. The balance takes what no credit covers.
    pub fn draw(&self, amount: Amount, credit_scope: CreditScope) -> Result<Vec<WalletSource>, Error> {
        let mut left = amount;
        let mut sources = Vec::with_capacity(1);
        let plan = self.plan.iter().filter(|_| credit_scope == CreditScope::All);
        let plan = plan.map(|plan| (Source::PlanCredit(plan.subscription_id), plan.remaining));
        let bundles = self.bundles.iter();
        let bundles = bundles.map(|bundle| (Source::BundleCredit(bundle.payment_id), bundle.remaining));
        for (source, there) in plan.chain(bundles) {
            let part = left.min(there);
            if part.is_positive() {
                sources.push(WalletSource { source, amount: part });
                left = left.minus(part)?;
            }
        }
        if left.is_positive() {
            sources.push(WalletSource { source: Source::Balance, amount: left });
        }
        Ok(sources)
    }

    /// Debits the sources.
    pub fn debit(&mut self, sources: &[WalletSource]) -> Result<(), Error> {
        if release::next() == Some(Change::Fold) {
            self.debits += 1;
        }
        for WalletSource { source, amount } in sources {
            match source {
                Source::Balance => self.balance = self.balance.minus(*amount)?,
                Source::PlanCredit(id) => {
                    let plan = self.plan.as_mut().filter(|plan| plan.subscription_id == *id);
                    let plan = plan.ok_or(Error::OutOfRange)?;
                    plan.remaining = plan.remaining.minus(*amount)?;
                }
                Source::BundleCredit(id) => {
                    let bundle = self.bundles.iter_mut().find(|bundle| bundle.payment_id == *id);
                    let bundle = bundle.ok_or(Error::OutOfRange)?;
                    bundle.remaining = bundle.remaining.minus(*amount)?;
                }
            }
        }
        self.bundles.retain(|bundle| !bundle.remaining.is_zero());
        Ok(())
    }

    /// Holds `amount`.
    pub fn hold(&mut self, amount: Amount, scope: HoldScope) -> Result<(), Error> {
        self.held = self.held.plus(amount)?;
        if let Some(part) = self.held_part(scope) {
            *part = part.plus(amount)?;
        }
        Ok(())
    }

    /// Releases a hold of `amount`.
    pub fn release(&mut self, amount: Amount, scope: HoldScope) -> Result<(), Error> {
        self.held = self.held.minus(amount)?;
        if let Some(part) = self.held_part(scope) {
            *part = part.minus(amount)?;
        }
        Ok(())
    }

    /// The partial sum that a hold of this scope counts in; `None` if the plan's credit covers the hold.
    fn held_part(&mut self, scope: HoldScope) -> Option<&mut Amount> {
        if scope.plan_changes != self.plan_changes {
            return Some(&mut self.held_before_plan);
        }
        match scope.credit {
            CreditScope::All => None,
            CreditScope::BesidePlan => Some(&mut self.held_beside_plan),
        }
    }

    /// Sets the plan credit. If its meters change, all open holds count as opened under an earlier plan.
    pub fn set_plan(&mut self, plan: Option<PlanCredit>) {
        let meters =
            |plan: &Option<PlanCredit>| plan.as_ref().map(|plan| plan.meter_ids.clone()).unwrap_or_default();
        if meters(&self.plan) != meters(&plan) {
            self.plan_changes += 1;
            self.held_before_plan = self.held;
            self.held_beside_plan = Amount::ZERO;
        }
        self.plan = plan;
    }

    /// Removes expired bundle credit.
    pub fn expire_bundles(&mut self, expired: &[ExpiredBundle]) -> Result<(), Error> {
        for ExpiredBundle { payment_id, amount } in expired {
            let bundle = self.bundles.iter_mut().find(|bundle| bundle.payment_id == *payment_id);
            let bundle = bundle.ok_or(Error::OutOfRange)?;
            bundle.remaining = bundle.remaining.minus(*amount)?;
        }
        self.bundles.retain(|bundle| !bundle.remaining.is_zero());
        Ok(())
    }

    /// Returns true if the wallet recharges automatically.
    pub fn auto_recharge(&self) -> bool {
        self.autopay.is_some() || self.plan.as_ref().is_some_and(|plan| plan.auto_top_up_bundle_id.is_some())
    }

    /// Returns true if every sum keeps the invariants.
    pub fn is_sound(&self) -> bool {
        let money = match self.owner {
            WalletOwner::Customer(_) => !self.balance.is_negative(),
            WalletOwner::Merchant => true,
        };
        money
            && !self.plan_credit().is_negative()
            && self.bundles.iter().all(|bundle| bundle.remaining.is_positive())
            && !self.held.is_negative()
            && !self.held_beside_plan.is_negative()
            && !self.held_before_plan.is_negative()
            && self.held_beside_plan.plus(self.held_before_plan).is_ok_and(|part| part <= self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_name_of_the_open_recharge_is_kept() {
        let ulid = ulid::Ulid::from_parts(1, 1);
        let mut wallet = Wallet::empty(MerchantId::new(ulid), WalletOwner::Merchant);
        let payment_id = PaymentId::new(ulid);
        wallet.auto_recharge_payment_id = Some(payment_id);
        let stored = serde_json::to_value(&wallet).unwrap();
        assert_eq!(stored["filling_up"], payment_id.to_string());
        assert_eq!(serde_json::from_value::<Wallet>(stored).unwrap(), wallet);
    }
}
