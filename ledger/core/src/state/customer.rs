//! The state of a customer.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{MerchantId, SubscriptionId, WalletId};

/// A customer, which is also the connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Customer {
    /// Whose customer.
    pub merchant_id: MerchantId,
    /// The customer's wallet.
    pub wallet_id: WalletId,
    /// The merchant's own identifier.
    pub reference_id: Option<String>,
    /// Its changes so far.
    pub revision: u32,
    /// Anchors the usage periods.
    pub created_at: DateTime<Utc>,
    /// The subscription that is active, or being paid for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<SubscriptionId>,
}
