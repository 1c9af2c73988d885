//! The kinds of states: what identifies one, what it holds and how it is stored.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;

use super::customer::Customer;
use super::merchant::{IssuedKey, Merchant, SecretKey};
use super::meter::Meter;
use super::payment::{CheckoutSession, OpenPayment, PaymentMethod};
use super::plan::{CreditBundle, Plan};
use super::request::OpenRequest;
use super::spend_key::SpendKey;
use super::subscription::Subscription;
use super::wallet::Wallet;
use super::webhook::Webhook;
use crate::ids::{
    CheckoutSessionId, CreditBundleId, CustomerId, MerchantId, MeterId, PaymentId, PaymentMethodId, PlanId,
    RequestId, SecretKeyId, SpendKeyId, SubscriptionId, WalletId, WebhookId,
};
use crate::secret::KeyHash;
use crate::spending::Spending;

/// Whose tier position: a customer's, or the merchant's for calls without a customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A customer's.
    Customer(CustomerId),
    /// The merchant's own.
    Merchant(MerchantId),
}

/// Names a state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKey {
    /// A [`Merchant`].
    Merchant(MerchantId),
    /// A [`Wallet`].
    Wallet(WalletId),
    /// The [`SecretKey`] of a hash.
    SecretKey(KeyHash),
    /// The [`IssuedKey`] of a secret key's id.
    IssuedKey(SecretKeyId),
    /// A [`Customer`].
    Customer(CustomerId),
    /// The customer that holds a merchant's reference id.
    Reference(MerchantId, String),
    /// A [`Meter`].
    Meter(MeterId),
    /// The meter that holds a merchant's slug.
    MeterSlug(MerchantId, String),
    /// A [`SpendKey`].
    SpendKey(SpendKeyId),
    /// The spend key of a hash.
    SpendKeyHash(KeyHash),
    /// The [`Spending`] of a spend key.
    Spending(SpendKeyId),
    /// An [`OpenRequest`], there only while it is open.
    Request(RequestId),
    /// The request that a merchant reported under an id of its own.
    Reported(MerchantId, String),
    /// The tier position of a holder on a meter in the usage period that began then.
    TierUsage(Holder, MeterId, DateTime<Utc>),
    /// A [`Plan`].
    Plan(PlanId),
    /// A [`CreditBundle`].
    CreditBundle(CreditBundleId),
    /// A [`Subscription`], there as long as it lasts.
    Subscription(SubscriptionId),
    /// A [`PaymentMethod`].
    PaymentMethod(PaymentMethodId),
    /// An [`OpenPayment`], there as long as it is under way.
    Payment(PaymentId),
    /// A [`CheckoutSession`], there until it is completed.
    CheckoutSession(CheckoutSessionId),
    /// A [`Webhook`].
    Webhook(WebhookId),
    /// The webhooks of a merchant.
    Webhooks(MerchantId),
}

impl StateKey {
    /// The kind and the id under which the state is stored.
    pub fn stored(&self) -> (&'static str, String) {
        match self {
            Self::Merchant(id) => ("merchant", id.to_string()),
            Self::Wallet(id) => ("wallet", id.to_string()),
            Self::SecretKey(hash) => ("secret_key", hash.as_str().to_owned()),
            Self::IssuedKey(id) => ("issued_key", id.to_string()),
            Self::Customer(id) => ("customer", id.to_string()),
            Self::Reference(merchant, reference) => ("reference", format!("{merchant}/{reference}")),
            Self::Meter(id) => ("meter", id.to_string()),
            Self::MeterSlug(merchant, slug) => ("meter_slug", format!("{merchant}/{slug}")),
            Self::SpendKey(id) => ("spend_key", id.to_string()),
            Self::SpendKeyHash(hash) => ("spend_key_hash", hash.as_str().to_owned()),
            Self::Spending(id) => ("spending", id.to_string()),
            Self::Request(id) => ("request", id.to_string()),
            Self::Reported(merchant, reported) => ("reported", format!("{merchant}/{reported}")),
            Self::TierUsage(holder, meter, start) => {
                let ms = start.timestamp_millis();
                let id = match holder {
                    Holder::Customer(id) => format!("{id}/{meter}/{ms}"),
                    Holder::Merchant(id) => format!("{id}/{meter}/{ms}"),
                };
                ("position", id)
            }
            Self::Plan(id) => ("plan", id.to_string()),
            Self::CreditBundle(id) => ("credit_bundle", id.to_string()),
            Self::Subscription(id) => ("subscription", id.to_string()),
            Self::PaymentMethod(id) => ("payment_method", id.to_string()),
            Self::Payment(id) => ("payment", id.to_string()),
            Self::CheckoutSession(id) => ("checkout_session", id.to_string()),
            Self::Webhook(id) => ("webhook", id.to_string()),
            Self::Webhooks(merchant) => ("webhooks", merchant.to_string()),
        }
    }
}

/// A state of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant holds the struct of its own name, or what its key points at")]
pub enum State {
    Merchant(Merchant),
    Wallet(Box<Wallet>),
    SecretKey(SecretKey),
    IssuedKey(IssuedKey),
    Customer(Customer),
    Reference(CustomerId),
    Meter(Box<Meter>),
    MeterSlug(MeterId),
    SpendKey(Box<SpendKey>),
    SpendKeyHash(SpendKeyId),
    Spending(Box<Spending>),
    Request(OpenRequest),
    Reported(RequestId),
    TierUsage(Decimal),
    Plan(Box<Plan>),
    CreditBundle(CreditBundle),
    Subscription(Box<Subscription>),
    PaymentMethod(Box<PaymentMethod>),
    Payment(Box<OpenPayment>),
    CheckoutSession(Box<CheckoutSession>),
    Webhook(Box<Webhook>),
    Webhooks(Vec<WebhookId>),
}

impl State {
    /// The state as it is stored: JSON text.
    pub fn to_json(&self) -> String {
        let json = match self {
            Self::Merchant(state) => serde_json::to_string(state),
            Self::Wallet(state) => serde_json::to_string(state),
            Self::SecretKey(state) => serde_json::to_string(state),
            Self::IssuedKey(state) => serde_json::to_string(state),
            Self::Customer(state) => serde_json::to_string(state),
            Self::Reference(state) => serde_json::to_string(state),
            Self::Meter(state) => serde_json::to_string(state),
            Self::MeterSlug(state) => serde_json::to_string(state),
            Self::SpendKey(state) => serde_json::to_string(state),
            Self::SpendKeyHash(state) => serde_json::to_string(state),
            Self::Spending(state) => serde_json::to_string(state),
            Self::Request(state) => serde_json::to_string(state),
            Self::Reported(state) => serde_json::to_string(state),
            Self::TierUsage(state) => serde_json::to_string(state),
            Self::Plan(state) => serde_json::to_string(state),
            Self::CreditBundle(state) => serde_json::to_string(state),
            Self::Subscription(state) => serde_json::to_string(state),
            Self::PaymentMethod(state) => serde_json::to_string(state),
            Self::Payment(state) => serde_json::to_string(state),
            Self::CheckoutSession(state) => serde_json::to_string(state),
            Self::Webhook(state) => serde_json::to_string(state),
            Self::Webhooks(state) => serde_json::to_string(state),
        };
        json.expect("states have string keys and finite numbers")
    }

    /// Reads the stored state of `key`.
    pub fn from_json(key: &StateKey, json: &str) -> Result<Self, serde_json::Error> {
        Ok(match key {
            StateKey::Merchant(_) => Self::Merchant(serde_json::from_str(json)?),
            StateKey::Wallet(_) => Self::Wallet(serde_json::from_str(json)?),
            StateKey::SecretKey(_) => Self::SecretKey(serde_json::from_str(json)?),
            StateKey::IssuedKey(_) => Self::IssuedKey(serde_json::from_str(json)?),
            StateKey::Customer(_) => Self::Customer(serde_json::from_str(json)?),
            StateKey::Reference(..) => Self::Reference(serde_json::from_str(json)?),
            StateKey::Meter(_) => Self::Meter(serde_json::from_str(json)?),
            StateKey::MeterSlug(..) => Self::MeterSlug(serde_json::from_str(json)?),
            StateKey::SpendKey(_) => Self::SpendKey(serde_json::from_str(json)?),
            StateKey::SpendKeyHash(_) => Self::SpendKeyHash(serde_json::from_str(json)?),
            StateKey::Spending(_) => Self::Spending(serde_json::from_str(json)?),
            StateKey::Request(_) => Self::Request(serde_json::from_str(json)?),
            StateKey::Reported(..) => Self::Reported(serde_json::from_str(json)?),
            StateKey::TierUsage(..) => Self::TierUsage(serde_json::from_str(json)?),
            StateKey::Plan(_) => Self::Plan(serde_json::from_str(json)?),
            StateKey::CreditBundle(_) => Self::CreditBundle(serde_json::from_str(json)?),
            StateKey::Subscription(_) => Self::Subscription(serde_json::from_str(json)?),
            StateKey::PaymentMethod(_) => Self::PaymentMethod(serde_json::from_str(json)?),
            StateKey::Payment(_) => Self::Payment(serde_json::from_str(json)?),
            StateKey::CheckoutSession(_) => Self::CheckoutSession(serde_json::from_str(json)?),
            StateKey::Webhook(_) => Self::Webhook(serde_json::from_str(json)?),
            StateKey::Webhooks(_) => Self::Webhooks(serde_json::from_str(json)?),
        })
    }
}
