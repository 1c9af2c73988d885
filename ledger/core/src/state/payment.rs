//! The states of payments, payment methods and checkout sessions.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{CheckoutSessionCreated, PaymentMethodAdded, PaymentRequested};
use crate::ids::{MerchantId, PaymentId};

/// A payment under way; there until it succeeded or was declined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPayment {
    /// Whose wallet's.
    pub merchant_id: MerchantId,
    /// When it was asked for.
    pub requested_at: DateTime<Utc>,
    /// What was asked for.
    pub requested: PaymentRequested,
}

/// A payment method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentMethod {
    /// Whose wallet's.
    pub merchant_id: MerchantId,
    /// What was added.
    pub added: PaymentMethodAdded,
}

/// A checkout session; there until it is completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutSession {
    /// Whose.
    pub merchant_id: MerchantId,
    /// What was created.
    pub created: CheckoutSessionCreated,
    /// The payment under way that completes it.
    pub payment_id: Option<PaymentId>,
    /// The customer that it made, before it was paid.
    pub customer_id: Option<crate::ids::CustomerId>,
}
