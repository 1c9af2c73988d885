//! The effects of the events of customers.

use super::wallet;
use crate::event::{CustomerEvent, Fact};
use crate::state::customer::Customer;
use crate::state::effect::Effect;
use crate::state::kinds::{State, StateKey};
use crate::state::wallet::WalletOwner;
use crate::state::wallet_change::WalletChange;

pub(super) fn effects(fact: &Fact, event: &CustomerEvent) -> Vec<(StateKey, Effect)> {
    let Fact { merchant_id, occurred_at: created_at, .. } = *fact;
    match event {
        CustomerEvent::Created(event) => {
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
                wallet::create(merchant_id, event.wallet_id, WalletOwner::Customer(id)),
            ];
            if let Some(reference) = &event.reference_id {
                let key = StateKey::Reference(merchant_id, reference.clone());
                effects.push((key, Effect::Create(State::Reference(id))));
            }
            effects
        }
        CustomerEvent::Updated(event) => {
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
        CustomerEvent::Deleted(event) => {
            // The wallet and the tier usage stay, because calls in flight settle on them. Automatic recharge ends.
            let mut effects = vec![
                (StateKey::Customer(event.customer_id), Effect::Remove),
                (StateKey::Wallet(event.wallet_id), Effect::Wallet(WalletChange::Orphan)),
            ];
            let reference = event.reference_id.clone();
            effects.extend(reference.map(|id| (StateKey::Reference(merchant_id, id), Effect::Remove)));
            effects
        }
    }
}
