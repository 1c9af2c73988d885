//! `SetAutopay`: enables, changes or disables the automatic recharge of a wallet (completion.md section 7). Absent
//! settings stay.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::edit::Edit;
use super::payee::Payee;
use super::refusal::{PaymentRefusal, Refusal, WalletRefusal};
use crate::event::{Autopay, AutopayChanged, Event};
use crate::ids::MerchantId;
use crate::money::Amount;
use crate::state::StateCache;

/// The changes of a wallet's autopay. Disabling it clears the threshold and the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutopayEdits {
    /// Enables or disables it.
    pub enabled: Option<bool>,
    /// The balance below which the wallet recharges, in dollars.
    pub threshold: Edit<Amount>,
    /// The amount of one recharge, in dollars.
    pub amount: Edit<Amount>,
}

/// Changes the autopay of a wallet. A change without effect appends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAutopay {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The owner of the wallet.
    pub payee: Payee,
    /// The changes.
    pub edits: AutopayEdits,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl AutopayEdits {
    /// All settings after the change.
    pub fn all(autopay: Option<Autopay>) -> Self {
        let part = |of: fn(Autopay) -> Amount| autopay.map_or(Edit::Keep, |autopay| Edit::Set(of(autopay)));
        Self {
            enabled: Some(autopay.is_some()),
            threshold: part(|autopay| autopay.threshold),
            amount: part(|autopay| autopay.amount),
        }
    }

    /// Returns `present` after the changes. Refuses a missing threshold or amount, and either of them while autopay is
    /// disabled.
    fn of(self, present: Option<Autopay>) -> Result<Option<Autopay>, Refusal> {
        let edited = |edit: Edit<Amount>, of: fn(Autopay) -> Amount| match edit {
            Edit::Keep => present.map(of),
            Edit::Clear => None,
            Edit::Set(amount) => Some(amount),
        };
        let threshold = edited(self.threshold, |autopay| autopay.threshold);
        let amount = edited(self.amount, |autopay| autopay.amount);
        match (self.enabled, present) {
            (Some(false), _) => Ok(None),
            (None, None) => {
                let is_set = |edit: Edit<Amount>| matches!(edit, Edit::Set(_));
                let (threshold, amount) = (is_set(self.threshold), is_set(self.amount));
                if threshold || amount {
                    return Err(Refusal::Wallet(WalletRefusal::AutopayIncomplete {
                        enabled: false,
                        threshold,
                        amount,
                    }));
                }
                Ok(None)
            }
            (Some(true), _) | (None, Some(_)) => match (threshold, amount) {
                (Some(threshold), Some(amount)) => Ok(Some(Autopay { threshold, amount })),
                (threshold, amount) => Err(Refusal::Wallet(WalletRefusal::AutopayIncomplete {
                    enabled: true,
                    threshold: threshold.is_none(),
                    amount: amount.is_none(),
                })),
            },
        }
    }
}

impl Command for SetAutopay {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let (wallet_id, customer_id) = self.payee.wallet(states, self.merchant_id)?;
        let wallet = states.wallet(wallet_id)?.expect("a customer or merchant has a wallet");
        let autopay = self.edits.of(wallet.autopay)?;
        if wallet.autopay == autopay {
            return Ok(Decision::already(()));
        }
        if autopay.is_some() && wallet.payment_method_id.is_none() {
            return Err(PaymentRefusal::NoMethod.into());
        }
        let event = Event::from(AutopayChanged {
            wallet_id,
            customer_id,
            revision: wallet.autopay_revision + 1,
            autopay,
        });
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}
