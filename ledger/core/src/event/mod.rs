//! Events: the immutable facts of the ledger, in the past tense. Everything shown anywhere is a fold of these.

mod checkout;
pub mod codec;
#[cfg(test)]
mod fuzz;
mod movement;
mod payment;
mod plan;
mod request;
mod subscription;
mod webhook;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

pub use self::checkout::{CheckoutMode, CheckoutSessionCompleted, CheckoutSessionCreated};
pub use self::movement::Movement;
pub use self::payment::{
    Autopay, AutopayChanged, Card, CardBrought, DeclineReason, PaymentDeclined, PaymentMethodAdded,
    PaymentRequested, PaymentSucceeded, PaymentVoided, Purpose,
};
pub use self::plan::{
    BundleOffer, CreditBundleCreated, CreditBundleDeleted, CreditBundleUpdated, PlanCreated, PlanDeleted,
    PlanUpdated,
};
pub use self::request::{
    Charge, FailureReason, Hold, KeyUse, Mark, Parties, ProviderKeyType, RequestFailed, RequestMetered,
    RequestOpened, ServiceCharge, Source, WalletDebited, WalletSource,
};
pub use self::subscription::{
    BundlePurchased, CancelReason, CycleEnded, ExpiredBundle, PendingChange, RenewalFailed, Subscriber,
    SubscriptionCancelled, SubscriptionRenewed, SubscriptionStarted, SubscriptionUpdated,
    SubscriptionUpgraded,
};
pub use self::webhook::{
    Topic, WebhookCreated, WebhookDeleted, WebhookNotice, WebhookSettings, WebhookUpdated,
};
use crate::ids::{CreditId, CustomerId, MerchantId, MeterId, SecretKeyId, SpendKeyId, WalletId};
use crate::meter::Price;
use crate::money::Amount;
use crate::secret::KeyHash;

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

/// A secret key of a merchant was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretKeyIssued {
    /// The key's id.
    pub secret_key_id: SecretKeyId,
    /// The keyed hash of the raw key.
    pub key_hash: KeyHash,
    /// The last four characters of the raw key.
    pub hint: String,
    /// What the operator calls it.
    pub name: String,
}

/// A secret key was revoked: dead from this position on. Never a merchant's last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretKeyRevoked {
    /// The key's id.
    pub secret_key_id: SecretKeyId,
    /// The hash that is dead now.
    pub key_hash: KeyHash,
}

/// A customer came to be, with a wallet. Personal data (name, e-mail, phone) is not here but in the side table
/// under the customer's id, so that it can be erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerCreated {
    /// The customer, which is also the connection.
    pub customer_id: CustomerId,
    /// The customer's wallet.
    pub wallet_id: WalletId,
    /// The merchant's own identifier.
    pub reference_id: Option<String>,
    /// Free key-value pairs.
    pub metadata: BTreeMap<String, String>,
}

/// A merchant's own identifier of a customer was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReferenceChange {
    /// What is free again.
    pub from: Option<String>,
    /// What names the customer now.
    pub to: Option<String>,
}

/// A part of a customer's personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContactPart {
    /// First and last name.
    Name,
    /// E-mail address.
    Email,
    /// Phone number.
    Phone,
}

/// A customer was changed. Only what is named here changed; of the contact the log says which parts, never what
/// they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerUpdated {
    /// The customer.
    pub customer_id: CustomerId,
    /// Counts the changes of this customer, from 1.
    pub revision: u32,
    /// The merchant's own identifier, when it changed.
    pub reference_id: Option<ReferenceChange>,
    /// All key-value pairs from now on, when they changed; empty when they were cleared.
    pub metadata: Option<BTreeMap<String, String>>,
    /// What changed in the side table of personal data.
    pub contact: Vec<ContactPart>,
}

/// A customer is no more: its credentials are dead, its reference id is free, its personal data is erased. Its
/// wallet and its history stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerDeleted {
    /// The customer.
    pub customer_id: CustomerId,
    /// Its wallet, with whatever is in it.
    pub wallet_id: WalletId,
    /// The merchant's own identifier that is free again.
    pub reference_id: Option<String>,
}

/// A meter (in the older words a product) was defined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterDefined {
    /// The meter.
    pub meter_id: MeterId,
    /// Unique among the merchant's meters.
    pub meter_slug: String,
    /// Its display name.
    pub name: String,
    /// Its price.
    #[serde(flatten)]
    pub price: Price,
}

/// A meter's name or price was changed; calls admitted before keep the terms they were admitted on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterUpdated {
    /// The meter.
    pub meter_id: MeterId,
    /// Counts the changes of this meter, from 1.
    pub revision: u32,
    /// Its display name from now on.
    pub name: String,
    /// Its price from now on.
    #[serde(flatten)]
    pub price: Price,
}

/// A meter is no more: calls that name it are refused, its slug is free again. Calls made on it keep naming it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterDeleted {
    /// The meter.
    pub meter_id: MeterId,
    /// The slug that is free again.
    pub meter_slug: String,
}

/// How often a spend key's limit starts anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Cycle {
    /// Midnight UTC.
    Daily,
    /// Monday midnight UTC.
    Weekly,
    /// First of the month, UTC.
    Monthly,
    /// Never.
    Total,
}

/// At most this much money per cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SpendLimit {
    /// Dollars.
    pub amount: Amount,
    /// When it starts anew.
    pub cycle: Cycle,
}

/// At most this many calls per cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestLimit {
    /// Calls.
    pub count: u64,
    /// When it starts anew.
    pub cycle: Cycle,
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RateLimit {
    /// Refill per minute.
    pub rpm: u64,
    /// Capacity.
    pub burst: u64,
}

/// The dialect a spend key's owner speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum RequestShape {
    /// OpenAI-compatible.
    Openai,
    /// Anthropic.
    Anthropic,
}

/// What a spend key allows; an absent limit does not limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpendKeySettings {
    /// Its display name.
    pub name: String,
    /// Only these models.
    pub allowed_models: Option<Vec<String>>,
    /// Only these providers.
    pub allowed_providers: Option<Vec<String>>,
    /// Money per cycle.
    pub spend_limit: Option<SpendLimit>,
    /// Calls per cycle.
    pub request_limit: Option<RequestLimit>,
    /// Calls per minute.
    pub rate_limit: Option<RateLimit>,
    /// Refused from this instant on.
    pub expires_at: Option<DateTime<Utc>>,
    /// The dialect of its owner.
    pub request_shape: Option<RequestShape>,
}

impl SpendKeySettings {
    /// The cycle whose spend is the key's current one: the spend limit's; without a limit, everything ever counts.
    pub fn spend_cycle(&self) -> Cycle {
        self.spend_limit.map_or(Cycle::Total, |limit| limit.cycle)
    }

    /// The cycle whose calls are the key's current ones: the request limit's; without a limit, all ever count.
    pub fn request_cycle(&self) -> Cycle {
        self.request_limit.map_or(Cycle::Total, |limit| limit.cycle)
    }
}

/// Does a spend key work?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SpendKeyStatus {
    /// It does.
    Active,
    /// Not for now.
    Paused,
}

/// A spend key was created; it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendKeyCreated {
    /// The key's id.
    pub spend_key_id: SpendKeyId,
    /// The wallet it spends from.
    pub wallet_id: WalletId,
    /// The customer whose wallet that is; none for the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// The keyed hash of the raw key.
    pub key_hash: KeyHash,
    /// What may be shown of the raw key.
    pub key_preview: String,
    /// What it allows.
    #[serde(flatten)]
    pub settings: SpendKeySettings,
}

/// A spend key's raw key was replaced; the old one is dead from this position on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRotated {
    /// The key's id, which stays.
    pub spend_key_id: SpendKeyId,
    /// The customer whose wallet it spends from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<CustomerId>,
    /// Counts the rotations of this key, from 1.
    pub rotation: u32,
    /// The hash that is dead now.
    pub old_key_hash: KeyHash,
    /// The keyed hash of the new raw key.
    pub key_hash: KeyHash,
    /// What may be shown of the new raw key.
    pub key_preview: String,
}

/// A spend key's settings or status were changed. All of them stand here as they are from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendKeyUpdated {
    /// The key's id.
    pub spend_key_id: SpendKeyId,
    /// Counts the updates of this key, from 1.
    pub revision: u32,
    /// Does it work?
    pub status: SpendKeyStatus,
    /// What it allows.
    #[serde(flatten)]
    pub settings: SpendKeySettings,
}

/// A spend key is no more: dead from this position on. Its calls in flight still settle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendKeyDeleted {
    /// The key's id.
    pub spend_key_id: SpendKeyId,
    /// The hash that is dead now.
    pub key_hash: KeyHash,
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

/// A fact of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant holds the struct of its own name, documented there")]
pub enum Event {
    MerchantRegistered(MerchantRegistered),
    SecretKeyIssued(SecretKeyIssued),
    SecretKeyRevoked(SecretKeyRevoked),
    CustomerCreated(CustomerCreated),
    CustomerUpdated(CustomerUpdated),
    CustomerDeleted(CustomerDeleted),
    MeterDefined(MeterDefined),
    MeterUpdated(MeterUpdated),
    MeterDeleted(MeterDeleted),
    SpendKeyCreated(SpendKeyCreated),
    KeyRotated(KeyRotated),
    SpendKeyUpdated(SpendKeyUpdated),
    SpendKeyDeleted(SpendKeyDeleted),
    WalletCredited(WalletCredited),
    RequestOpened(Box<RequestOpened>),
    RequestMetered(Box<RequestMetered>),
    WalletDebited(WalletDebited),
    RequestFailed(RequestFailed),
    ClockAdvanced(ClockAdvanced),
    PlanCreated(PlanCreated),
    PlanUpdated(PlanUpdated),
    PlanDeleted(PlanDeleted),
    CreditBundleCreated(CreditBundleCreated),
    CreditBundleUpdated(CreditBundleUpdated),
    CreditBundleDeleted(CreditBundleDeleted),
    SubscriptionStarted(Box<SubscriptionStarted>),
    SubscriptionUpdated(Box<SubscriptionUpdated>),
    CycleEnded(CycleEnded),
    SubscriptionRenewed(Box<SubscriptionRenewed>),
    RenewalFailed(RenewalFailed),
    SubscriptionUpgraded(Box<SubscriptionUpgraded>),
    SubscriptionCancelled(SubscriptionCancelled),
    BundlePurchased(BundlePurchased),
    PaymentMethodAdded(PaymentMethodAdded),
    AutopayChanged(AutopayChanged),
    PaymentRequested(Box<PaymentRequested>),
    PaymentSucceeded(PaymentSucceeded),
    PaymentDeclined(PaymentDeclined),
    PaymentVoided(PaymentVoided),
    CheckoutSessionCreated(CheckoutSessionCreated),
    CheckoutSessionCompleted(CheckoutSessionCompleted),
    WebhookCreated(WebhookCreated),
    WebhookUpdated(WebhookUpdated),
    WebhookDeleted(WebhookDeleted),
}

impl Event {
    /// The fact's key: unique in the log, a pure function of the fact, so that nothing is recorded twice.
    pub fn key(&self) -> String {
        match self {
            Self::MerchantRegistered(event) => format!("{}/registered", event.merchant_id),
            Self::SecretKeyIssued(event) => format!("{}/issued", event.secret_key_id),
            Self::SecretKeyRevoked(event) => format!("{}/revoked", event.secret_key_id),
            Self::CustomerCreated(event) => format!("{}/created", event.customer_id),
            Self::CustomerUpdated(event) => format!("{}/updated/{}", event.customer_id, event.revision),
            Self::CustomerDeleted(event) => format!("{}/deleted", event.customer_id),
            Self::MeterDefined(event) => format!("{}/defined", event.meter_id),
            Self::MeterUpdated(event) => format!("{}/updated/{}", event.meter_id, event.revision),
            Self::MeterDeleted(event) => format!("{}/deleted", event.meter_id),
            Self::SpendKeyCreated(event) => format!("{}/created", event.spend_key_id),
            Self::KeyRotated(event) => format!("{}/rotated/{}", event.spend_key_id, event.rotation),
            Self::SpendKeyUpdated(event) => format!("{}/updated/{}", event.spend_key_id, event.revision),
            Self::SpendKeyDeleted(event) => format!("{}/deleted", event.spend_key_id),
            Self::WalletCredited(event) => format!("{}/credited", event.credit_id),
            Self::RequestOpened(event) => format!("{}/opened", event.request_id),
            Self::RequestMetered(event) => format!("{}/metered", event.request_id),
            Self::WalletDebited(event) => format!("{}/debited/{}", event.request_id, event.wallet_id),
            Self::RequestFailed(event) => format!("{}/failed", event.request_id),
            Self::ClockAdvanced(event) => format!("{}/clock/{}", event.merchant_id, event.ahead_seconds),
            Self::PlanCreated(event) => format!("{}/created", event.plan_id),
            Self::PlanUpdated(event) => format!("{}/updated/{}", event.plan_id, event.revision),
            Self::PlanDeleted(event) => format!("{}/deleted", event.plan_id),
            Self::CreditBundleCreated(event) => format!("{}/created", event.credit_bundle_id),
            Self::CreditBundleUpdated(event) => {
                format!("{}/updated/{}", event.credit_bundle_id, event.revision)
            }
            Self::CreditBundleDeleted(event) => format!("{}/deleted", event.credit_bundle_id),
            Self::SubscriptionStarted(event) => format!("{}/started", event.subscriber.subscription_id),
            Self::SubscriptionUpdated(event) => {
                format!("{}/updated/{}", event.subscriber.subscription_id, event.revision)
            }
            Self::CycleEnded(event) => {
                let id = event.subscriber.subscription_id;
                format!("{id}/ended/{}", event.ended_at.timestamp_millis())
            }
            Self::SubscriptionRenewed(event) => {
                let id = event.subscriber.subscription_id;
                format!("{id}/renewed/{}", event.cycle.start.timestamp_millis())
            }
            Self::RenewalFailed(event) => {
                let id = event.subscriber.subscription_id;
                format!("{id}/failed/{}/{}", event.retry_at.timestamp_millis(), event.attempt)
            }
            Self::SubscriptionUpgraded(event) => {
                format!("{}/upgraded/{}", event.subscriber.subscription_id, event.revision)
            }
            Self::SubscriptionCancelled(event) => format!("{}/cancelled", event.subscriber.subscription_id),
            Self::BundlePurchased(event) => format!("{}/purchased", event.payment_id),
            Self::PaymentMethodAdded(event) => format!("{}/added", event.payment_method_id),
            Self::AutopayChanged(event) => format!("{}/autopay/{}", event.wallet_id, event.revision),
            Self::PaymentRequested(event) => format!("{}/requested", event.payment_id),
            Self::PaymentSucceeded(event) => format!("{}/succeeded", event.payment_id),
            Self::PaymentDeclined(event) => format!("{}/declined", event.payment_id),
            Self::PaymentVoided(event) => format!("{}/voided", event.payment_id),
            Self::CheckoutSessionCreated(event) => format!("{}/created", event.checkout_session_id),
            Self::CheckoutSessionCompleted(event) => format!("{}/completed", event.checkout_session_id),
            Self::WebhookCreated(event) => format!("{}/created", event.webhook_id),
            Self::WebhookUpdated(event) => format!("{}/updated/{}", event.webhook_id, event.revision),
            Self::WebhookDeleted(event) => format!("{}/deleted", event.webhook_id),
        }
    }
}

/// An event with the circumstances of its recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Whose it is.
    pub merchant_id: MerchantId,
    /// When it happened, to the millisecond.
    pub occurred_at: DateTime<Utc>,
    /// What happened.
    pub event: Event,
}

/// A fact as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its place in the log: gap-free, in commit order, from 1.
    pub position: i64,
    /// The fact.
    pub fact: Fact,
}
