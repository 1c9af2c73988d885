//! The states of plans and their credit bundles.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::BundleOffer;
use crate::ids::{CreditBundleId, MerchantId, PlanId};
use crate::plan::PlanTerms;

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// Its terms.
    pub terms: PlanTerms,
    /// Its bundles, in the order of their creation.
    pub credit_bundle_ids: Vec<CreditBundleId>,
    /// The number of its changes.
    pub revision: u32,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}

/// A change of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanChange {
    /// New terms, with the number of changes.
    Terms(Box<PlanTerms>, u32),
    /// Adds a bundle.
    AddBundle(CreditBundleId),
    /// Removes a bundle.
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
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The plan whose subscribers may buy it.
    pub plan_id: PlanId,
    /// Its price and credit.
    pub offer: BundleOffer,
    /// The number of its changes.
    pub revision: u32,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}
