//! The effects of the events of calls.

use crate::event::{Fact, Hold, KeyUse, Parties, RequestEvent};
use crate::hold_scope::HoldScope;
use crate::ids::RequestId;
use crate::money::Amount;
use crate::state::effect::Effect;
use crate::state::kinds::{Holder, State, StateKey};
use crate::state::request::AdmittedRequest;

pub(super) fn effects(fact: &Fact, event: &RequestEvent) -> Vec<(StateKey, Effect)> {
    let Fact { merchant_id, occurred_at: created_at, .. } = *fact;
    match event {
        RequestEvent::Opened(event) => {
            let mut effects = holds(event.parties, event.hold, Effect::Hold);
            if let Some(used) = event.spend_key {
                effects.push((StateKey::Spending(used.spend_key_id), Effect::AdmitOnKey(used, event.hold)));
            }
            let open = AdmittedRequest { merchant_id, opened_at: created_at, opened: event.clone() };
            effects.push((StateKey::Request(event.request_id), Effect::Create(State::Request(open))));
            if let Some(reported) = &event.reported_id {
                let key = StateKey::Reported(merchant_id, reported.clone());
                effects.push((key, Effect::Create(State::Reported(event.request_id))));
            }
            effects
        }
        RequestEvent::Metered(event) => {
            let mut effects = ended(event.request_id, event.parties, event.hold);
            effects.extend(settled_on_key(event.spend_key, event.hold, event.total_request_cost));
            if let (Some(meter_id), Some(start)) = (event.meter_id, event.period_start) {
                let holder =
                    event.parties.customer_id.map_or(Holder::Merchant(merchant_id), Holder::Customer);
                effects.push((StateKey::TierUsage(holder, meter_id, start), Effect::Advance(event.units)));
            }
            effects
        }
        RequestEvent::Failed(event) => {
            let mut effects = ended(event.request_id, event.parties, event.hold);
            effects.extend(settled_on_key(event.spend_key, event.hold, Amount::ZERO));
            effects
        }
    }
}

fn settled_on_key(key: Option<KeyUse>, hold: Hold, cost: Amount) -> Option<(StateKey, Effect)> {
    let used = key?;
    Some((StateKey::Spending(used.spend_key_id), Effect::SettleOnKey(used, hold, cost)))
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
