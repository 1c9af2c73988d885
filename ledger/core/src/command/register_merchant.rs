//! `RegisterMerchant`: registers a merchant with a wallet and its first secret key.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::issue_secret_key::IssueSecretKey;
use crate::event::{Event, MerchantRegistered};
use crate::ids::WalletId;
use crate::state::StateCache;

/// Registers a merchant and issues its first secret key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterMerchant {
    /// A new id for its wallet.
    pub wallet_id: WalletId,
    /// Its name.
    pub name: String,
    /// Its first key, which holds the merchant's new id.
    pub first_key: IssueSecretKey,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for RegisterMerchant {
    type Outcome = ();

    fn decide(&self, _: &StateCache) -> Result<Decision<()>, DecideError> {
        let merchant_id = self.first_key.merchant_id;
        let registered =
            MerchantRegistered { merchant_id, wallet_id: self.wallet_id, name: self.name.clone() };
        let events = vec![Event::from(registered), self.first_key.event()];
        Ok(Decision::append(merchant_id, self.now, events, ()))
    }
}
