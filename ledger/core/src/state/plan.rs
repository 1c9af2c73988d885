//! The states of plans and their credit bundles.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::BundleOffer;
use crate::ids::{CreditBundleId, MerchantId, PlanId};
use crate::plan::PlanTerms;

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Whose plan.
    pub merchant_id: MerchantId,
    /// What it takes and gives.
    pub terms: PlanTerms,
    /// Its bundles, in the order of their creation.
    pub credit_bundle_ids: Vec<CreditBundleId>,
    /// Its changes so far.
    pub revision: u32,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}

/// What happens to a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanChange {
    /// Other terms; counts the changes.
    Terms(Box<PlanTerms>, u32),
    /// One bundle more.
    AddBundle(CreditBundleId),
    /// One bundle less.
    RemoveBundle(CreditBundleId),
}

impl Plan {
    pub(super) fn change(&mut self, change: PlanChange) {
        match change {
            PlanChange::Terms(terms, revision) => {
                self.terms = *terms;
                self.revision = revision;
            }
            PlanChange::AddBundle(id) => self.credit_bundle_ids.push(id),
            PlanChange::RemoveBundle(id) => self.credit_bundle_ids.retain(|known| *known != id),
        }
    }
}

/// A credit bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditBundle {
    /// Whose.
    pub merchant_id: MerchantId,
    /// The plan whose subscribers may buy it.
    pub plan_id: PlanId,
    /// What it costs and brings.
    pub offer: BundleOffer,
    /// Its changes so far.
    pub revision: u32,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}
