//! The effects of the events of spend keys.

use crate::event::{Fact, SpendKeyEvent, SpendKeyStatus};
use crate::spending::Spending;
use crate::state::effect::Effect;
use crate::state::kinds::{State, StateKey};
use crate::state::spend_key::SpendKey;

pub(super) fn effects(fact: &Fact, event: &SpendKeyEvent) -> Vec<(StateKey, Effect)> {
    let Fact { merchant_id, occurred_at: created_at, .. } = *fact;
    match event {
        SpendKeyEvent::Created(event) => {
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
        SpendKeyEvent::Rotated(event) => vec![
            (StateKey::SpendKeyHash(event.old_key_hash.clone()), Effect::Remove),
            (
                StateKey::SpendKeyHash(event.key_hash.clone()),
                Effect::Create(State::SpendKeyHash(event.spend_key_id)),
            ),
            (StateKey::SpendKey(event.spend_key_id), Effect::Rotate(event.clone())),
        ],
        SpendKeyEvent::Updated(event) => vec![
            (StateKey::SpendKey(event.spend_key_id), Effect::UpdateSpendKey(Box::new(event.clone()))),
            (
                StateKey::Spending(event.spend_key_id),
                Effect::LimitRate(event.settings.rate_limit, created_at),
            ),
        ],
        SpendKeyEvent::Deleted(event) => vec![
            (StateKey::SpendKeyHash(event.key_hash.clone()), Effect::Remove),
            (StateKey::SpendKey(event.spend_key_id), Effect::Remove),
            (StateKey::Spending(event.spend_key_id), Effect::Remove),
        ],
    }
}
