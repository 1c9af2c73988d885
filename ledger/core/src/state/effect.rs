//! `evolve`, in two halves: [`effects`] says what an event does to which states, [`apply`] does it to one state.
//! Applying checks the invariants of money in production: a broken one stops the append instead of being stored.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;

use super::recurring_effect::{self, CreditChange, PlanChange, SubscriptionChange};
use super::{
    Customer, Holder, IssuedKey, Merchant, Meter, OpenRequest, SecretKey, SpendKey, State, StateKey, Wallet,
    WalletOwner, Webhook,
};
use crate::event::{
    BundleOffer, CustomerUpdated, Event, Fact, Hold, KeyRotated, KeyUse, MeterUpdated, Parties, RateLimit,
    SpendKeyStatus, SpendKeyUpdated, WalletSource, WebhookUpdated,
};
use crate::hold_scope::HoldScope;
use crate::ids::{CustomerId, MerchantId, PaymentId, RequestId, SubscriptionId, WalletId, WebhookId};
use crate::money::{self, Amount};
use crate::spending::Spending;

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
    Credits(CreditChange),
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

/// An effect that does not fit its state: a programmer's error or a tampered log, never a user's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The state is there already, or is not there, or is of another kind.
    #[error("{effect} does not fit the state of {key}")]
    Misfit {
        /// The state's kind and id.
        key: String,
        /// What was to be done.
        effect: String,
    },
    /// A customer's wallet would go below zero, or a sum of holds would.
    #[error("{key} would go below zero")]
    BelowZero {
        /// The wallet.
        key: String,
    },
    /// Beyond the range of amounts.
    #[error("{key}: {source}")]
    Range {
        /// The state's kind and id.
        key: String,
        /// What is out of range.
        source: money::Error,
    },
}

/// What `fact` does, state by state, in order.
pub fn effects(fact: &Fact) -> Vec<(StateKey, Effect)> {
    let merchant_id = fact.merchant_id;
    let created_at = fact.occurred_at;
    match &fact.event {
        Event::MerchantRegistered(event) => {
            let merchant = Merchant {
                wallet_id: event.wallet_id,
                name: event.name.clone(),
                created_at,
                secret_keys: 0,
                clock_ahead_seconds: 0,
            };
            vec![
                (StateKey::Merchant(event.merchant_id), Effect::Create(State::Merchant(merchant))),
                new_wallet(merchant_id, event.wallet_id, WalletOwner::Merchant),
            ]
        }
        Event::SecretKeyIssued(event) => {
            let key = SecretKey { secret_key_id: event.secret_key_id, merchant_id };
            let issued = IssuedKey { merchant_id, key_hash: event.key_hash.clone() };
            vec![
                (StateKey::SecretKey(event.key_hash.clone()), Effect::Create(State::SecretKey(key))),
                (StateKey::IssuedKey(event.secret_key_id), Effect::Create(State::IssuedKey(issued))),
                (StateKey::Merchant(merchant_id), Effect::IssueKey),
            ]
        }
        Event::SecretKeyRevoked(event) => vec![
            (StateKey::SecretKey(event.key_hash.clone()), Effect::Remove),
            (StateKey::IssuedKey(event.secret_key_id), Effect::Remove),
            (StateKey::Merchant(merchant_id), Effect::RevokeKey),
        ],
        Event::CustomerCreated(event) => {
            let id = event.customer_id;
            let customer = Customer {
                merchant_id,
                wallet_id: event.wallet_id,
                reference_id: event.reference_id.clone(),
                revision: 0,
                created_at,
                subscription_id: None,
            };
            let mut effects = vec![
                (StateKey::Customer(id), Effect::Create(State::Customer(customer))),
                new_wallet(merchant_id, event.wallet_id, WalletOwner::Customer(id)),
            ];
            if let Some(reference) = &event.reference_id {
                let key = StateKey::Reference(merchant_id, reference.clone());
                effects.push((key, Effect::Create(State::Reference(id))));
            }
            effects
        }
        Event::CustomerUpdated(event) => {
            let id = event.customer_id;
            let reference = |reference: &String| StateKey::Reference(merchant_id, reference.clone());
            let mut effects = vec![(StateKey::Customer(id), Effect::UpdateCustomer(event.clone()))];
            if let Some(change) = &event.reference_id {
                effects.extend(change.from.as_ref().map(|from| (reference(from), Effect::Remove)));
                let create = Effect::Create(State::Reference(id));
                effects.extend(change.to.as_ref().map(|to| (reference(to), create)));
            }
            effects
        }
        Event::CustomerDeleted(event) => {
            // The wallet stays, and so do the tier positions: calls in flight settle on them. It is filled up no more.
            let mut effects = vec![
                (StateKey::Customer(event.customer_id), Effect::Remove),
                (StateKey::Wallet(event.wallet_id), Effect::Credits(CreditChange::Orphan)),
            ];
            let reference = event.reference_id.clone();
            effects.extend(reference.map(|id| (StateKey::Reference(merchant_id, id), Effect::Remove)));
            effects
        }
        Event::MeterDefined(event) => {
            let meter = Meter {
                merchant_id,
                meter_slug: event.meter_slug.clone(),
                name: event.name.clone(),
                price: event.price.clone(),
                revision: 0,
                created_at,
            };
            vec![
                (StateKey::Meter(event.meter_id), Effect::Create(State::Meter(Box::new(meter)))),
                (
                    StateKey::MeterSlug(merchant_id, event.meter_slug.clone()),
                    Effect::Create(State::MeterSlug(event.meter_id)),
                ),
            ]
        }
        Event::MeterUpdated(event) => {
            vec![(StateKey::Meter(event.meter_id), Effect::UpdateMeter(Box::new(event.clone())))]
        }
        Event::MeterDeleted(event) => vec![
            (StateKey::Meter(event.meter_id), Effect::Remove),
            (StateKey::MeterSlug(merchant_id, event.meter_slug.clone()), Effect::Remove),
        ],
        Event::SpendKeyCreated(event) => {
            let key = SpendKey {
                merchant_id,
                wallet_id: event.wallet_id,
                customer_id: event.customer_id,
                key_hash: event.key_hash.clone(),
                key_preview: event.key_preview.clone(),
                rotation: 0,
                revision: 0,
                status: SpendKeyStatus::Active,
                settings: event.settings.clone(),
                created_at,
            };
            let spending = Box::new(Spending::new(event.settings.rate_limit, created_at));
            vec![
                (StateKey::SpendKey(event.spend_key_id), Effect::Create(State::SpendKey(Box::new(key)))),
                (StateKey::Spending(event.spend_key_id), Effect::Create(State::Spending(spending))),
                (
                    StateKey::SpendKeyHash(event.key_hash.clone()),
                    Effect::Create(State::SpendKeyHash(event.spend_key_id)),
                ),
            ]
        }
        Event::KeyRotated(event) => vec![
            (StateKey::SpendKeyHash(event.old_key_hash.clone()), Effect::Remove),
            (
                StateKey::SpendKeyHash(event.key_hash.clone()),
                Effect::Create(State::SpendKeyHash(event.spend_key_id)),
            ),
            (StateKey::SpendKey(event.spend_key_id), Effect::Rotate(event.clone())),
        ],
        Event::SpendKeyUpdated(event) => vec![
            (StateKey::SpendKey(event.spend_key_id), Effect::UpdateSpendKey(Box::new(event.clone()))),
            (
                StateKey::Spending(event.spend_key_id),
                Effect::LimitRate(event.settings.rate_limit, fact.occurred_at),
            ),
        ],
        Event::SpendKeyDeleted(event) => vec![
            (StateKey::SpendKeyHash(event.key_hash.clone()), Effect::Remove),
            (StateKey::SpendKey(event.spend_key_id), Effect::Remove),
            (StateKey::Spending(event.spend_key_id), Effect::Remove),
        ],
        Event::WalletCredited(event) => {
            vec![(StateKey::Wallet(event.wallet_id), Effect::Credit(event.amount))]
        }
        Event::RequestOpened(event) => {
            let mut effects = holds(event.parties, event.hold, Effect::Hold);
            if let Some(KeyUse { spend_key_id, admitted_at }) = event.spend_key {
                effects.push((StateKey::Spending(spend_key_id), Effect::AdmitOnKey(admitted_at, event.hold)));
            }
            let open = OpenRequest { merchant_id, opened_at: created_at, opened: event.clone() };
            effects.push((StateKey::Request(event.request_id), Effect::Create(State::Request(open))));
            if let Some(reported) = &event.reported_id {
                let key = StateKey::Reported(merchant_id, reported.clone());
                effects.push((key, Effect::Create(State::Reported(event.request_id))));
            }
            effects
        }
        Event::RequestMetered(event) => {
            let mut effects = ended(event.request_id, event.parties, event.hold);
            effects.extend(settled_on_key(event.spend_key, event.hold, event.total_request_cost));
            if let (Some(meter_id), Some(start)) = (event.meter_id, event.period_start) {
                let holder =
                    event.parties.customer_id.map_or(Holder::Merchant(merchant_id), Holder::Customer);
                effects.push((StateKey::TierUsage(holder, meter_id, start), Effect::Advance(event.units)));
            }
            effects
        }
        Event::WalletDebited(event) => {
            vec![(StateKey::Wallet(event.wallet_id), Effect::Debit(event.sources.clone()))]
        }
        Event::RequestFailed(event) => {
            let mut effects = ended(event.request_id, event.parties, event.hold);
            effects.extend(settled_on_key(event.spend_key, event.hold, Amount::ZERO));
            effects
        }
        Event::ClockAdvanced(event) => {
            vec![(StateKey::Merchant(event.merchant_id), Effect::AdvanceClock(event.ahead_seconds))]
        }
        Event::WebhookCreated(event) => {
            let settings = event.settings.clone();
            let webhook = Box::new(Webhook { merchant_id, settings, revision: 0, created_at });
            vec![
                (StateKey::Webhook(event.webhook_id), Effect::Create(State::Webhook(webhook))),
                (StateKey::Webhooks(merchant_id), Effect::ListWebhook(event.webhook_id)),
            ]
        }
        Event::WebhookUpdated(event) => {
            vec![(StateKey::Webhook(event.webhook_id), Effect::UpdateWebhook(Box::new(event.clone())))]
        }
        Event::WebhookDeleted(event) => vec![
            (StateKey::Webhook(event.webhook_id), Effect::Remove),
            (StateKey::Webhooks(merchant_id), Effect::UnlistWebhook(event.webhook_id)),
        ],
        Event::PlanCreated(_)
        | Event::PlanUpdated(_)
        | Event::PlanDeleted(_)
        | Event::CreditBundleCreated(_)
        | Event::CreditBundleUpdated(_)
        | Event::CreditBundleDeleted(_) => recurring_effect::of_plans(fact),
        Event::SubscriptionStarted(_)
        | Event::SubscriptionUpdated(_)
        | Event::CycleEnded(_)
        | Event::SubscriptionRenewed(_)
        | Event::RenewalFailed(_)
        | Event::SubscriptionUpgraded(_)
        | Event::SubscriptionCancelled(_)
        | Event::BundlePurchased(_) => recurring_effect::of_subscriptions(fact),
        Event::PaymentMethodAdded(_)
        | Event::AutopayChanged(_)
        | Event::PaymentRequested(_)
        | Event::PaymentSucceeded(_)
        | Event::PaymentDeclined(_)
        | Event::PaymentVoided(_)
        | Event::CheckoutSessionCreated(_)
        | Event::CheckoutSessionCompleted(_) => recurring_effect::of_payments(fact),
    }
}

fn settled_on_key(key: Option<KeyUse>, hold: Hold, cost: Amount) -> Option<(StateKey, Effect)> {
    let KeyUse { spend_key_id, admitted_at } = key?;
    Some((StateKey::Spending(spend_key_id), Effect::SettleOnKey(admitted_at, hold, cost)))
}

fn new_wallet(merchant_id: MerchantId, id: WalletId, owner: WalletOwner) -> (StateKey, Effect) {
    let wallet = Box::new(Wallet::empty(merchant_id, owner));
    (StateKey::Wallet(id), Effect::Create(State::Wallet(wallet)))
}

fn ended(id: RequestId, parties: Parties, hold: Hold) -> Vec<(StateKey, Effect)> {
    let mut effects = holds(parties, hold, Effect::Release);
    effects.push((StateKey::Request(id), Effect::Remove));
    effects
}

fn holds(parties: Parties, hold: Hold, effect: fn(Amount, HoldScope) -> Effect) -> Vec<(StateKey, Effect)> {
    let mut effects = Vec::with_capacity(3);
    if let Some(wallet_id) = parties.wallet_id.filter(|_| !hold.wallet.is_zero()) {
        effects.push((StateKey::Wallet(wallet_id), effect(hold.wallet, hold.scope())));
    }
    if !hold.merchant.is_zero() {
        effects.push((StateKey::Wallet(parties.merchant_wallet_id), effect(hold.merchant, HoldScope::ALL)));
    }
    effects
}

/// The state after `effect`; none when it is no more.
pub fn apply(key: &StateKey, state: Option<State>, effect: Effect) -> Result<Option<State>, Broken> {
    match (state, effect) {
        (None, Effect::Create(state)) => Ok(Some(state)),
        // A spend key may be deleted before its calls have ended, a customer while a payment is under way.
        (Some(_), Effect::Remove)
        | (None, Effect::SettleOnKey(..) | Effect::Subscribe(None) | Effect::AwaitPayment(None)) => Ok(None),
        (Some(State::Wallet(wallet)), Effect::Credit(amount)) => {
            with_wallet(key, wallet, |wallet| wallet.balance.plus(amount).map(|sum| wallet.balance = sum))
        }
        (Some(State::Wallet(wallet)), Effect::Debit(sources)) => {
            with_wallet(key, wallet, |wallet| wallet.debit(&sources))
        }
        (Some(State::Wallet(wallet)), Effect::Hold(amount, scope)) => {
            with_wallet(key, wallet, |wallet| wallet.hold(amount, scope))
        }
        (Some(State::Wallet(wallet)), Effect::Release(amount, scope)) => {
            with_wallet(key, wallet, |wallet| wallet.release(amount, scope))
        }
        (Some(State::Wallet(wallet)), Effect::Credits(change)) => {
            with_wallet(key, wallet, |wallet| recurring_effect::credit(wallet, change))
        }
        (None, Effect::Advance(units)) => Ok(Some(State::TierUsage(units))),
        (Some(State::TierUsage(position)), Effect::Advance(units)) => {
            let moved = position.checked_add(units);
            let out_of_range = || Broken::Range { key: shown(key), source: money::Error::OutOfRange };
            moved.ok_or_else(out_of_range).map(|moved| Some(State::TierUsage(moved)))
        }
        (Some(State::Merchant(mut merchant)), Effect::IssueKey) => {
            merchant.secret_keys += 1;
            Ok(Some(State::Merchant(merchant)))
        }
        (Some(State::Merchant(mut merchant)), Effect::RevokeKey) if merchant.secret_keys > 1 => {
            merchant.secret_keys -= 1;
            Ok(Some(State::Merchant(merchant)))
        }
        (Some(State::SpendKey(mut spend_key)), Effect::Rotate(event)) => {
            spend_key.key_hash = event.key_hash;
            spend_key.key_preview = event.key_preview;
            spend_key.rotation = event.rotation;
            Ok(Some(State::SpendKey(spend_key)))
        }
        (Some(State::Customer(mut customer)), Effect::UpdateCustomer(event)) => {
            customer.revision = event.revision;
            if let Some(change) = event.reference_id {
                customer.reference_id = change.to;
            }
            Ok(Some(State::Customer(customer)))
        }
        (Some(State::Meter(mut meter)), Effect::UpdateMeter(event)) => {
            meter.revision = event.revision;
            meter.name = event.name;
            meter.price = event.price;
            Ok(Some(State::Meter(meter)))
        }
        (Some(State::SpendKey(mut spend_key)), Effect::UpdateSpendKey(event)) => {
            spend_key.revision = event.revision;
            spend_key.status = event.status;
            spend_key.settings = event.settings;
            Ok(Some(State::SpendKey(spend_key)))
        }
        (Some(State::Spending(spending)), Effect::AdmitOnKey(at, hold)) => {
            with_spending(key, spending, |spending| spending.admit(at, hold.total()?))
        }
        (Some(State::Spending(spending)), Effect::SettleOnKey(admitted_at, hold, cost)) => {
            with_spending(key, spending, |spending| spending.settle(admitted_at, hold.total()?, cost))
        }
        (Some(State::Spending(spending)), Effect::LimitRate(limit, at)) => {
            with_spending(key, spending, |spending| {
                spending.limit_rate(limit, at);
                Ok(())
            })
        }
        (Some(State::Merchant(mut merchant)), Effect::AdvanceClock(ahead_seconds)) => {
            merchant.clock_ahead_seconds = ahead_seconds;
            Ok(Some(State::Merchant(merchant)))
        }
        (Some(State::Customer(mut customer)), Effect::Subscribe(subscription_id)) => {
            customer.subscription_id = subscription_id;
            Ok(Some(State::Customer(customer)))
        }
        (Some(State::Plan(mut plan)), Effect::Plan(change)) => {
            plan.change(change);
            Ok(Some(State::Plan(plan)))
        }
        (Some(State::CreditBundle(mut bundle)), Effect::Offer(offer, revision)) => {
            bundle.offer = offer;
            bundle.revision = revision;
            Ok(Some(State::CreditBundle(bundle)))
        }
        (Some(State::Subscription(subscription)), Effect::Subscription(change)) => {
            Ok(Some(State::Subscription(Box::new(recurring_effect::subscription(*subscription, change)))))
        }
        (Some(State::CheckoutSession(mut session)), Effect::AwaitPayment(payment)) => {
            session.payment_id = payment.map(|(payment_id, _)| payment_id);
            session.customer_id = payment.and_then(|(_, customer_id)| customer_id).or(session.customer_id);
            Ok(Some(State::CheckoutSession(session)))
        }
        (None, Effect::ListWebhook(id)) => Ok(Some(State::Webhooks(vec![id]))),
        (Some(State::Webhooks(mut webhooks)), Effect::ListWebhook(id)) => {
            webhooks.push(id);
            Ok(Some(State::Webhooks(webhooks)))
        }
        (Some(State::Webhooks(mut webhooks)), Effect::UnlistWebhook(id)) => {
            webhooks.retain(|listed| *listed != id);
            Ok(Some(State::Webhooks(webhooks)))
        }
        (Some(State::Webhook(mut webhook)), Effect::UpdateWebhook(event)) => {
            webhook.revision = event.revision;
            webhook.settings = event.settings;
            Ok(Some(State::Webhook(webhook)))
        }
        (state, effect) => Err(Broken::Misfit {
            key: shown(key),
            effect: format!("{effect:?} on {}", if state.is_some() { "something" } else { "nothing" }),
        }),
    }
}

fn with_wallet(
    key: &StateKey,
    mut wallet: Box<Wallet>,
    change: impl FnOnce(&mut Wallet) -> Result<(), money::Error>,
) -> Result<Option<State>, Broken> {
    change(&mut wallet).map_err(|source| Broken::Range { key: shown(key), source })?;
    if !wallet.is_sound() {
        return Err(Broken::BelowZero { key: shown(key) });
    }
    Ok(Some(State::Wallet(wallet)))
}

fn with_spending(
    key: &StateKey,
    mut spending: Box<Spending>,
    change: impl FnOnce(&mut Spending) -> Result<(), money::Error>,
) -> Result<Option<State>, Broken> {
    change(&mut spending).map_err(|source| Broken::Range { key: shown(key), source })?;
    if !spending.is_sound() {
        return Err(Broken::BelowZero { key: shown(key) });
    }
    Ok(Some(State::Spending(spending)))
}

fn shown(key: &StateKey) -> String {
    let (kind, id) = key.stored();
    format!("{kind} {id}")
}
