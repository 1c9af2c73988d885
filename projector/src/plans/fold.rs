//! The fold: one row per plan and per bundle, and the slug of each meter that there is. What is created and changed
//! within one batch is written once.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use farthing_core::event::{Event, MeterEvent, PlanEvent, Recorded};
use farthing_core::ids::{CreditBundleId, MeterId, PlanId};
use farthing_schema::read_model::ReadModel;

use crate::column::{json, storable};
use crate::engine::Projection;
use crate::writer::Writer;

/// New rows, and what changes in rows that are there.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) new_plans: BTreeMap<PlanId, New>,
    pub(super) plans: BTreeMap<PlanId, Change>,
    pub(super) new_bundles: BTreeMap<CreditBundleId, New>,
    /// The plan of each new bundle.
    pub(super) plan_of: BTreeMap<CreditBundleId, String>,
    pub(super) bundles: BTreeMap<CreditBundleId, Change>,
    pub(super) slugs: BTreeMap<MeterId, String>,
    pub(super) meters_gone: BTreeSet<MeterId>,
}

/// A new row, of a plan or of a bundle.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct New {
    pub(super) merchant_id: String,
    /// JSON text: a plan's terms, a bundle's offer.
    pub(super) text: String,
    pub(super) created_at: DateTime<Utc>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
}

/// What changes in a row; what is none stays.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) text: Option<String>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
}

fn change<I: Ord>(new: &mut BTreeMap<I, New>, changed: &mut BTreeMap<I, Change>, id: I, change: Change) {
    let Change { text, deleted_at } = change;
    if let Some(row) = new.get_mut(&id) {
        row.text = text.unwrap_or_else(|| std::mem::take(&mut row.text));
        row.deleted_at = deleted_at.or(row.deleted_at);
    } else {
        let row = changed.entry(id).or_default();
        row.text = text.or(row.text.take());
        row.deleted_at = deleted_at.or(row.deleted_at);
    }
}

impl Batch {
    fn change_plan(&mut self, id: PlanId, to: Change) {
        change(&mut self.new_plans, &mut self.plans, id, to);
    }

    fn change_bundle(&mut self, id: CreditBundleId, to: Change) {
        change(&mut self.new_bundles, &mut self.bundles, id, to);
    }
}

impl Projection for Batch {
    const MODEL: ReadModel = ReadModel::Plans;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        let new = |text: String| New {
            merchant_id: fact.merchant_id.to_string(),
            text,
            created_at: fact.occurred_at,
            deleted_at: None,
        };
        let text = |text: String| Change { text: Some(text), deleted_at: None };
        let gone = || Change { text: None, deleted_at: Some(fact.occurred_at) };
        match &fact.event {
            Event::Plan(PlanEvent::Created(event)) => {
                self.new_plans.insert(event.plan_id, new(json(&event.terms)));
            }
            Event::Plan(PlanEvent::Updated(event)) => {
                self.change_plan(event.plan_id, text(json(&event.terms)))
            }
            Event::Plan(PlanEvent::Deleted(event)) => {
                self.change_plan(event.plan_id, gone());
                for id in &event.credit_bundle_ids {
                    self.change_bundle(*id, gone());
                }
            }
            Event::Plan(PlanEvent::BundleCreated(event)) => {
                self.new_bundles.insert(event.credit_bundle_id, new(json(&event.offer)));
                self.plan_of.insert(event.credit_bundle_id, event.plan_id.to_string());
            }
            Event::Plan(PlanEvent::BundleUpdated(event)) => {
                self.change_bundle(event.credit_bundle_id, text(json(&event.offer)));
            }
            Event::Plan(PlanEvent::BundleDeleted(event)) => {
                self.change_bundle(event.credit_bundle_id, gone())
            }
            Event::Meter(MeterEvent::Defined(event)) => {
                self.slugs.insert(event.meter_id, storable(&event.meter_slug).into_owned());
            }
            Event::Meter(MeterEvent::Deleted(event)) => {
                if self.slugs.remove(&event.meter_id).is_none() {
                    self.meters_gone.insert(event.meter_id);
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
            && self.meters_gone.is_empty()
    }

    async fn write(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        self.write_plans(db).await?;
        self.write_bundles(db).await?;
        self.write_slugs(db).await
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
    fn a_plan_that_comes_and_goes_within_a_batch_is_one_row_and_its_bundle_another() {
        let ulid = Mint::default().next(DateTime::UNIX_EPOCH);
        let (plan_id, bundle_id) = (PlanId::new(ulid), CreditBundleId::new(ulid));
        let batch: Batch = sample::fold(life(plan_id, bundle_id).into());
        assert!(batch.plans.is_empty() && batch.bundles.is_empty());
        assert_eq!(batch.new_plans[&plan_id].text, json(&terms("Still free")));
        assert_eq!(batch.plan_of[&bundle_id], plan_id.to_string());
        for deleted_at in [batch.new_plans[&plan_id].deleted_at, batch.new_bundles[&bundle_id].deleted_at] {
            assert_eq!(deleted_at, Some(DateTime::UNIX_EPOCH));
        }
    }

    #[test]
    fn what_came_in_an_earlier_batch_is_changed_in_its_row() {
        let ulid = Mint::default().next(DateTime::UNIX_EPOCH);
        let (plan_id, bundle_id) = (PlanId::new(ulid), CreditBundleId::new(ulid));
        let [_, _, updated, deleted] = life(plan_id, bundle_id);
        let batch: Batch = sample::fold(vec![updated, deleted]);
        assert!(batch.new_plans.is_empty() && batch.new_bundles.is_empty() && !batch.is_empty());
        let gone = Some(DateTime::UNIX_EPOCH);
        let plan = Change { text: Some(json(&terms("Still free"))), deleted_at: gone };
        assert_eq!(batch.plans[&plan_id], plan);
        assert_eq!(batch.bundles[&bundle_id], Change { text: None, deleted_at: gone });
    }
}
