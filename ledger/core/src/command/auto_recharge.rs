//! Automatic recharge of a wallet. Auto top-up buys a bundle if the subscription's credit is used up or does not cover
//! another call like the present one. Autopay adds money if the balance is below its threshold. Open holds do not lower
//! credit or balance here. A wallet has at most one open automatic payment, and pauses for a day after a declined one, unless
//! it has another card by then.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::WalletShortfall;
use crate::event::{Event, PaymentRequested, Purpose};
use crate::hold_scope::CreditScope;
use crate::ids::{PaymentId, WalletId};
use crate::money::Amount;
use crate::state::{Phase, StateCache, Wallet, WalletOwner};

/// The pause after a declined automatic payment.
pub(super) const PAUSE_AFTER_DECLINE: TimeDelta = TimeDelta::days(1);

/// A wallet as the present decision leaves it, and the hold that a call needs on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need<'a> {
    pub(super) wallet_id: WalletId,
    pub(super) wallet: &'a Wallet,
    /// The hold of the call, or its overrun if that is more.
    pub(super) hold: Amount,
    pub(super) credit_scope: CreditScope,
}

impl Need<'_> {
    /// The automatic payment of the wallet, if one is due at `now` by the merchant's clock.
    pub(super) fn payment(
        self,
        states: &StateCache,
        payment_id: PaymentId,
        now: DateTime<Utc>,
    ) -> Result<Option<Event>, DecideError> {
        let wallet = self.wallet;
        let pauses = wallet.not_again_before.is_some_and(|until| now < until);
        if wallet.auto_recharge_payment_id.is_some() || pauses {
            return Ok(None);
        }
        let Some(payment_method_id) = wallet.payment_method_id else { return Ok(None) };
        let (amount, purpose) = match (self.top_up(states)?, wallet.autopay) {
            (Some(top_up), _) => top_up,
            (None, Some(autopay)) if wallet.balance < autopay.threshold => (autopay.amount, Purpose::Autopay),
            (None, Some(_) | None) => return Ok(None),
        };
        if wallet.takes(amount.max(purpose.credit())).is_err() {
            return Ok(None);
        }
        let customer_id = match wallet.owner {
            WalletOwner::Customer(id) => Some(id),
            WalletOwner::Merchant => None,
        };
        Ok(Some(Event::from(Box::new(PaymentRequested {
            payment_id,
            wallet_id: self.wallet_id,
            customer_id,
            payment_method_id,
            amount,
            purpose,
            checkout_session_id: None,
            brings: None,
        }))))
    }

    /// The price and the purpose of the bundle to buy, if the credit is used up or does not cover another such call.
    fn top_up(self, states: &StateCache) -> Result<Option<(Amount, Purpose)>, DecideError> {
        let wallet = self.wallet;
        let Some(plan) = wallet.plan.as_ref().filter(|_| wallet.takes_bundle()) else { return Ok(None) };
        let Some(credit_bundle_id) = plan.auto_top_up_bundle_id else { return Ok(None) };
        // Credit held by other calls is not used up and may be released.
        let credit = wallet.plan_credit().plus(wallet.bundle_credit()?)?;
        if credit.is_positive() && wallet.money(self.credit_scope)? >= self.hold {
            return Ok(None);
        }
        // While a renewal is unpaid, no bundle is bought: the renewal grants new credit.
        let subscription = states.subscription(plan.subscription_id)?;
        let Some(subscription) = subscription.filter(|found| found.phase == Phase::Running) else {
            return Ok(None);
        };
        // Auto top-up does not buy a bundle that was deleted, belongs to another plan or is free.
        let bundle = states.credit_bundle(credit_bundle_id)?;
        let Some(bundle) = bundle.filter(|found| found.plan_id == subscription.plan_id) else {
            return Ok(None);
        };
        let credit_amount = bundle.offer.credit_amount;
        let purpose = Purpose::AutoTopUp { credit_bundle_id, credit_amount };
        Ok(bundle.offer.cost.is_positive().then_some((bundle.offer.cost, purpose)))
    }
}

/// Recharges the wallet that did not cover a refused call, if it recharges automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoRecharge {
    /// The wallet that did not cover the call.
    pub short: WalletShortfall,
    /// A new id for the payment.
    pub payment_id: PaymentId,
    /// The hold that the call needed.
    pub hold: Amount,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for AutoRecharge {
    /// The payment, if one was requested.
    type Outcome = Option<PaymentId>;

    fn decide(&self, states: &StateCache) -> Result<Decision<Self::Outcome>, DecideError> {
        let Self { short: WalletShortfall { wallet_id, credit_scope }, payment_id, hold, now } = *self;
        let Some(wallet) = states.wallet(wallet_id)? else { return Ok(Decision::already(None)) };
        let merchant_id = wallet.merchant_id;
        let need = Need { wallet_id, wallet, hold, credit_scope };
        let payment = need.payment(states, payment_id, states.now(merchant_id, now)?)?;
        Ok(match payment {
            Some(payment) => Decision::append(merchant_id, now, vec![payment], Some(payment_id)),
            None => Decision::already(None),
        })
    }
}
