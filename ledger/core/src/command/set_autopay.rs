//! `SetAutopay`: when a wallet is filled up by itself (completion.md section 7). What is not said stays as it is.

use chrono::{DateTime, Utc};

use super::decision::{Command, DecideError, Decision};
use super::edit::Edit;
use super::payee::Payee;
use super::refusal::{PaymentRefusal, Refusal, WalletRefusal};
use crate::event::{Autopay, AutopayChanged, Event};
use crate::ids::MerchantId;
use crate::money::Amount;
use crate::state::StateCache;

/// What is to change of a wallet's autopay. A wallet that is not filled up keeps neither threshold nor amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AutopayEdits {
    /// Whether it is filled up by itself.
    pub enabled: Option<bool>,
    /// When the balance falls below this, in dollars.
    pub threshold: Edit<Amount>,
    /// By this, in dollars.
    pub amount: Edit<Amount>,
}

/// Says when a wallet is filled up by itself. Changes that change nothing append nothing.
#[derive(Debug, Clone, Copy)]
pub struct SetAutopay {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// Whose wallet.
    pub payee: Payee,
    /// The changes.
    pub edits: AutopayEdits,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl AutopayEdits {
    /// All of it, as it is from now on.
    pub fn all(autopay: Option<Autopay>) -> Self {
        let part = |of: fn(Autopay) -> Amount| autopay.map_or(Edit::Keep, |autopay| Edit::Set(of(autopay)));
        Self {
            enabled: Some(autopay.is_some()),
            threshold: part(|autopay| autopay.threshold),
            amount: part(|autopay| autopay.amount),
        }
    }

    /// What `present` is once it is changed; refused where something of it would be missing, or kept by nothing.
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
