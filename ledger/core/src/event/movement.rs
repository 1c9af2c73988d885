//! What an event does to the sum of all money. Invariant: credited + granted - expired - debited = balances + credits.

use super::Event;
use crate::ids::WalletId;
use crate::money::{Amount, Error};

/// Money that came, was granted, expired or left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Movement {
    /// Came into a balance.
    Credited(Amount),
    /// Came as credit of a plan or a bundle.
    Granted(Amount),
    /// Was credit, and is no more.
    Expired(Amount),
    /// Left for a call.
    Debited(Amount),
}

impl Event {
    /// The wallet that it moves money of, and how.
    pub fn movement(&self) -> Result<Option<(WalletId, Movement)>, Error> {
        let (wallet_id, movement) = match self {
            Self::WalletCredited(event) => (event.wallet_id, Movement::Credited(event.amount)),
            Self::WalletDebited(event) => (event.wallet_id, Movement::Debited(event.amount)),
            Self::SubscriptionStarted(event) => {
                (event.subscriber.wallet_id, Movement::Granted(event.granted))
            }
            Self::SubscriptionRenewed(event) => {
                (event.subscriber.wallet_id, Movement::Granted(event.granted))
            }
            Self::SubscriptionUpgraded(event) => {
                (event.subscriber.wallet_id, Movement::Granted(event.granted))
            }
            Self::BundlePurchased(event) => (event.wallet_id, Movement::Granted(event.granted)),
            Self::CycleEnded(event) => {
                let bundles = Amount::sum(event.expired_bundles.iter().map(|bundle| bundle.amount))?;
                (event.subscriber.wallet_id, Movement::Expired(event.expired.plus(bundles)?))
            }
            Self::SubscriptionCancelled(event) => {
                (event.subscriber.wallet_id, Movement::Expired(event.expired))
            }
            Self::MerchantRegistered(_)
            | Self::SecretKeyIssued(_)
            | Self::SecretKeyRevoked(_)
            | Self::CustomerCreated(_)
            | Self::CustomerUpdated(_)
            | Self::CustomerDeleted(_)
            | Self::MeterDefined(_)
            | Self::MeterUpdated(_)
            | Self::MeterDeleted(_)
            | Self::SpendKeyCreated(_)
            | Self::KeyRotated(_)
            | Self::SpendKeyUpdated(_)
            | Self::SpendKeyDeleted(_)
            | Self::RequestOpened(_)
            | Self::RequestMetered(_)
            | Self::RequestFailed(_)
            | Self::ClockAdvanced(_)
            | Self::PlanCreated(_)
            | Self::PlanUpdated(_)
            | Self::PlanDeleted(_)
            | Self::CreditBundleCreated(_)
            | Self::CreditBundleUpdated(_)
            | Self::CreditBundleDeleted(_)
            | Self::SubscriptionUpdated(_)
            | Self::RenewalFailed(_)
            | Self::PaymentMethodAdded(_)
            | Self::AutopayChanged(_)
            | Self::PaymentRequested(_)
            | Self::PaymentSucceeded(_)
            | Self::PaymentDeclined(_)
            | Self::PaymentVoided(_)
            | Self::CheckoutSessionCreated(_)
            | Self::CheckoutSessionCompleted(_)
            | Self::WebhookCreated(_)
            | Self::WebhookUpdated(_)
            | Self::WebhookDeleted(_) => return Ok(None),
        };
        Ok(Some((wallet_id, movement)))
    }
}
