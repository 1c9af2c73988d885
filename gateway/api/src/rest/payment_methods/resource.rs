//! A payment method as it is shown.

use chrono::{DateTime, Utc};
use farthing_core::event::Card;
use farthing_core::ids::PaymentMethodId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::rest::body::Timestamp;

/// A payment method.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the interface names the fields")]
pub(in crate::rest) struct PaymentMethod {
    payment_method_id: PaymentMethodId,
    /// What may be shown of the card.
    card: Card,
    /// Payments are made with it where nothing else is said: it was added last.
    is_default: bool,
    created_at: Timestamp,
}

impl PaymentMethod {
    pub(super) fn new(id: PaymentMethodId, card: Card, is_default: bool, created_at: DateTime<Utc>) -> Self {
        Self { payment_method_id: id, card, is_default, created_at: Timestamp(created_at) }
    }
}
