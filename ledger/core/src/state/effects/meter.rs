//! The effects of the events of meters.

use crate::event::{Fact, MeterEvent};
use crate::state::effect::Effect;
use crate::state::kinds::{State, StateKey};
use crate::state::meter::Meter;

pub(super) fn effects(fact: &Fact, event: &MeterEvent) -> Vec<(StateKey, Effect)> {
    let Fact { merchant_id, occurred_at: created_at, .. } = *fact;
    match event {
        MeterEvent::Defined(event) => {
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
        MeterEvent::Updated(event) => {
            vec![(StateKey::Meter(event.meter_id), Effect::UpdateMeter(Box::new(event.clone())))]
        }
        MeterEvent::Deleted(event) => vec![
            (StateKey::Meter(event.meter_id), Effect::Remove),
            (StateKey::MeterSlug(merchant_id, event.meter_slug.clone()), Effect::Remove),
        ],
    }
}
