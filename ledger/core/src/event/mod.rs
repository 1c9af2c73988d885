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
use crate::ids::{CustomerId, MerchantId, RequestId, WalletId};
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

    /// The name of its kind in the log.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Merchant(event) => event.kind(),
            Self::SecretKey(event) => event.kind(),
            Self::Customer(event) => event.kind(),
            Self::Meter(event) => event.kind(),
            Self::SpendKey(event) => event.kind(),
            Self::Wallet(event) => event.kind(),
            Self::Request(event) => event.kind(),
            Self::Plan(event) => event.kind(),
            Self::Subscription(event) => event.kind(),
            Self::Payment(event) => event.kind(),
            Self::Checkout(event) => event.kind(),
            Self::Webhook(event) => event.kind(),
        }
    }

    /// The customer whom the event is about, if there is one.
    pub fn customer_id(&self) -> Option<CustomerId> {
        match self {
            Self::Customer(event) => Some(event.customer_id()),
            Self::SpendKey(event) => event.customer_id(),
            Self::Wallet(event) => event.customer_id(),
            Self::Request(event) => event.customer_id(),
            Self::Subscription(event) => Some(event.customer_id()),
            Self::Payment(event) => event.customer_id(),
            Self::Checkout(event) => event.customer_id(),
            Self::Merchant(_) | Self::SecretKey(_) | Self::Meter(_) | Self::Plan(_) | Self::Webhook(_) => {
                None
            }
        }
    }

    /// The call that the event is about, if there is one.
    pub fn request_id(&self) -> Option<RequestId> {
        match self {
            Self::Request(event) => Some(event.request_id()),
            Self::Wallet(WalletEvent::Debited(event)) => Some(event.request_id),
            Self::Wallet(WalletEvent::Credited(_) | WalletEvent::AutopayChanged(_))
            | Self::Merchant(_)
            | Self::SecretKey(_)
            | Self::Customer(_)
            | Self::Meter(_)
            | Self::SpendKey(_)
            | Self::Plan(_)
            | Self::Subscription(_)
            | Self::Payment(_)
            | Self::Checkout(_)
            | Self::Webhook(_) => None,
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
