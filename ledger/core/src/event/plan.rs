//! The events of plans and their credit bundles.

use serde::{Deserialize, Serialize};

use super::kind::area;
use crate::ids::{CreditBundleId, PlanId};
use crate::money::Amount;
use crate::plan::PlanTerms;

area! {
    /// The events of plans and their credit bundles.
    Event::Plan(PlanEvent) {
        Created(PlanCreated) = "plan.created",
        Updated(PlanUpdated) = "plan.updated",
        Deleted(PlanDeleted) = "plan.deleted",
        BundleCreated(CreditBundleCreated) = "credit_bundle.created",
        BundleUpdated(CreditBundleUpdated) = "credit_bundle.updated",
        BundleDeleted(CreditBundleDeleted) = "credit_bundle.deleted",
    }
}

impl PlanEvent {
    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Created(event) => format!("{}/created", event.plan_id),
            Self::Updated(event) => format!("{}/updated/{}", event.plan_id, event.revision),
            Self::Deleted(event) => format!("{}/deleted", event.plan_id),
            Self::BundleCreated(event) => format!("{}/created", event.credit_bundle_id),
            Self::BundleUpdated(event) => {
                format!("{}/updated/{}", event.credit_bundle_id, event.revision)
            }
            Self::BundleDeleted(event) => format!("{}/deleted", event.credit_bundle_id),
        }
    }
}

/// A plan (in the older words a subscription config) was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCreated {
    /// The plan.
    pub plan_id: PlanId,
    /// What it takes and gives.
    #[serde(flatten)]
    pub terms: PlanTerms,
}

/// A plan was changed; cycles under way keep the terms they began on. Its price and its interval never change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanUpdated {
    /// The plan.
    pub plan_id: PlanId,
    /// Counts the changes of this plan, from 1.
    pub revision: u32,
    /// What it takes and gives from now on.
    #[serde(flatten)]
    pub terms: PlanTerms,
}

/// A plan is no more: nobody can subscribe to it, and its bundles are gone with it. Subscriptions to it go on, on the
/// terms of their last cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanDeleted {
    /// The plan.
    pub plan_id: PlanId,
    /// The bundles that are no more.
    pub credit_bundle_ids: Vec<CreditBundleId>,
}

/// What a bundle costs and brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleOffer {
    /// Its display name.
    pub name: String,
    /// What it costs, in dollars.
    pub cost: Amount,
    /// The credit it brings, in dollars.
    pub credit_amount: Amount,
}

/// A credit bundle of a plan was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditBundleCreated {
    /// The bundle.
    pub credit_bundle_id: CreditBundleId,
    /// The plan whose subscribers may buy it.
    pub plan_id: PlanId,
    /// What it costs and brings.
    #[serde(flatten)]
    pub offer: BundleOffer,
}

/// A credit bundle was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditBundleUpdated {
    /// The bundle.
    pub credit_bundle_id: CreditBundleId,
    /// The plan whose subscribers may buy it.
    pub plan_id: PlanId,
    /// Counts the changes of this bundle, from 1.
    pub revision: u32,
    /// What it costs and brings from now on.
    #[serde(flatten)]
    pub offer: BundleOffer,
}

/// A credit bundle can be bought no more. What was bought stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditBundleDeleted {
    /// The bundle.
    pub credit_bundle_id: CreditBundleId,
    /// Its plan.
    pub plan_id: PlanId,
}
