//! The state of a spend key.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{SpendKeySettings, SpendKeyStatus};
use crate::ids::{CustomerId, MerchantId, WalletId};
use crate::secret::KeyHash;

/// A spend key without its counters: see [`crate::spending::Spending`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendKey {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The wallet it spends from.
    pub wallet_id: WalletId,
    /// The customer who owns the wallet, if any.
    pub customer_id: Option<CustomerId>,
    /// The hash of the present raw key.
    pub key_hash: KeyHash,
    /// The part of the raw key that may be shown.
    pub key_preview: String,
    /// The number of its rotations.
    pub rotation: u32,
    /// The number of its updates.
    pub revision: u32,
    /// Its status.
    pub status: SpendKeyStatus,
    /// Its name and limits.
    pub settings: SpendKeySettings,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}
