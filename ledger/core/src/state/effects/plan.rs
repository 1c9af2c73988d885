//! The effects of the events of plans and their credit bundles.

use crate::event::{Fact, PlanEvent};
use crate::state::effect::Effect;
use crate::state::kinds::{State, StateKey};
use crate::state::plan::{CreditBundle, Plan, PlanChange};

pub(super) fn effects(fact: &Fact, event: &PlanEvent) -> Vec<(StateKey, Effect)> {
    let Fact { merchant_id, occurred_at: created_at, .. } = *fact;
    match event {
        PlanEvent::Created(event) => {
            let plan = Plan {
                merchant_id,
                terms: event.terms.clone(),
                credit_bundle_ids: Vec::new(),
                revision: 0,
                created_at,
            };
            vec![(StateKey::Plan(event.plan_id), Effect::Create(State::Plan(Box::new(plan))))]
        }
        PlanEvent::Updated(event) => {
            let change = PlanChange::Terms(Box::new(event.terms.clone()), event.revision);
            vec![(StateKey::Plan(event.plan_id), Effect::Plan(change))]
        }
        PlanEvent::Deleted(event) => {
            let bundles = event.credit_bundle_ids.iter();
            let bundles = bundles.map(|id| (StateKey::CreditBundle(*id), Effect::Remove));
            bundles.chain([(StateKey::Plan(event.plan_id), Effect::Remove)]).collect()
        }
        PlanEvent::BundleCreated(event) => {
            let id = event.credit_bundle_id;
            let bundle = CreditBundle {
                merchant_id,
                plan_id: event.plan_id,
                offer: event.offer.clone(),
                revision: 0,
                created_at,
            };
            vec![
                (StateKey::CreditBundle(id), Effect::Create(State::CreditBundle(bundle))),
                (StateKey::Plan(event.plan_id), Effect::Plan(PlanChange::AddBundle(id))),
            ]
        }
        PlanEvent::BundleUpdated(event) => vec![(
            StateKey::CreditBundle(event.credit_bundle_id),
            Effect::Offer(event.offer.clone(), event.revision),
        )],
        PlanEvent::BundleDeleted(event) => {
            let id = event.credit_bundle_id;
            vec![
                (StateKey::CreditBundle(id), Effect::Remove),
                (StateKey::Plan(event.plan_id), Effect::Plan(PlanChange::RemoveBundle(id))),
            ]
        }
    }
}
