//! Applies an effect to a state. The invariants of money are checked in production: a broken one aborts the append.

use super::effect::Effect;
use super::kinds::{State, StateKey};
use super::wallet::Wallet;
use crate::money::{self};
use crate::spending::Spending;

/// An effect that breaks an invariant: a programming error or a tampered log, never a user error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvariantBroken {
    /// The state exists already, does not exist, or is of another kind.
    #[error("{effect} does not fit the state of {key}")]
    Misfit {
        /// The state's kind and id.
        key: String,
        /// The effect.
        effect: String,
    },
    /// A customer's wallet or a sum of holds would go below zero.
    #[error("{key} would go below zero")]
    BelowZero {
        /// The state's kind and id.
        key: String,
    },
    /// An amount is out of range.
    #[error("{key}: {source}")]
    Range {
        /// The state's kind and id.
        key: String,
        /// The error of the calculation.
        source: money::Error,
    },
}

/// Returns the state after `effect`; `None` if it is removed.
pub fn apply(key: &StateKey, state: Option<State>, effect: Effect) -> Result<Option<State>, InvariantBroken> {
    match (state, effect) {
        (None, Effect::Create(state)) => Ok(Some(state)),
        // A spend key may be deleted before its calls end, a customer while a payment is open.
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
        (Some(State::Wallet(wallet)), Effect::Wallet(change)) => {
            with_wallet(key, wallet, |wallet| wallet.change(change))
        }
        (None, Effect::Advance(units)) => Ok(Some(State::TierUsage(units))),
        (Some(State::TierUsage(position)), Effect::Advance(units)) => {
            let moved = position.checked_add(units);
            let out_of_range =
                || InvariantBroken::Range { key: shown(key), source: money::Error::OutOfRange };
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
        (Some(State::Spending(spending)), Effect::AdmitOnKey(used, hold)) => {
            with_spending(key, spending, |spending| spending.admit(used.admitted_at, used.held(hold)?))
        }
        (Some(State::Spending(spending)), Effect::SettleOnKey(used, hold, cost)) => {
            with_spending(key, spending, |spending| spending.settle(used.admitted_at, used.held(hold)?, cost))
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
            Ok(Some(State::Subscription(Box::new(subscription.changed(change)))))
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
        (state, effect) => Err(InvariantBroken::Misfit {
            key: shown(key),
            effect: format!("{effect:?} on {}", if state.is_some() { "something" } else { "nothing" }),
        }),
    }
}

fn with_wallet(
    key: &StateKey,
    mut wallet: Box<Wallet>,
    change: impl FnOnce(&mut Wallet) -> Result<(), money::Error>,
) -> Result<Option<State>, InvariantBroken> {
    change(&mut wallet).map_err(|source| InvariantBroken::Range { key: shown(key), source })?;
    if !wallet.is_sound() {
        return Err(InvariantBroken::BelowZero { key: shown(key) });
    }
    Ok(Some(State::Wallet(wallet)))
}

fn with_spending(
    key: &StateKey,
    mut spending: Box<Spending>,
    change: impl FnOnce(&mut Spending) -> Result<(), money::Error>,
) -> Result<Option<State>, InvariantBroken> {
    change(&mut spending).map_err(|source| InvariantBroken::Range { key: shown(key), source })?;
    if !spending.is_sound() {
        return Err(InvariantBroken::BelowZero { key: shown(key) });
    }
    Ok(Some(State::Spending(spending)))
}

fn shown(key: &StateKey) -> String {
    let (kind, id) = key.stored();
    format!("{kind} {id}")
}
