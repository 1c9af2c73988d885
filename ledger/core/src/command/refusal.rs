//! Refusals, by area. A refusal knows nothing of HTTP.

use serde::{Deserialize, Serialize};

use crate::hold_scope::CreditScope;
use crate::ids::WalletId;
use crate::money::{self, Amount};

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant holds the refusals of its area, documented there")]
pub enum Refusal {
    #[error(transparent)]
    Merchant(#[from] MerchantRefusal),
    #[error(transparent)]
    SecretKey(#[from] SecretKeyRefusal),
    #[error(transparent)]
    Customer(#[from] CustomerRefusal),
    #[error(transparent)]
    Meter(#[from] MeterRefusal),
    #[error(transparent)]
    SpendKey(#[from] SpendKeyRefusal),
    #[error(transparent)]
    Wallet(#[from] WalletRefusal),
    #[error(transparent)]
    Request(#[from] RequestRefusal),
    #[error(transparent)]
    Plan(#[from] PlanRefusal),
    #[error(transparent)]
    Subscription(#[from] SubscriptionRefusal),
    #[error(transparent)]
    Payment(#[from] PaymentRefusal),
    #[error(transparent)]
    Checkout(#[from] CheckoutRefusal),
    #[error(transparent)]
    Webhook(#[from] WebhookRefusal),
    /// An amount is out of range or has too many decimals.
    #[error("the amount {0}")]
    Amount(#[from] money::Error),
}

/// Why a command about a merchant is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum MerchantRefusal {
    /// No merchant has this id.
    #[error("no such merchant")]
    NotFound,
    /// A clock only moves forward, and at most a hundred years ahead.
    #[error("the clock can only be advanced, and at most to a hundred years ahead")]
    ClockOutOfRange,
}

/// Why a command about, or with, a secret key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum SecretKeyRefusal {
    /// No secret key has this hash.
    #[error("the secret key is not valid")]
    Invalid,
    /// The merchant has no active secret key with this id.
    #[error("no such secret key")]
    NotFound,
    /// The merchant's only secret key cannot be revoked.
    #[error("the last secret key cannot be revoked; issue another one first")]
    LastRemaining,
}

/// Why a command about a customer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CustomerRefusal {
    /// The merchant has no such customer.
    #[error("no such customer")]
    NotFound,
    /// The connection secret matches no connection of this merchant.
    #[error("the connection secret is not valid")]
    SecretInvalid,
    /// Another customer of the merchant has the reference id.
    #[error("the reference id is taken")]
    ReferenceIdTaken,
}

/// Why a command about a meter is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum MeterRefusal {
    /// The merchant has no such meter.
    #[error("no such meter")]
    NotFound,
    /// The product secret matches no meter of this merchant.
    #[error("the product secret is not valid")]
    SecretInvalid,
    /// Another meter of the merchant has the slug.
    #[error("the meter slug is taken")]
    SlugTaken,
}

/// Why a command about, or with, a spend key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum SpendKeyRefusal {
    /// The merchant has no such spend key.
    #[error("no such spend key")]
    NotFound,
    /// No spend key has this hash, or its customer was deleted.
    #[error("the spend key is not valid")]
    Invalid,
    /// The spend key has expired.
    #[error("the spend key has expired")]
    Expired,
    /// The spend key is paused.
    #[error("the spend key is paused")]
    Paused,
    /// The model of the call is not in the spend key's list of models.
    #[error("the spend key does not allow this model")]
    ModelNotAllowed,
    /// The provider of the call is not in the spend key's list of providers.
    #[error("the spend key does not allow this provider")]
    ProviderNotAllowed,
    /// The spend key has no calls left in this cycle.
    #[error("the spend key's request limit is reached")]
    RequestLimitExceeded {
        /// Seconds until the next cycle; `None` for a limit that never resets.
        retry_after_seconds: Option<u64>,
    },
    /// The spend key's token bucket is empty.
    #[error("the spend key's rate limit is reached")]
    RateLimitExceeded {
        /// Seconds until the next token.
        retry_after_seconds: u64,
    },
    /// The rest of the spend key's limit in this cycle does not cover the hold.
    #[error("the rest of the spend limit ({left}) does not cover this call ({needed})")]
    SpendLimitExceeded {
        /// The limit less the amount spent and held.
        left: Amount,
        /// The hold.
        needed: Amount,
    },
}

/// A wallet that did not cover a call and may recharge automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalletShortfall {
    /// The wallet.
    pub wallet_id: WalletId,
    /// The credit that the call may draw on.
    pub credit_scope: CreditScope,
}

/// Why a command about a wallet's money is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum WalletRefusal {
    /// The available balance does not cover the hold.
    #[error("the available balance ({available}) does not cover this call ({needed})")]
    InsufficientBalance {
        /// The wallet's money less its open holds.
        available: Amount,
        /// The hold.
        needed: Amount,
        /// The wallet that fell short, if it recharges automatically: see [`super::AutoRecharge`].
        auto_recharge: Option<WalletShortfall>,
    },
    /// The amount must be above zero.
    #[error("the amount must be above zero")]
    AmountNotPositive,
    /// The wallet has too many bundles that are not used up.
    #[error("the wallet has 1,000 credit bundles that are not used up")]
    TooManyBundles,
    /// Autopay needs both a threshold and an amount while it is enabled, and takes neither while it is not.
    #[error("autopay is not enabled, or its threshold or amount is missing")]
    AutopayIncomplete {
        /// Whether autopay is enabled, with a value missing.
        enabled: bool,
        /// The threshold is missing or not allowed.
        threshold: bool,
        /// The amount is missing or not allowed.
        amount: bool,
    },
}

/// Why a command about a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum RequestRefusal {
    /// The request has ended, or never existed.
    #[error("the request is not open")]
    NotOpen,
    /// The call is charged by the provider's price, and no price is listed for its model.
    #[error("no price is listed for the model")]
    ModelNotPriced,
    /// The reported counts are too large to price, or cost more than a wallet can hold.
    #[error("the usage is out of range")]
    UsageOutOfRange,
}

/// Why a command about a plan or a credit bundle is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum PlanRefusal {
    /// The merchant has no such plan.
    #[error("no such plan")]
    NotFound,
    /// The plan has a price: a subscription to it begins with a payment.
    #[error("the plan is not free; subscribe to it through a checkout session")]
    NotFree,
    /// The included credit of a plan with a price must not be above that price.
    #[error("the included credit must not be above the plan's price")]
    CreditAbovePrice,
    /// The merchant, or the plan, has no such credit bundle.
    #[error("no such credit bundle")]
    BundleNotFound,
    /// The credit bundle belongs to another plan.
    #[error("the credit bundle belongs to another plan")]
    BundlePlanMismatch,
    /// The plan would have too many credit bundles.
    #[error("a plan has at most 100 credit bundles")]
    TooManyBundles,
}

/// Why a command about a subscription is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionRefusal {
    /// The merchant has no such active subscription.
    #[error("no such subscription")]
    NotFound,
    /// The customer has a subscription that this command does not change to the plan, or one that awaits its first payment.
    #[error("the customer has a subscription already, or one that awaits its first payment")]
    AlreadyActive,
}

/// Why a command about a payment is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum PaymentRefusal {
    /// The payment has ended, or never existed.
    #[error("the payment is not open")]
    NotOpen,
    /// The wallet has no such payment method.
    #[error("no such payment method")]
    MethodNotFound,
    /// The wallet has no payment method.
    #[error("the wallet has no payment method")]
    NoMethod,
    /// The price or the credit of the offer differs from the one that the payer accepted.
    #[error("the offer has changed")]
    OfferChanged,
    /// Another payment for the same purpose is in progress.
    #[error("a payment is in progress")]
    InProgress,
}

/// Why a command about a checkout session is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CheckoutRefusal {
    /// The merchant has no such checkout session, or it is completed.
    #[error("no such checkout session")]
    SessionNotFound,
    /// The checkout session has expired.
    #[error("the checkout session has expired")]
    SessionExpired,
}

/// Why a command about a webhook is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum WebhookRefusal {
    /// The merchant has no such webhook.
    #[error("no such webhook")]
    NotFound,
    /// The merchant has the maximum number of webhooks.
    #[error("the merchant has the maximum number of webhooks")]
    LimitReached,
}
