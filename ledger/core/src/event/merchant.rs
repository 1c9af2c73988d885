//! The events of merchants.

use serde::{Deserialize, Serialize};

use super::kind::area;
use crate::ids::{MerchantId, WalletId};

area! {
    /// The events of a merchant.
    Event::Merchant(MerchantEvent) {
        Registered(MerchantRegistered) = "merchant.registered",
        ClockAdvanced(ClockAdvanced) = "clock.advanced",
    }
}

impl MerchantEvent {
    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Registered(event) => format!("{}/registered", event.merchant_id),
            Self::ClockAdvanced(event) => format!("{}/clock/{}", event.merchant_id, event.ahead_seconds),
        }
    }
}

/// A merchant was registered, with its own wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MerchantRegistered {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// Its own wallet.
    pub wallet_id: WalletId,
    /// Its name (a company's, not a person's).
    pub name: String,
}

/// A merchant's clock was advanced, on an instance in test mode. Later decisions for the merchant use the machine's
/// time plus `ahead_seconds`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAdvanced {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The advance in seconds; above zero.
    pub seconds: i64,
    /// The new lead over the machine's clock, in seconds.
    pub ahead_seconds: i64,
}
