//! The state of a merchant and its secret keys.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{MerchantId, SecretKeyId, WalletId};
use crate::secret::KeyHash;

/// A merchant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merchant {
    /// Its own wallet.
    pub wallet_id: WalletId,
    /// Its name.
    pub name: String,
    /// Anchors the usage periods of calls without a customer.
    pub created_at: DateTime<Utc>,
    /// How many secret keys of it are good; the last one stays.
    pub secret_keys: u32,
    /// How far its clock is ahead of the machine's, in seconds: in test mode alone.
    #[serde(default, skip_serializing_if = "is_on_time")]
    pub clock_ahead_seconds: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes what it skips by reference")]
fn is_on_time(ahead_seconds: &i64) -> bool {
    *ahead_seconds == 0
}

impl Merchant {
    /// What its clock says when the machine's says `machine`.
    pub fn now(&self, machine: DateTime<Utc>) -> DateTime<Utc> {
        let ahead = chrono::TimeDelta::try_seconds(self.clock_ahead_seconds).unwrap_or_default();
        machine.checked_add_signed(ahead).unwrap_or(machine)
    }
}

/// A merchant's secret key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretKey {
    /// Its id.
    pub secret_key_id: SecretKeyId,
    /// Whose it is.
    pub merchant_id: MerchantId,
}

/// A secret key that is good, by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedKey {
    /// Whose it is.
    pub merchant_id: MerchantId,
    /// The keyed hash of the raw key.
    pub key_hash: KeyHash,
}
