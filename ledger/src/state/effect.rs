//! `evolve`, in two halves: [`effects`] says what an event does to which states, [`apply`] does it to one state.
//! Applying checks the invariants of money in production: a broken one stops the append instead of being stored.

use rust_decimal::Decimal;

use super::{
    Customer, Holder, Merchant, Meter, OpenRequest, SecretKey, SpendKey, State, StateKey, Wallet, WalletOwner,
};
use crate::event::{Event, Fact, Hold, KeyRotated, Parties};
use crate::ids::{MerchantId, RequestId, WalletId};
use crate::money::{self, Amount};

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
    Debit(Amount),
    /// Money in the wallet is set aside.
    Hold(Amount),
    /// What was set aside is free again.
    Release(Amount),
    /// The tier position moves on; the first move creates it.
    Advance(Decimal),
    /// The spend key has a new raw key.
    Rotate(KeyRotated),
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
            let merchant = Merchant { wallet_id: event.wallet_id, name: event.name.clone(), created_at };
            vec![
                (StateKey::Merchant(event.merchant_id), Effect::Create(State::Merchant(merchant))),
                new_wallet(merchant_id, event.wallet_id, WalletOwner::Merchant),
            ]
        }
        Event::SecretKeyIssued(event) => {
            let key = SecretKey { secret_key_id: event.secret_key_id, merchant_id };
            vec![(StateKey::SecretKey(event.key_hash.clone()), Effect::Create(State::SecretKey(key)))]
        }
        Event::CustomerCreated(event) => {
            let id = event.customer_id;
            let customer = Customer {
                merchant_id,
                wallet_id: event.wallet_id,
                reference_id: event.reference_id.clone(),
                created_at,
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
        Event::MeterDefined(event) => {
            let meter = Meter {
                merchant_id,
                meter_slug: event.meter_slug.clone(),
                name: event.name.clone(),
                price: event.price.clone(),
            };
            vec![
                (StateKey::Meter(event.meter_id), Effect::Create(State::Meter(Box::new(meter)))),
                (
                    StateKey::MeterSlug(merchant_id, event.meter_slug.clone()),
                    Effect::Create(State::MeterSlug(event.meter_id)),
                ),
            ]
        }
        Event::SpendKeyCreated(event) => {
            let key = SpendKey {
                merchant_id,
                wallet_id: event.wallet_id,
                customer_id: event.customer_id,
                key_hash: event.key_hash.clone(),
                rotation: 0,
                settings: event.settings.clone(),
            };
            vec![
                (StateKey::SpendKey(event.spend_key_id), Effect::Create(State::SpendKey(Box::new(key)))),
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
        Event::WalletCredited(event) => {
            vec![(StateKey::Wallet(event.wallet_id), Effect::Credit(event.amount))]
        }
        Event::RequestOpened(event) => {
            let mut effects = holds(event.parties, event.hold, Effect::Hold);
            let open = OpenRequest { merchant_id, opened: event.clone() };
            effects.push((StateKey::Request(event.request_id), Effect::Create(State::Request(open))));
            effects
        }
        Event::RequestMetered(event) => {
            let mut effects = ended(event.request_id, event.parties, event.hold);
            if let (Some(meter_id), Some(start)) = (event.meter_id, event.period_start) {
                let holder =
                    event.parties.customer_id.map_or(Holder::Merchant(merchant_id), Holder::Customer);
                effects.push((StateKey::Position(holder, meter_id, start), Effect::Advance(event.units)));
            }
            effects
        }
        Event::WalletDebited(event) => {
            vec![(StateKey::Wallet(event.wallet_id), Effect::Debit(event.amount))]
        }
        Event::RequestFailed(event) => ended(event.request_id, event.parties, event.hold),
    }
}

fn new_wallet(merchant_id: MerchantId, id: WalletId, owner: WalletOwner) -> (StateKey, Effect) {
    let wallet = Wallet { merchant_id, owner, balance: Amount::ZERO, held: Amount::ZERO };
    (StateKey::Wallet(id), Effect::Create(State::Wallet(wallet)))
}

fn ended(id: RequestId, parties: Parties, hold: Hold) -> Vec<(StateKey, Effect)> {
    let mut effects = holds(parties, hold, Effect::Release);
    effects.push((StateKey::Request(id), Effect::Remove));
    effects
}

fn holds(parties: Parties, hold: Hold, effect: fn(Amount) -> Effect) -> Vec<(StateKey, Effect)> {
    let mut effects = Vec::with_capacity(3);
    if let Some(wallet_id) = parties.wallet_id.filter(|_| !hold.wallet.is_zero()) {
        effects.push((StateKey::Wallet(wallet_id), effect(hold.wallet)));
    }
    if !hold.merchant.is_zero() {
        effects.push((StateKey::Wallet(parties.merchant_wallet_id), effect(hold.merchant)));
    }
    effects
}

/// The state after `effect`; none when it is no more.
pub fn apply(key: &StateKey, state: Option<State>, effect: Effect) -> Result<Option<State>, Broken> {
    match (state, effect) {
        (None, Effect::Create(state)) => Ok(Some(state)),
        (Some(_), Effect::Remove) => Ok(None),
        (Some(State::Wallet(wallet)), Effect::Credit(amount)) => {
            with_wallet(key, wallet, |wallet| wallet.balance.plus(amount).map(|sum| wallet.balance = sum))
        }
        (Some(State::Wallet(wallet)), Effect::Debit(amount)) => {
            with_wallet(key, wallet, |wallet| wallet.balance.minus(amount).map(|rest| wallet.balance = rest))
        }
        (Some(State::Wallet(wallet)), Effect::Hold(amount)) => {
            with_wallet(key, wallet, |wallet| wallet.held.plus(amount).map(|sum| wallet.held = sum))
        }
        (Some(State::Wallet(wallet)), Effect::Release(amount)) => {
            with_wallet(key, wallet, |wallet| wallet.held.minus(amount).map(|rest| wallet.held = rest))
        }
        (None, Effect::Advance(units)) => Ok(Some(State::Position(units))),
        (Some(State::Position(position)), Effect::Advance(units)) => {
            let moved = position.checked_add(units);
            let out_of_range = || Broken::Range { key: shown(key), source: money::Error::OutOfRange };
            moved.ok_or_else(out_of_range).map(|moved| Some(State::Position(moved)))
        }
        (Some(State::SpendKey(mut spend_key)), Effect::Rotate(event)) => {
            spend_key.key_hash = event.key_hash;
            spend_key.rotation = event.rotation;
            Ok(Some(State::SpendKey(spend_key)))
        }
        (state, effect) => Err(Broken::Misfit {
            key: shown(key),
            effect: format!("{effect:?} on {}", if state.is_some() { "something" } else { "nothing" }),
        }),
    }
}

fn with_wallet(
    key: &StateKey,
    mut wallet: Wallet,
    change: impl FnOnce(&mut Wallet) -> Result<(), money::Error>,
) -> Result<Option<State>, Broken> {
    change(&mut wallet).map_err(|source| Broken::Range { key: shown(key), source })?;
    let below = match wallet.owner {
        WalletOwner::Customer(_) => wallet.balance.is_negative(),
        WalletOwner::Merchant => false,
    };
    if below || wallet.held.is_negative() {
        return Err(Broken::BelowZero { key: shown(key) });
    }
    Ok(Some(State::Wallet(wallet)))
}

fn shown(key: &StateKey) -> String {
    let (kind, id) = key.stored();
    format!("{kind} {id}")
}
