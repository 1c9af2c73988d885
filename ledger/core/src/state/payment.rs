//! The states of payments, payment methods and checkout sessions.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{CheckoutSessionCreated, PaymentMethodAdded, PaymentRequested};
use crate::ids::{MerchantId, PaymentId};

/// An open payment; exists until it succeeds, is declined or is voided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPayment {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// When it was requested.
    pub requested_at: DateTime<Utc>,
    /// The request.
    pub requested: PaymentRequested,
}

/// A payment method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentMethod {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The event that added it.
    pub added: PaymentMethodAdded,
}

/// A checkout session; exists until it is completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckoutSession {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The event that created it.
    pub created: CheckoutSessionCreated,
    /// The open payment that completes it.
    pub payment_id: Option<PaymentId>,
    /// Its customer; may be created by the session, before it is paid.
    pub customer_id: Option<crate::ids::CustomerId>,
}
