//! The owner of the wallet that a payment or a payment method is for.

use serde::{Deserialize, Serialize};

use super::decision::DecideError;
use super::refusal::{CustomerRefusal, MerchantRefusal};
use crate::ids::{CustomerId, MerchantId, WalletId};
use crate::state::StateCache;

/// The owner of the wallet that is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payee {
    /// The merchant itself.
    Merchant,
    /// A customer.
    Customer(CustomerId),
}

impl Payee {
    /// The wallet and the customer who owns it.
    pub(super) fn wallet(
        self,
        states: &StateCache,
        merchant_id: MerchantId,
    ) -> Result<(WalletId, Option<CustomerId>), DecideError> {
        match self {
            Self::Merchant => {
                let merchant = states.merchant(merchant_id)?.ok_or(MerchantRefusal::NotFound)?;
                Ok((merchant.wallet_id, None))
            }
            Self::Customer(id) => {
                let customer = states.customer(id)?.filter(|found| found.merchant_id == merchant_id);
                Ok((customer.ok_or(CustomerRefusal::NotFound)?.wallet_id, Some(id)))
            }
        }
    }
}
