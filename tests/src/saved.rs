//! What is known about a saved database: later releases must find it there.

use serde::{Deserialize, Serialize};

/// The content of `facts.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    /// The merchant.
    pub merchant_id: String,
    /// Its key.
    pub secret_key: String,
    /// The number of events in the log.
    pub events: i64,
    /// Customers whose balance no schedule changes.
    pub customers: Vec<KnownCustomer>,
}

/// A customer with a known balance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KnownCustomer {
    /// `con_…`
    pub id: String,
    /// The merchant's own id of the customer.
    pub reference_id: String,
    /// The balance of the wallet.
    pub balance: String,
    /// A forward token that bills the customer.
    pub credential: String,
}
