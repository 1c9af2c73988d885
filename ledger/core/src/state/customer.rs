//! The state of a customer.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{MerchantId, SubscriptionId, WalletId};

/// A customer, which is also the connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Customer {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The customer's wallet.
    pub wallet_id: WalletId,
    /// The merchant's own identifier.
    pub reference_id: Option<String>,
    /// The number of its changes.
    pub revision: u32,
    /// Anchors the usage periods.
    pub created_at: DateTime<Utc>,
    /// The subscription that is active or awaits its first payment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<SubscriptionId>,
}
