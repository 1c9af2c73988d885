//! The resources of plans and their credit bundles; a plan is also a subscription config and carries both names.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::BundleOffer;
use farthing_core::ids::{CreditBundleId, MerchantId, MeterId, PlanId};
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, PlanTerms, Rollover};
use farthing_projector::plans::query::{BundleRow, PlanRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::rest::body::Timestamp;

/// A plan.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct Plan {
    plan_id: PlanId,
    subscription_config_id: PlanId,
    merchant_id: MerchantId,
    name: String,
    period_amount: Amount,
    included_credit: Amount,
    billing_interval: BillingInterval,
    rollover_type: Rollover,
    bundle_rollover_type: Rollover,
    default_auto_top_up_bundle_id: Option<CreditBundleId>,
    /// Only calls on these meters use the credit; without meters, all calls do.
    linked_meters: Vec<LinkedMeter>,
    /// In order of creation.
    credit_bundles: Vec<CreditBundle>,
    created_at: Timestamp,
}

/// A meter of a plan.
#[derive(Debug, Serialize, ToSchema)]
struct LinkedMeter {
    meter_id: MeterId,
    product_id: MeterId,
    /// `null` if the meter is deleted.
    meter_slug: Option<String>,
}

/// A credit bundle.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct CreditBundle {
    credit_bundle_id: CreditBundleId,
    plan_id: PlanId,
    subscription_config_id: PlanId,
    name: String,
    cost: Amount,
    credit_amount: Amount,
    created_at: Timestamp,
}

impl Plan {
    /// The plan of `row`.
    pub(super) fn of_row(merchant_id: MerchantId, row: PlanRow) -> Self {
        let PlanRow { plan_id, terms, created_at, bundles, slugs } = row;
        let bundles = bundles.into_iter().map(CreditBundle::from).collect();
        Self::new(merchant_id, plan_id, terms, bundles, &slugs, created_at)
    }

    /// The plan of these parts.
    pub(super) fn new(
        merchant_id: MerchantId,
        plan_id: PlanId,
        terms: PlanTerms,
        credit_bundles: Vec<CreditBundle>,
        slugs: &BTreeMap<MeterId, String>,
        created_at: DateTime<Utc>,
    ) -> Self {
        let linked =
            |id: MeterId| LinkedMeter { meter_id: id, product_id: id, meter_slug: slugs.get(&id).cloned() };
        Self {
            plan_id,
            subscription_config_id: plan_id,
            merchant_id,
            name: terms.name,
            period_amount: terms.period_amount,
            included_credit: terms.included_credit,
            billing_interval: terms.billing_interval,
            rollover_type: terms.rollover_type,
            bundle_rollover_type: terms.bundle_rollover_type,
            default_auto_top_up_bundle_id: terms.default_auto_top_up_bundle_id,
            linked_meters: terms.meter_ids.into_iter().map(linked).collect(),
            credit_bundles,
            created_at: Timestamp(created_at),
        }
    }
}

impl CreditBundle {
    /// The bundle of these parts.
    pub(super) fn new(
        credit_bundle_id: CreditBundleId,
        plan_id: PlanId,
        offer: BundleOffer,
        created_at: DateTime<Utc>,
    ) -> Self {
        let BundleOffer { name, cost, credit_amount } = offer;
        let created_at = Timestamp(created_at);
        Self {
            credit_bundle_id,
            plan_id,
            subscription_config_id: plan_id,
            name,
            cost,
            credit_amount,
            created_at,
        }
    }
}

impl From<BundleRow> for CreditBundle {
    fn from(row: BundleRow) -> Self {
        let BundleRow { credit_bundle_id, plan_id, offer, created_at } = row;
        Self::new(credit_bundle_id, plan_id, offer, created_at)
    }
}
