//! The fold: one row per plan and per bundle, and the slug of each meter that is not deleted. A row that is created and
//! changed within one batch is written once.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use farthing_core::event::{Event, MeterEvent, PlanEvent, Recorded};
use farthing_core::ids::{CreditBundleId, MeterId, PlanId};
use farthing_schema::read_model::ReadModel;

use crate::column::{json, storable};
use crate::engine::Projection;
use crate::row_changes::{self, Change};

/// New rows, and the changes of existing ones.
#[derive(Debug, Default)]
pub(crate) struct PlanBatch {
    pub(super) new_plans: BTreeMap<PlanId, NewPlan>,
    pub(super) plans: BTreeMap<PlanId, PlanChange>,
    pub(super) new_bundles: BTreeMap<CreditBundleId, NewBundle>,
    pub(super) bundles: BTreeMap<CreditBundleId, PlanChange>,
    pub(super) slugs: BTreeMap<MeterId, String>,
    pub(super) deleted_meters: BTreeSet<MeterId>,
}

/// A row of the table `plans`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewPlan {
    pub(super) merchant_id: String,
    /// JSON text of the plan's terms.
    pub(super) text: String,
    pub(super) created_at: DateTime<Utc>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
}

/// A row of the table `credit_bundles`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewBundle {
    pub(super) plan_id: String,
    /// The columns that a plan has as well; the text is the bundle's offer.
    pub(super) row: NewPlan,
}

/// The change of a plan or a bundle. A field that is `None` does not change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PlanChange {
    pub(super) text: Option<String>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
}

impl Change<NewPlan> for PlanChange {
    fn apply(self, row: &mut NewPlan) {
        if let Some(text) = self.text {
            row.text = text;
        }
        row.deleted_at = self.deleted_at.or(row.deleted_at);
    }

    fn merge(&mut self, later: Self) {
        self.text = later.text.or(self.text.take());
        self.deleted_at = later.deleted_at.or(self.deleted_at);
    }
}

impl Change<NewBundle> for PlanChange {
    fn apply(self, bundle: &mut NewBundle) {
        self.apply(&mut bundle.row);
    }

    fn merge(&mut self, later: Self) {
        Change::<NewPlan>::merge(self, later);
    }
}

impl PlanBatch {
    fn change_plan(&mut self, id: PlanId, change: PlanChange) {
        row_changes::change(&mut self.new_plans, &mut self.plans, id, change);
    }

    fn change_bundle(&mut self, id: CreditBundleId, change: PlanChange) {
        row_changes::change(&mut self.new_bundles, &mut self.bundles, id, change);
    }
}

impl Projection for PlanBatch {
    const MODEL: ReadModel = ReadModel::Plans;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        let new = |text: String| NewPlan {
            merchant_id: fact.merchant_id.to_string(),
            text,
            created_at: fact.occurred_at,
            deleted_at: None,
        };
        let text = |text: String| PlanChange { text: Some(text), deleted_at: None };
        let deletion = || PlanChange { text: None, deleted_at: Some(fact.occurred_at) };
        match &fact.event {
            Event::Plan(PlanEvent::Created(event)) => {
                self.new_plans.insert(event.plan_id, new(json(&event.terms)));
            }
            Event::Plan(PlanEvent::Updated(event)) => {
                self.change_plan(event.plan_id, text(json(&event.terms)));
            }
            Event::Plan(PlanEvent::Deleted(event)) => {
                self.change_plan(event.plan_id, deletion());
                for id in &event.credit_bundle_ids {
                    self.change_bundle(*id, deletion());
                }
            }
            Event::Plan(PlanEvent::BundleCreated(event)) => {
                let bundle = NewBundle { plan_id: event.plan_id.to_string(), row: new(json(&event.offer)) };
                self.new_bundles.insert(event.credit_bundle_id, bundle);
            }
            Event::Plan(PlanEvent::BundleUpdated(event)) => {
                self.change_bundle(event.credit_bundle_id, text(json(&event.offer)));
            }
            Event::Plan(PlanEvent::BundleDeleted(event)) => {
                self.change_bundle(event.credit_bundle_id, deletion());
            }
            Event::Meter(MeterEvent::Defined(event)) => {
                self.slugs.insert(event.meter_id, storable(&event.meter_slug));
            }
            Event::Meter(MeterEvent::Deleted(event)) => {
                if self.slugs.remove(&event.meter_id).is_none() {
                    self.deleted_meters.insert(event.meter_id);
                }
            }
            Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Customer(_)
            | Event::Meter(MeterEvent::Updated(_))
            | Event::SpendKey(_)
            | Event::Wallet(_)
            | Event::Request(_)
            | Event::Subscription(_)
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.new_plans.is_empty()
            && self.plans.is_empty()
            && self.new_bundles.is_empty()
            && self.bundles.is_empty()
            && self.slugs.is_empty()
            && self.deleted_meters.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::event::{BundleOffer, CreditBundleCreated, PlanCreated, PlanDeleted, PlanUpdated};
    use farthing_core::ids::Mint;
    use farthing_core::money::Amount;
    use farthing_core::plan::{BillingInterval, PlanTerms, Rollover};

    use super::*;
    use crate::sample;

    fn terms(name: &str) -> PlanTerms {
        PlanTerms {
            name: name.to_owned(),
            period_amount: Amount::ZERO,
            included_credit: "5".parse().unwrap(),
            billing_interval: BillingInterval::Month,
            rollover_type: Rollover::None,
            bundle_rollover_type: Rollover::Full,
            meter_ids: Vec::new(),
            default_auto_top_up_bundle_id: None,
        }
    }

    fn life(plan_id: PlanId, credit_bundle_id: CreditBundleId) -> [Event; 4] {
        let offer = BundleOffer {
            name: "Five".to_owned(),
            cost: "5".parse().unwrap(),
            credit_amount: "6".parse().unwrap(),
        };
        [
            Event::from(PlanCreated { plan_id, terms: terms("Free") }),
            Event::from(CreditBundleCreated { credit_bundle_id, plan_id, offer }),
            Event::from(PlanUpdated { plan_id, revision: 1, terms: terms("Still free") }),
            Event::from(PlanDeleted { plan_id, credit_bundle_ids: vec![credit_bundle_id] }),
        ]
    }

    #[test]
    fn a_plan_and_its_bundle_that_are_created_and_deleted_in_one_batch_are_one_row_each() {
        let ulid = Mint::default().next(DateTime::UNIX_EPOCH);
        let (plan_id, bundle_id) = (PlanId::new(ulid), CreditBundleId::new(ulid));
        let batch: PlanBatch = sample::fold(life(plan_id, bundle_id).into());
        assert!(batch.plans.is_empty() && batch.bundles.is_empty());
        assert_eq!(batch.new_plans[&plan_id].text, json(&terms("Still free")));
        assert_eq!(batch.new_bundles[&bundle_id].plan_id, plan_id.to_string());
        for deleted_at in [batch.new_plans[&plan_id].deleted_at, batch.new_bundles[&bundle_id].row.deleted_at]
        {
            assert_eq!(deleted_at, Some(DateTime::UNIX_EPOCH));
        }
    }

    #[test]
    fn a_plan_of_an_earlier_batch_is_changed_in_its_row() {
        let ulid = Mint::default().next(DateTime::UNIX_EPOCH);
        let (plan_id, bundle_id) = (PlanId::new(ulid), CreditBundleId::new(ulid));
        let [_, _, updated, deleted] = life(plan_id, bundle_id);
        let batch: PlanBatch = sample::fold(vec![updated, deleted]);
        assert!(batch.new_plans.is_empty() && batch.new_bundles.is_empty() && !batch.is_empty());
        let deleted_at = Some(DateTime::UNIX_EPOCH);
        let plan = PlanChange { text: Some(json(&terms("Still free"))), deleted_at };
        assert_eq!(batch.plans[&plan_id], plan);
        assert_eq!(batch.bundles[&bundle_id], PlanChange { text: None, deleted_at });
    }
}
