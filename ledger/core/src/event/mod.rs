//! Events: the immutable facts of the ledger, in the past tense. Everything shown anywhere is a fold of these.
//!
//! A file per area declares the area's events. A new kind of event is added to its area; only a new area is added here
//! and to the [`codec`].

mod checkout;
pub mod codec;
mod customer;
#[cfg(test)]
mod fuzz;
mod kind;
mod merchant;
mod meter;
mod movement;
mod payment;
mod plan;
mod request;
mod secret_key;
mod spend_key;
mod subscription;
mod wallet;
mod webhook;

use chrono::{DateTime, Utc};

pub use self::checkout::{CheckoutEvent, CheckoutMode, CheckoutSessionCompleted, CheckoutSessionCreated};
pub use self::customer::{
    ContactPart, CustomerCreated, CustomerDeleted, CustomerEvent, CustomerUpdated, ReferenceChange,
};
pub use self::merchant::{ClockAdvanced, MerchantEvent, MerchantRegistered};
pub use self::meter::{MeterDefined, MeterDeleted, MeterEvent, MeterUpdated};
pub use self::movement::Movement;
pub use self::payment::{
    Card, CardBrought, DeclineReason, PaymentDeclined, PaymentEvent, PaymentMethodAdded, PaymentRequested,
    PaymentSucceeded, PaymentVoided, Purpose,
};
pub use self::plan::{
    BundleOffer, CreditBundleCreated, CreditBundleDeleted, CreditBundleUpdated, PlanCreated, PlanDeleted,
    PlanEvent, PlanUpdated,
};
pub use self::request::{
    Charge, FailureReason, Hold, KeyUse, Mark, Parties, ProviderKeyType, RequestEvent, RequestFailed,
    RequestMetered, RequestOpened, ServiceCharge,
};
pub use self::secret_key::{SecretKeyEvent, SecretKeyIssued, SecretKeyRevoked};
pub use self::spend_key::{
    Cycle, KeyRotated, RateLimit, RequestLimit, RequestShape, SpendKeyCreated, SpendKeyDeleted,
    SpendKeyEvent, SpendKeySettings, SpendKeyStatus, SpendKeyUpdated, SpendLimit,
};
pub use self::subscription::{
    BundlePurchased, CancelReason, CycleEnded, ExpiredBundle, PendingChange, RenewalFailed, Subscriber,
    SubscriptionCancelled, SubscriptionEvent, SubscriptionRenewed, SubscriptionStarted, SubscriptionUpdated,
    SubscriptionUpgraded,
};
pub use self::wallet::{
    Autopay, AutopayChanged, Source, WalletCredited, WalletDebited, WalletEvent, WalletSource,
};
pub use self::webhook::{
    Topic, WebhookCreated, WebhookDeleted, WebhookEvent, WebhookNotice, WebhookSettings, WebhookUpdated,
};
use crate::ids::{MerchantId, WalletId};
use crate::money;
use crate::partition::Partition;

/// A fact of the ledger, by area.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant holds the events of its area, documented there")]
pub enum Event {
    Merchant(MerchantEvent),
    SecretKey(SecretKeyEvent),
    Customer(CustomerEvent),
    Meter(MeterEvent),
    SpendKey(SpendKeyEvent),
    Wallet(WalletEvent),
    Request(RequestEvent),
    Plan(PlanEvent),
    Subscription(SubscriptionEvent),
    Payment(PaymentEvent),
    Checkout(CheckoutEvent),
    Webhook(WebhookEvent),
}

impl Event {
    /// The fact's key: unique in the log and a pure function of the fact, so that no fact is recorded twice.
    pub fn key(&self) -> String {
        match self {
            Self::Merchant(event) => event.key(),
            Self::SecretKey(event) => event.key(),
            Self::Customer(event) => event.key(),
            Self::Meter(event) => event.key(),
            Self::SpendKey(event) => event.key(),
            Self::Wallet(event) => event.key(),
            Self::Request(event) => event.key(),
            Self::Plan(event) => event.key(),
            Self::Subscription(event) => event.key(),
            Self::Payment(event) => event.key(),
            Self::Checkout(event) => event.key(),
            Self::Webhook(event) => event.key(),
        }
    }

    /// The wallet whose money the event moves, and the movement; `None` for an event that moves no money.
    pub fn movement(&self) -> Result<Option<(WalletId, Movement)>, money::Error> {
        match self {
            Self::Wallet(event) => Ok(event.movement()),
            Self::Subscription(event) => event.movement(),
            Self::Merchant(_)
            | Self::SecretKey(_)
            | Self::Customer(_)
            | Self::Meter(_)
            | Self::SpendKey(_)
            | Self::Request(_)
            | Self::Plan(_)
            | Self::Payment(_)
            | Self::Checkout(_)
            | Self::Webhook(_) => Ok(None),
        }
    }

    /// The webhook event that the event leads to; `None` if no topic covers it.
    pub fn webhook_notice(&self) -> Option<WebhookNotice> {
        match self {
            Self::Customer(event) => event.webhook_notice(),
            Self::SpendKey(event) => event.webhook_notice(),
            Self::Wallet(event) => event.webhook_notice(),
            Self::Request(event) => event.webhook_notice(),
            Self::Subscription(event) => event.webhook_notice(),
            Self::Merchant(_)
            | Self::SecretKey(_)
            | Self::Meter(_)
            | Self::Plan(_)
            | Self::Payment(_)
            | Self::Checkout(_)
            | Self::Webhook(_) => None,
        }
    }
}

/// An event with its merchant and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The merchant whose event it is.
    pub merchant_id: MerchantId,
    /// When it happened, to the millisecond.
    pub occurred_at: DateTime<Utc>,
    /// The event.
    pub event: Event,
}

/// A fact with its place in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The partition of its merchant.
    pub partition: Partition,
    /// The position in the partition: gap-free, in commit order, from 1.
    pub position: i64,
    /// The fact.
    pub fact: Fact,
}
