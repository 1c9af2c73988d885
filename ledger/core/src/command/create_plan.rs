//! `CreatePlan`: creates a plan with its credit bundles (completion.md section 8).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::{MeterRefusal, PlanRefusal};
use crate::event::{BundleOffer, CreditBundleCreated, Event, PlanCreated};
use crate::ids::{CreditBundleId, MerchantId, MeterId, PlanId};
use crate::plan::PlanTerms;
use crate::state::{StateCache, StateKey};

/// A bundle to create with its plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewBundle {
    /// A new id.
    pub credit_bundle_id: CreditBundleId,
    /// Its price and credit.
    pub offer: BundleOffer,
}

/// Creates a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePlan {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// A new id.
    pub plan_id: PlanId,
    /// Its terms. The default bundle is one of the new ones, or none.
    pub terms: PlanTerms,
    /// Its bundles.
    pub bundles: Vec<NewBundle>,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// Refuses meters that are not the merchant's.
pub(super) fn check_meters(
    states: &StateCache,
    merchant_id: MerchantId,
    meters: &[MeterId],
) -> Result<(), DecideError> {
    states.require(meters.iter().copied().map(StateKey::Meter))?;
    for id in meters {
        let meter = states.meter(*id)?.filter(|meter| meter.merchant_id == merchant_id);
        meter.ok_or(MeterRefusal::NotFound)?;
    }
    Ok(())
}

impl Command for CreatePlan {
    /// When it was created, by the merchant's clock.
    type Outcome = DateTime<Utc>;

    fn decide(&self, states: &StateCache) -> Result<Decision<DateTime<Utc>>, DecideError> {
        check_meters(states, self.merchant_id, &self.terms.meter_ids)?;
        let default = self.terms.default_auto_top_up_bundle_id;
        if default.is_some_and(|id| self.bundles.iter().all(|bundle| bundle.credit_bundle_id != id)) {
            return Err(PlanRefusal::BundleNotFound.into());
        }
        let plan_id = self.plan_id;
        let mut events = vec![Event::from(PlanCreated { plan_id, terms: self.terms.clone() })];
        events.extend(self.bundles.iter().map(|bundle| {
            Event::from(CreditBundleCreated {
                credit_bundle_id: bundle.credit_bundle_id,
                plan_id,
                offer: bundle.offer.clone(),
            })
        }));
        let created_at = states.now(self.merchant_id, self.now)?;
        Ok(Decision::append(self.merchant_id, self.now, events, created_at))
    }
}
