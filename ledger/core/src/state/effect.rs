//! The effect of an event on one state.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;

use super::kinds::State;
use super::plan::PlanChange;
use super::subscription::SubscriptionChange;
use super::wallet_change::WalletChange;
use crate::event::{
    BundleOffer, CustomerUpdated, Hold, KeyRotated, MeterUpdated, RateLimit, SpendKeyUpdated, WalletSource,
    WebhookUpdated,
};
use crate::hold_scope::HoldScope;
use crate::ids::{CustomerId, PaymentId, SubscriptionId, WebhookId};
use crate::money::Amount;

/// What an event does to one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It comes to be.
    Create(State),
    /// It is no more.
    Remove,
    /// Money comes into the wallet.
    Credit(Amount),
    /// Money leaves the wallet.
    Debit(Vec<WalletSource>),
    /// Money in the wallet is set aside.
    Hold(Amount, HoldScope),
    /// What was set aside is free again.
    Release(Amount, HoldScope),
    /// The wallet's credit changes, or how it is paid for.
    Wallet(WalletChange),
    /// The tier position moves on; the first move creates it.
    Advance(Decimal),
    /// The merchant has one more secret key.
    IssueKey,
    /// The merchant has one secret key less; never none.
    RevokeKey,
    /// The spend key has a new raw key.
    Rotate(KeyRotated),
    /// The customer is changed.
    UpdateCustomer(CustomerUpdated),
    /// The meter is changed.
    UpdateMeter(Box<MeterUpdated>),
    /// The spend key has other settings or another status.
    UpdateSpendKey(Box<SpendKeyUpdated>),
    /// A call is admitted on the spend key, then, with this hold.
    AdmitOnKey(DateTime<Utc>, Hold),
    /// A call that was admitted on the spend key then, with this hold, has ended at this cost. Nothing where the
    /// key has been deleted meanwhile.
    SettleOnKey(DateTime<Utc>, Hold, Amount),
    /// The spend key has this rate limit from then on.
    LimitRate(Option<RateLimit>, DateTime<Utc>),
    /// The merchant's clock is this many seconds ahead.
    AdvanceClock(i64),
    /// The customer has this subscription, or none.
    Subscribe(Option<SubscriptionId>),
    /// The plan is changed.
    Plan(PlanChange),
    /// The bundle costs and brings something else; counts its changes.
    Offer(BundleOffer, u32),
    /// The subscription is changed.
    Subscription(SubscriptionChange),
    /// The checkout session waits for this payment of this customer, or for none any more.
    AwaitPayment(Option<(PaymentId, Option<CustomerId>)>),
    /// The merchant has this webhook as well; the first creates the list.
    ListWebhook(WebhookId),
    /// The merchant has this webhook no more.
    UnlistWebhook(WebhookId),
    /// The webhook is changed.
    UpdateWebhook(Box<WebhookUpdated>),
}
