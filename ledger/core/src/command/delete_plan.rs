//! `DeletePlan`: deletes a plan. It takes no new subscribers; existing subscriptions continue (completion.md section
//! 8).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::PlanRefusal;
use crate::event::{Event, PlanDeleted};
use crate::ids::{MerchantId, PlanId};
use crate::state::{StateCache, StateKey};

/// Deletes a plan and its bundles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeletePlan {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The plan.
    pub plan_id: PlanId,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for DeletePlan {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let plan = states.plan(self.plan_id)?.filter(|plan| plan.merchant_id == self.merchant_id);
        let credit_bundle_ids = plan.ok_or(PlanRefusal::NotFound)?.credit_bundle_ids.clone();
        states.require(credit_bundle_ids.iter().copied().map(StateKey::CreditBundle))?;
        let event = Event::from(PlanDeleted { plan_id: self.plan_id, credit_bundle_ids });
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}
