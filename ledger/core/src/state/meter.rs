//! The state of a meter.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::MerchantId;
use crate::meter::Price;

/// A meter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// Its slug.
    pub meter_slug: String,
    /// Its display name.
    pub name: String,
    /// Its price.
    pub price: Price,
    /// The number of its changes.
    pub revision: u32,
    /// When it was defined.
    pub created_at: DateTime<Utc>,
}
