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

/// A merchant came to be, with the wallet of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MerchantRegistered {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// Its own wallet.
    pub wallet_id: WalletId,
    /// Its name (a company's, not a person's).
    pub name: String,
}

/// A merchant's clock was put forward, on an instance in test mode. Whatever is decided for the merchant from now on is
/// decided at the machine's time plus what it is ahead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAdvanced {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// By how much, in seconds; above zero.
    pub seconds: i64,
    /// How far it is ahead of the machine's clock from now on, in seconds.
    pub ahead_seconds: i64,
}
