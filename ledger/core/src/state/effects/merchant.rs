//! The effects of the events of merchants and their secret keys.

use super::wallet;
use crate::event::{Fact, MerchantEvent, SecretKeyEvent};
use crate::state::effect::Effect;
use crate::state::kinds::{State, StateKey};
use crate::state::merchant::{IssuedKey, Merchant, SecretKey};
use crate::state::wallet::WalletOwner;

pub(super) fn effects(fact: &Fact, event: &MerchantEvent) -> Vec<(StateKey, Effect)> {
    let Fact { merchant_id, occurred_at: created_at, .. } = *fact;
    match event {
        MerchantEvent::Registered(event) => {
            let merchant = Merchant {
                wallet_id: event.wallet_id,
                name: event.name.clone(),
                created_at,
                secret_keys: 0,
                clock_ahead_seconds: 0,
            };
            vec![
                (StateKey::Merchant(event.merchant_id), Effect::Create(State::Merchant(merchant))),
                wallet::create(merchant_id, event.wallet_id, WalletOwner::Merchant),
            ]
        }
        MerchantEvent::ClockAdvanced(event) => {
            vec![(StateKey::Merchant(event.merchant_id), Effect::AdvanceClock(event.ahead_seconds))]
        }
    }
}

pub(super) fn secret_key_effects(fact: &Fact, event: &SecretKeyEvent) -> Vec<(StateKey, Effect)> {
    let merchant_id = fact.merchant_id;
    match event {
        SecretKeyEvent::Issued(event) => {
            let key = SecretKey { secret_key_id: event.secret_key_id, merchant_id };
            let issued = IssuedKey { merchant_id, key_hash: event.key_hash.clone() };
            vec![
                (StateKey::SecretKey(event.key_hash.clone()), Effect::Create(State::SecretKey(key))),
                (StateKey::IssuedKey(event.secret_key_id), Effect::Create(State::IssuedKey(issued))),
                (StateKey::Merchant(merchant_id), Effect::IssueKey),
            ]
        }
        SecretKeyEvent::Revoked(event) => vec![
            (StateKey::SecretKey(event.key_hash.clone()), Effect::Remove),
            (StateKey::IssuedKey(event.secret_key_id), Effect::Remove),
            (StateKey::Merchant(merchant_id), Effect::RevokeKey),
        ],
    }
}
