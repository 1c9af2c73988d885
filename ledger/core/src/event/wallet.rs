//! The events of wallets: credits, debits and changes of autopay.

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
    pub(super) fn customer_id(&self) -> Option<CustomerId> {
        match self {
            Self::Credited(event) => event.customer_id,
            Self::Debited(event) => event.customer_id,
            Self::AutopayChanged(event) => event.customer_id,
        }
    }

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

    /// The webhook event that the event leads to: changes of a customer's balance, never of the merchant's own.
    pub(super) fn webhook_notice(&self) -> Option<WebhookNotice> {
        let customer_id = match self {
            Self::Credited(event) => event.customer_id?,
            Self::Debited(event) => event.customer_id?,
            Self::AutopayChanged(_) => return None,
        };
        Some(WebhookNotice { topic: Topic::WalletBalanceUpdated, customer_id: Some(customer_id) })
    }
}

/// Money was added to a wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletCredited {
    /// This credit.
    pub credit_id: CreditId,
    /// The wallet.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is; `None` if it is the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// The amount; above zero.
    pub amount: Amount,
    /// The reason.
    pub reason: String,
    /// The balance after it.
    pub balance_after: Amount,
}

/// The source of drawn money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The wallet's balance.
    Balance,
    /// The credit granted by a subscription's cycles.
    PlanCredit(SubscriptionId),
    /// The credit of a bundle, by the payment that bought it.
    BundleCredit(PaymentId),
}

/// The part of a debit from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletSource {
    /// The source.
    pub source: Source,
    /// The amount.
    pub amount: Amount,
}

/// A metered call drew money from a wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletDebited {
    /// The request it pays for.
    pub request_id: RequestId,
    /// The wallet.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is; `None` if it is the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// The amount: the sum of the sources, above zero.
    pub amount: Amount,
    /// The sources, in the order they were drawn.
    pub sources: Vec<WalletSource>,
    /// The balance after it.
    pub balance_after: Amount,
}

/// The automatic recharge of a wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Autopay {
    /// The wallet recharges when the balance falls below this, in dollars.
    pub threshold: Amount,
    /// The amount added by one recharge, in dollars.
    pub amount: Amount,
}

/// The automatic recharge of a wallet was enabled, changed or disabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutopayChanged {
    /// The wallet.
    pub wallet_id: WalletId,
    /// The customer whose wallet it is; `None` if it is the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// Counts the changes of this wallet's autopay, from 1.
    pub revision: u32,
    /// The new settings; `None` if it is disabled.
    pub autopay: Option<Autopay>,
}
