//! The Payment method resource.

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
    /// The card, without its number.
    card: Card,
    /// Whether payments use it by default. The payment method added last is the default.
    is_default: bool,
    created_at: Timestamp,
}

impl PaymentMethod {
    pub(super) fn new(id: PaymentMethodId, card: Card, is_default: bool, created_at: DateTime<Utc>) -> Self {
        Self { payment_method_id: id, card, is_default, created_at: Timestamp(created_at) }
    }
}
