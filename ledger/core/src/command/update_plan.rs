//! `UpdatePlan`: changes the terms and bundles of a plan, all or none. The price and the interval never change; running
//! cycles keep their terms (completion.md section 8).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::create_plan::check_meters;
use super::decision::{Command, DecideError, Decision};
use super::edit::Edit;
use super::refusal::PlanRefusal;
use crate::event::{
    BundleOffer, CreditBundleCreated, CreditBundleDeleted, CreditBundleUpdated, Event, PlanUpdated,
};
use crate::ids::{CreditBundleId, MerchantId, MeterId, PlanId};
use crate::money::Amount;
use crate::plan::Rollover;
use crate::state::{Plan, StateCache, StateKey};

/// The most bundles of a plan. Every representation of the plan has all of them.
const MAX_BUNDLES: usize = 100;

/// An edit of one bundle of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BundleEdit {
    /// Creates a bundle under this new id.
    Create(CreditBundleId, BundleOffer),
    /// Changes the fields of a bundle that are present.
    Update {
        /// The bundle.
        id: CreditBundleId,
        /// Its display name.
        name: Option<String>,
        /// Its price.
        cost: Option<Amount>,
        /// The credit that it grants.
        credit_amount: Option<Amount>,
    },
    /// Deletes the bundle.
    Delete(CreditBundleId),
}

/// The changes of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanEdits {
    /// Its display name.
    pub name: Option<String>,
    /// The credit that a cycle grants.
    pub included_credit: Option<Amount>,
    /// What happens to the plan's unused credit at the end of a cycle.
    pub rollover_type: Option<Rollover>,
    /// What happens to unused bundle credit at the end of a cycle.
    pub bundle_rollover_type: Option<Rollover>,
    /// The meters whose calls draw the credit.
    pub meter_ids: Option<Vec<MeterId>>,
    /// The bundle bought automatically when the credit is used up.
    pub default_auto_top_up_bundle_id: Edit<CreditBundleId>,
    /// Edits of its bundles; other bundles stay.
    pub bundles: Vec<BundleEdit>,
}

/// Changes a plan. A change without effect appends nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdatePlan {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The plan.
    pub plan_id: PlanId,
    /// The changes.
    pub edits: PlanEdits,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl UpdatePlan {
    fn bundle_events(&self, states: &StateCache, plan: &mut Plan) -> Result<Vec<Event>, DecideError> {
        let changed = self.edits.bundles.iter().filter_map(|edit| match edit {
            BundleEdit::Create(..) => None,
            BundleEdit::Update { id, .. } | BundleEdit::Delete(id) => Some(*id),
        });
        let changed = changed.filter(|id| plan.credit_bundle_ids.contains(id));
        states.require(changed.map(StateKey::CreditBundle))?;
        let plan_id = self.plan_id;
        let mut events = Vec::new();
        for edit in &self.edits.bundles {
            match edit {
                BundleEdit::Create(id, offer) => {
                    plan.credit_bundle_ids.push(*id);
                    events.push(Event::from(CreditBundleCreated {
                        credit_bundle_id: *id,
                        plan_id,
                        offer: offer.clone(),
                    }));
                }
                BundleEdit::Update { id, name, cost, credit_amount } => {
                    if !plan.credit_bundle_ids.contains(id) {
                        return Err(PlanRefusal::BundleNotFound.into());
                    }
                    let bundle = states.credit_bundle(*id)?.ok_or(PlanRefusal::BundleNotFound)?;
                    let offer = BundleOffer {
                        name: name.clone().unwrap_or_else(|| bundle.offer.name.clone()),
                        cost: cost.unwrap_or(bundle.offer.cost),
                        credit_amount: credit_amount.unwrap_or(bundle.offer.credit_amount),
                    };
                    if offer != bundle.offer {
                        events.push(Event::from(CreditBundleUpdated {
                            credit_bundle_id: *id,
                            plan_id,
                            revision: bundle.revision + 1,
                            offer,
                        }));
                    }
                }
                BundleEdit::Delete(id) => {
                    if !plan.credit_bundle_ids.contains(id) {
                        return Err(PlanRefusal::BundleNotFound.into());
                    }
                    plan.credit_bundle_ids.retain(|known| known != id);
                    if plan.terms.default_auto_top_up_bundle_id == Some(*id) {
                        plan.terms.default_auto_top_up_bundle_id = None;
                    }
                    events.push(Event::from(CreditBundleDeleted { credit_bundle_id: *id, plan_id }));
                }
            }
        }
        Ok(events)
    }
}

impl Command for UpdatePlan {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let before = states.plan(self.plan_id)?.filter(|plan| plan.merchant_id == self.merchant_id);
        let before = before.ok_or(PlanRefusal::NotFound)?;
        let mut plan = before.clone();
        let PlanEdits { name, included_credit, rollover_type, bundle_rollover_type, meter_ids, .. } =
            &self.edits;
        let terms = &mut plan.terms;
        if let Some(name) = name {
            terms.name.clone_from(name);
        }
        if let Some(meter_ids) = meter_ids {
            check_meters(states, self.merchant_id, meter_ids)?;
            terms.meter_ids.clone_from(meter_ids);
        }
        terms.included_credit = included_credit.unwrap_or(terms.included_credit);
        terms.rollover_type = rollover_type.unwrap_or(terms.rollover_type);
        terms.bundle_rollover_type = bundle_rollover_type.unwrap_or(terms.bundle_rollover_type);
        if terms.period_amount.is_positive() && terms.included_credit > terms.period_amount {
            return Err(PlanRefusal::CreditAbovePrice.into());
        }
        let bundles = self.bundle_events(states, &mut plan)?;
        // A plan that has more since an earlier version keeps them.
        if plan.credit_bundle_ids.len() > MAX_BUNDLES.max(before.credit_bundle_ids.len()) {
            return Err(PlanRefusal::TooManyBundles.into());
        }
        match self.edits.default_auto_top_up_bundle_id {
            Edit::Keep => {}
            Edit::Clear => plan.terms.default_auto_top_up_bundle_id = None,
            Edit::Set(id) if plan.credit_bundle_ids.contains(&id) => {
                plan.terms.default_auto_top_up_bundle_id = Some(id);
            }
            Edit::Set(_) => return Err(PlanRefusal::BundleNotFound.into()),
        }
        // The terms stop referring to a bundle before it is deleted.
        let mut events = Vec::new();
        if plan.terms != before.terms {
            let revision = before.revision + 1;
            events.push(Event::from(PlanUpdated { plan_id: self.plan_id, revision, terms: plan.terms }));
        }
        events.extend(bundles);
        Ok(Decision::append(self.merchant_id, self.now, events, ()))
    }
}
