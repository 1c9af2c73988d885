//! The effect of an event on one state.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;

use super::kinds::State;
use super::plan::PlanChange;
use super::subscription::SubscriptionChange;
use super::wallet_change::WalletChange;
use crate::event::{
    BundleOffer, CustomerUpdated, Hold, KeyRotated, KeyUse, MeterUpdated, RateLimit, SpendKeyUpdated,
    WalletSource, WebhookUpdated,
};
use crate::hold_scope::HoldScope;
use crate::ids::{CustomerId, PaymentId, SubscriptionId, WebhookId};
use crate::money::Amount;

/// The effect of an event on one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Creates the state.
    Create(State),
    /// Removes the state.
    Remove,
    /// Adds money to the wallet.
    Credit(Amount),
    /// Draws money from the wallet.
    Debit(Vec<WalletSource>),
    /// Holds money in the wallet.
    Hold(Amount, HoldScope),
    /// Releases a hold.
    Release(Amount, HoldScope),
    /// Changes the credit of the wallet or the way it is paid for.
    Wallet(WalletChange),
    /// Adds to the tier usage; the first addition creates it.
    Advance(Decimal),
    /// Adds one to the merchant's secret keys.
    IssueKey,
    /// Takes one from the merchant's secret keys; never the last one.
    RevokeKey,
    /// Replaces the raw key of the spend key.
    Rotate(KeyRotated),
    /// Changes the customer.
    UpdateCustomer(CustomerUpdated),
    /// Changes the meter.
    UpdateMeter(Box<MeterUpdated>),
    /// Changes the settings or the status of the spend key.
    UpdateSpendKey(Box<SpendKeyUpdated>),
    /// Counts a call with this hold that the spend key admitted.
    AdmitOnKey(KeyUse, Hold),
    /// Counts the end of a call with this hold that the spend key admitted, at this cost. No effect if the key was deleted
    /// meanwhile.
    SettleOnKey(KeyUse, Hold, Amount),
    /// Sets the rate limit of the spend key from this instant on.
    LimitRate(Option<RateLimit>, DateTime<Utc>),
    /// Sets the lead of the merchant's clock, in seconds.
    AdvanceClock(i64),
    /// Sets or clears the subscription of the customer.
    Subscribe(Option<SubscriptionId>),
    /// Changes the plan.
    Plan(PlanChange),
    /// Changes the price and credit of the bundle; with the number of changes.
    Offer(BundleOffer, u32),
    /// Changes the subscription.
    Subscription(SubscriptionChange),
    /// Sets or clears the open payment of the checkout session, with its customer.
    AwaitPayment(Option<(PaymentId, Option<CustomerId>)>),
    /// Adds a webhook to the merchant's list; the first one creates the list.
    ListWebhook(WebhookId),
    /// Removes a webhook from the merchant's list.
    UnlistWebhook(WebhookId),
    /// Changes the webhook.
    UpdateWebhook(Box<WebhookUpdated>),
}
