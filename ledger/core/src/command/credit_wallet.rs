//! `CreditWallet`: an operator adds money to a wallet, with a reason.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::{CustomerRefusal, MerchantRefusal, WalletRefusal};
use crate::event::{Event, WalletCredited};
use crate::ids::{CreditId, CustomerId, MerchantId, WalletId};
use crate::money::Amount;
use crate::state::StateCache;

/// The owner of the wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreditTarget {
    /// A customer.
    Customer(CustomerId),
    /// The merchant itself.
    Merchant(MerchantId),
}

/// Credits a wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreditWallet {
    /// A new id for the credit.
    pub credit_id: CreditId,
    /// The owner of the wallet.
    pub target: CreditTarget,
    /// The amount; above zero.
    pub amount: Amount,
    /// The reason.
    pub reason: String,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// The wallet after a credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credited {
    /// The wallet.
    pub wallet_id: WalletId,
    /// Its balance.
    pub balance: Amount,
}

impl Command for CreditWallet {
    type Outcome = Credited;

    fn decide(&self, states: &StateCache) -> Result<Decision<Credited>, DecideError> {
        if !self.amount.is_positive() {
            return Err(WalletRefusal::AmountNotPositive.into());
        }
        let (merchant_id, wallet_id, customer_id) = match self.target {
            CreditTarget::Customer(id) => {
                let customer = states.customer(id)?.ok_or(CustomerRefusal::NotFound)?;
                (customer.merchant_id, customer.wallet_id, Some(id))
            }
            CreditTarget::Merchant(id) => {
                (id, states.merchant(id)?.ok_or(MerchantRefusal::NotFound)?.wallet_id, None)
            }
        };
        let wallet = states.wallet(wallet_id)?.expect("a customer or merchant has a wallet");
        wallet.takes(self.amount)?;
        let balance = wallet.balance.plus(self.amount)?;
        let event = Event::from(WalletCredited {
            credit_id: self.credit_id,
            wallet_id,
            customer_id,
            amount: self.amount,
            reason: self.reason.clone(),
            balance_after: balance,
        });
        Ok(Decision::append(merchant_id, self.now, vec![event], Credited { wallet_id, balance }))
    }
}
