//! The events that change a wallet: credits, debits and its automatic recharge.

use serde::{Deserialize, Serialize};

use super::kind::area;
use super::movement::Movement;
use super::webhook::{Topic, WebhookNotice};
use crate::ids::{CreditId, CustomerId, PaymentId, RequestId, SubscriptionId, WalletId};
use crate::money::Amount;

area! {
    /// The events of a wallet.
    Event::Wallet(WalletEvent) {
        Credited(WalletCredited) = "wallet.credited",
        Debited(WalletDebited) = "wallet.debited",
        AutopayChanged(AutopayChanged) = "wallet.autopay_changed",
    }
}

impl WalletEvent {
    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Credited(event) => format!("{}/credited", event.credit_id),
            Self::Debited(event) => format!("{}/debited/{}", event.request_id, event.wallet_id),
            Self::AutopayChanged(event) => format!("{}/autopay/{}", event.wallet_id, event.revision),
        }
    }

    /// The wallet whose money the event moves, and how.
    pub(super) fn movement(&self) -> Option<(WalletId, Movement)> {
        match self {
            Self::Credited(event) => Some((event.wallet_id, Movement::Credited(event.amount))),
            Self::Debited(event) => Some((event.wallet_id, Movement::Debited(event.amount))),
            Self::AutopayChanged(_) => None,
        }
    }

    /// What webhooks are notified of: changes of a customer's balance, never of the merchant's own.
    pub(super) fn webhook_notice(&self) -> Option<WebhookNotice> {
        let customer_id = match self {
            Self::Credited(event) => event.customer_id?,
            Self::Debited(event) => event.customer_id?,
            Self::AutopayChanged(_) => return None,
        };
        Some(WebhookNotice { topic: Topic::WalletBalanceUpdated, customer_id: Some(customer_id) })
    }
}

/// Money came into a wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletCredited {
    /// This credit.
    pub credit_id: CreditId,
    /// The wallet.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is; none for the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// How much; above zero.
    pub amount: Amount,
    /// Why.
    pub reason: String,
    /// The balance after it.
    pub balance_after: Amount,
}

/// Where drawn money came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The wallet's balance.
    Balance,
    /// The credit that a subscription's cycles brought.
    PlanCredit(SubscriptionId),
    /// The credit of a bundle, by the payment that bought it.
    BundleCredit(PaymentId),
}

/// One source of a debit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletSource {
    /// Where from.
    pub source: Source,
    /// How much.
    pub amount: Amount,
}

/// Money left a wallet for a metered call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletDebited {
    /// The request it pays for.
    pub request_id: RequestId,
    /// The wallet.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is; none for the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// How much; above zero, the sum of the sources.
    pub amount: Amount,
    /// What it was drawn from, in order.
    pub sources: Vec<WalletSource>,
    /// The balance after it.
    pub balance_after: Amount,
}

/// A wallet is filled up by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Autopay {
    /// When the balance falls below this, in dollars.
    pub threshold: Amount,
    /// By this, in dollars.
    pub amount: Amount,
}

/// Whether a wallet is filled up by itself was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutopayChanged {
    /// The wallet.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is; none for the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// Counts the changes of this wallet's autopay, from 1.
    pub revision: u32,
    /// From now on; none where it is not.
    pub autopay: Option<Autopay>,
}
