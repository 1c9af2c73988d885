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

/// A plan (formerly a subscription config) was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCreated {
    /// The plan.
    pub plan_id: PlanId,
    /// Its terms.
    #[serde(flatten)]
    pub terms: PlanTerms,
}

/// A plan was changed. Running cycles keep their terms. The price and the interval of a plan never change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanUpdated {
    /// The plan.
    pub plan_id: PlanId,
    /// Counts the changes of this plan, from 1.
    pub revision: u32,
    /// Its new terms.
    #[serde(flatten)]
    pub terms: PlanTerms,
}

/// A plan was deleted, with its bundles. It takes no new subscribers; existing subscriptions continue on the terms of
/// their last cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanDeleted {
    /// The plan.
    pub plan_id: PlanId,
    /// The bundles deleted with it.
    pub credit_bundle_ids: Vec<CreditBundleId>,
}

/// The price and the credit of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleOffer {
    /// Its display name.
    pub name: String,
    /// The price, in dollars.
    pub cost: Amount,
    /// The credit that it grants, in dollars.
    pub credit_amount: Amount,
}

/// A credit bundle of a plan was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditBundleCreated {
    /// The bundle.
    pub credit_bundle_id: CreditBundleId,
    /// The plan whose subscribers may buy it.
    pub plan_id: PlanId,
    /// Its price and credit.
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
    /// Its new price and credit.
    #[serde(flatten)]
    pub offer: BundleOffer,
}

/// A credit bundle was deleted. Credit that was bought stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditBundleDeleted {
    /// The bundle.
    pub credit_bundle_id: CreditBundleId,
    /// Its plan.
    pub plan_id: PlanId,
}
