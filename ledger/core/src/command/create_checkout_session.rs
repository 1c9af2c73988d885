//! `CreateCheckoutSession`: creates a hosted page for one customer and one purpose (completion.md section 8).

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::open_request::CustomerRef;
use super::refusal::PlanRefusal;
use crate::event::{CheckoutMode, CheckoutSessionCreated, Event};
use crate::ids::{CheckoutSessionId, CreditBundleId, MerchantId, PlanId};
use crate::state::StateCache;

/// The lifetime of a session.
const LIFETIME: TimeDelta = TimeDelta::hours(24);

/// Creates a checkout session and returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateCheckoutSession {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// A new id.
    pub checkout_session_id: CheckoutSessionId,
    /// Its purpose.
    pub checkout_mode: CheckoutMode,
    /// The origin of the merchant's app.
    pub origin_url: String,
    /// The customer; `None` if the session creates one.
    pub customer: Option<CustomerRef>,
    /// The merchant's own identifier of a customer that may not exist yet. If there is none, the session has that of
    /// `customer`.
    pub reference_id: Option<String>,
    /// The plan, in mode `subscription`.
    pub plan_id: Option<PlanId>,
    /// The bundle, in mode `credit_bundle`.
    pub credit_bundle_id: Option<CreditBundleId>,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for CreateCheckoutSession {
    type Outcome = CheckoutSessionCreated;

    fn decide(&self, states: &StateCache) -> Result<Decision<CheckoutSessionCreated>, DecideError> {
        let merchant_id = self.merchant_id;
        let now = states.now(merchant_id, self.now)?;
        let customer =
            self.customer.as_ref().map(|customer| customer.find(states, merchant_id)).transpose()?;
        let mut customer_id = customer.map(|(id, _)| id);
        if let (None, Some(reference)) = (customer_id, &self.reference_id) {
            customer_id = states.reference(merchant_id, reference)?.copied();
        }
        if let Some(id) = self.plan_id {
            let plan = states.plan(id)?.filter(|plan| plan.merchant_id == merchant_id);
            plan.ok_or(PlanRefusal::NotFound)?;
        }
        if let Some(id) = self.credit_bundle_id {
            let bundle = states.credit_bundle(id)?.filter(|bundle| bundle.merchant_id == merchant_id);
            bundle.ok_or(PlanRefusal::BundleNotFound)?;
        }
        // A session for a customer is found by the customer's reference id, however the caller named the customer.
        let of_customer = || customer.and_then(|(_, customer)| customer.reference_id.clone());
        let created = CheckoutSessionCreated {
            checkout_session_id: self.checkout_session_id,
            checkout_mode: self.checkout_mode,
            origin_url: self.origin_url.clone(),
            customer_id,
            reference_id: self.reference_id.clone().or_else(of_customer),
            plan_id: self.plan_id,
            credit_bundle_id: self.credit_bundle_id,
            expires_at: now.checked_add_signed(LIFETIME).unwrap_or(now),
        };
        let event = Event::from(created.clone());
        Ok(Decision::append(merchant_id, self.now, vec![event], created))
    }
}
