//! The kinds of states. The table below declares the key, the stored form and the content of each kind once.

use std::borrow::Cow;
use std::fmt;

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::customer::Customer;
use super::merchant::{IssuedKey, Merchant, SecretKey};
use super::meter::Meter;
use super::payment::{CheckoutSession, OpenPayment, PaymentMethod};
use super::plan::{CreditBundle, Plan};
use super::request::AdmittedRequest;
use super::shape;
use super::spend_key::SpendKey;
use super::subscription::Subscription;
use super::wallet::Wallet;
use super::webhook::Webhook;
use crate::ids::{
    CheckoutSessionId, CreditBundleId, CustomerId, MerchantId, MeterId, PaymentId, PaymentMethodId, PlanId,
    RequestId, SecretKeyId, SpendKeyId, SubscriptionId, WalletId, WebhookId,
};
use crate::release::{self, Change};
use crate::secret::KeyHash;
use crate::spending::Spending;

/// The holder of a tier usage: a customer, or the merchant for calls without a customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// A customer.
    Customer(CustomerId),
    /// The merchant itself.
    Merchant(MerchantId),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Customer(id) => id.fmt(f),
            Self::Merchant(id) => id.fmt(f),
        }
    }
}

/// The stored form of a wallet in the next release of the tests.
#[derive(Deserialize)]
struct NextForm {
    wallet: Box<Wallet>,
}

/// Declares kinds of states, each as `"stored kind" Kind(parts of the key) = stored id => content;`.
macro_rules! kinds {
    ($($(#[$doc:meta])* $stored:literal $kind:ident($($part:ident: $type:ty),+) = $id:expr => $content:ty;)+) => {
        /// Identifies a state.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum StateKey {
            $($(#[$doc])* $kind($($type),+),)+
        }

        impl StateKey {
            /// The kind under which the state is stored.
            const fn stored_kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(..) => $stored,)+
                }
            }

            /// The kind and the id under which the state is stored.
            pub fn stored(&self) -> (&'static str, String) {
                match self {
                    $(Self::$kind($($part),+) => ($stored, $id),)+
                }
            }
        }

        /// A state of any kind.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum State {
            $($(#[$doc])* $kind($content),)+
        }

        impl State {
            /// The state as it is stored: JSON text, in the shape of this program.
            pub fn to_json(&self) -> String {
                let json = match self {
                    $(Self::$kind(state) => serde_json::to_string(state),)+
                };
                let json = json.expect("states have string keys and finite numbers");
                if matches!(self, Self::Wallet(_)) && release::next() == Some(Change::Form) {
                    return format!(r#"{{"wallet":{json}}}"#);
                }
                json
            }

            /// Reads the stored state of `key`, which has the shape `shape`.
            pub fn from_json(key: &StateKey, shape: i16, json: &str) -> Result<Self, serde_json::Error> {
                let upcast = shape::upcast(key.stored_kind(), shape, json)?;
                let json = upcast.map_or(Cow::Borrowed(json), |upcast| Cow::Owned(upcast.to_string()));
                match key {
                    StateKey::Wallet(_) if release::next() == Some(Change::Form) => {
                        serde_json::from_str(&json).map(|next: NextForm| Self::Wallet(next.wallet))
                    }
                    $(StateKey::$kind(..) => serde_json::from_str(&json).map(Self::$kind),)+
                }
            }
        }
    };
}

kinds! {
    /// A merchant.
    "merchant" Merchant(id: MerchantId) = id.to_string() => Merchant;
    /// A wallet.
    "wallet" Wallet(id: WalletId) = id.to_string() => Box<Wallet>;
    /// The secret key with a hash.
    "secret_key" SecretKey(hash: KeyHash) = hash.as_str().to_owned() => SecretKey;
    /// The secret key with an id.
    "issued_key" IssuedKey(id: SecretKeyId) = id.to_string() => IssuedKey;
    /// A customer.
    "customer" Customer(id: CustomerId) = id.to_string() => Customer;
    /// The customer with a merchant's reference id.
    "reference" Reference(merchant: MerchantId, reference: String) = format!("{merchant}/{reference}") => CustomerId;
    /// A meter.
    "meter" Meter(id: MeterId) = id.to_string() => Box<Meter>;
    /// The meter with a merchant's slug.
    "meter_slug" MeterSlug(merchant: MerchantId, slug: String) = format!("{merchant}/{slug}") => MeterId;
    /// A spend key.
    "spend_key" SpendKey(id: SpendKeyId) = id.to_string() => Box<SpendKey>;
    /// The spend key with a hash.
    "spend_key_hash" SpendKeyHash(hash: KeyHash) = hash.as_str().to_owned() => SpendKeyId;
    /// The counters of a spend key.
    "spending" Spending(id: SpendKeyId) = id.to_string() => Box<Spending>;
    /// A request; exists only while it is open.
    "request" Request(id: RequestId) = id.to_string() => AdmittedRequest;
    /// The request reported under a merchant's own id.
    "reported" Reported(merchant: MerchantId, reported: String) = format!("{merchant}/{reported}") => RequestId;
    /// The units counted for a holder on a meter in the usage period that starts at an instant.
    "position" TierUsage(holder: Holder, meter: MeterId, start: DateTime<Utc>)
        = format!("{holder}/{meter}/{}", start.timestamp_millis()) => Decimal;
    /// A plan.
    "plan" Plan(id: PlanId) = id.to_string() => Box<Plan>;
    /// A credit bundle.
    "credit_bundle" CreditBundle(id: CreditBundleId) = id.to_string() => CreditBundle;
    /// A subscription; exists until it ends.
    "subscription" Subscription(id: SubscriptionId) = id.to_string() => Box<Subscription>;
    /// A payment method.
    "payment_method" PaymentMethod(id: PaymentMethodId) = id.to_string() => Box<PaymentMethod>;
    /// A payment; exists only while it is open.
    "payment" Payment(id: PaymentId) = id.to_string() => Box<OpenPayment>;
    /// A checkout session; exists until it is completed.
    "checkout_session" CheckoutSession(id: CheckoutSessionId) = id.to_string() => Box<CheckoutSession>;
    /// A webhook.
    "webhook" Webhook(id: WebhookId) = id.to_string() => Box<Webhook>;
    /// The webhooks of a merchant, oldest first.
    "webhooks" Webhooks(merchant: MerchantId) = merchant.to_string() => Vec<WebhookId>;
}
