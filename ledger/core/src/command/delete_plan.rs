//! `DeletePlan`: nobody can subscribe any more; subscriptions go on (completion.md section 8).

use chrono::{DateTime, Utc};

use super::{Command, Decision, PlanRefusal, Stop};
use crate::event::{Event, PlanDeleted};
use crate::ids::{MerchantId, PlanId};
use crate::state::StateCache;

/// Deletes a plan and its bundles.
#[derive(Debug, Clone, Copy)]
pub struct DeletePlan {
    /// Whose plan.
    pub merchant_id: MerchantId,
    /// Which plan.
    pub plan_id: PlanId,
    /// Now, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for DeletePlan {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, Stop> {
        let plan = states.plan(self.plan_id)?.filter(|plan| plan.merchant_id == self.merchant_id);
        let credit_bundle_ids = plan.ok_or(PlanRefusal::NotFound)?.credit_bundle_ids.clone();
        let event = Event::from(PlanDeleted { plan_id: self.plan_id, credit_bundle_ids });
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}
