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
    /// The number of its active secret keys; the last one cannot be revoked.
    pub secret_keys: u32,
    /// The lead of its clock over the machine's, in seconds; zero outside test mode.
    #[serde(default, skip_serializing_if = "is_on_time")]
    pub clock_ahead_seconds: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes what it skips by reference")]
fn is_on_time(ahead_seconds: &i64) -> bool {
    *ahead_seconds == 0
}

impl Merchant {
    /// The time of its clock when the machine's clock shows `machine`.
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
    /// The merchant.
    pub merchant_id: MerchantId,
}

/// An active secret key, by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedKey {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The keyed hash of the raw key.
    pub key_hash: KeyHash,
}
