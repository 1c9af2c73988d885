//! The state of a spend key.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{SpendKeySettings, SpendKeyStatus};
use crate::ids::{CustomerId, MerchantId, WalletId};
use crate::secret::KeyHash;

/// A spend key, less what its calls move, which is its [`Spending`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendKey {
    /// Whose it is.
    pub merchant_id: MerchantId,
    /// The wallet it spends from.
    pub wallet_id: WalletId,
    /// The customer whose wallet that is.
    pub customer_id: Option<CustomerId>,
    /// The hash of the key that is good now.
    pub key_hash: KeyHash,
    /// What may be shown of that key.
    pub key_preview: String,
    /// Its rotations so far.
    pub rotation: u32,
    /// Its updates so far.
    pub revision: u32,
    /// Does it work?
    pub status: SpendKeyStatus,
    /// What it allows.
    pub settings: SpendKeySettings,
    /// When it came to be.
    pub created_at: DateTime<Utc>,
}
