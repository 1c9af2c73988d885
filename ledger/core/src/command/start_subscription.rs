//! `StartSubscription`: starts a subscription to a free plan; a subscription to any other plan starts with a payment
//! (completion.md section 8).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::open_request::CustomerRef;
use super::refusal::{PlanRefusal, SubscriptionRefusal};
use crate::event::{Event, Subscriber, SubscriptionStarted};
use crate::ids::{CreditBundleId, MerchantId, PaymentId, PaymentMethodId, PlanId, SubscriptionId};
use crate::money::Amount;
use crate::plan::{BillingCycle, PlanTerms};
use crate::state::StateCache;

/// Subscribes a customer to a free plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartSubscription {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// Which customer.
    pub customer: CustomerRef,
    /// A new id.
    pub subscription_id: SubscriptionId,
    /// The plan.
    pub plan_id: PlanId,
    /// The bundle bought automatically when the credit is used up; the plan's default if none is named.
    pub auto_top_up_bundle_id: Option<CreditBundleId>,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// A subscription that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The event that started it.
    pub event: Box<SubscriptionStarted>,
    /// When it started, by the merchant's clock.
    pub started_at: DateTime<Utc>,
    /// The bundle credit that the wallet had before.
    pub bundle_credit: Amount,
}

/// A subscription to start, with its payment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start<'a> {
    pub(super) subscriber: Subscriber,
    pub(super) plan_id: PlanId,
    pub(super) terms: &'a PlanTerms,
    pub(super) payment: Option<(PaymentId, PaymentMethodId)>,
    pub(super) auto_top_up_bundle_id: Option<CreditBundleId>,
}

impl Start<'_> {
    /// The event that starts the subscription at `now`, by the merchant's clock.
    pub(super) fn event(self, now: DateTime<Utc>) -> Event {
        Event::from(Box::new(self.started(now)))
    }

    fn started(self, now: DateTime<Utc>) -> SubscriptionStarted {
        let terms = self.terms;
        SubscriptionStarted {
            subscriber: self.subscriber,
            plan_id: self.plan_id,
            terms: terms.clone(),
            cycle: BillingCycle::of(terms.billing_interval, now, 0),
            granted: terms.included_credit,
            payment_id: self.payment.map(|(payment_id, _)| payment_id),
            payment_method_id: self.payment.map(|(_, method_id)| method_id),
            auto_top_up_bundle_id: self.auto_top_up_bundle_id.or(terms.default_auto_top_up_bundle_id),
            auto_top_up_chosen: Some(self.auto_top_up_bundle_id.is_some()),
        }
    }
}

/// Refuses a bundle that is not the merchant's or not the plan's.
pub(super) fn check_bundle(
    states: &StateCache,
    merchant_id: MerchantId,
    plan_id: PlanId,
    bundle: Option<CreditBundleId>,
) -> Result<(), DecideError> {
    let Some(id) = bundle else { return Ok(()) };
    let bundle = states.credit_bundle(id)?.filter(|bundle| bundle.merchant_id == merchant_id);
    let bundle = bundle.ok_or(PlanRefusal::BundleNotFound)?;
    if bundle.plan_id == plan_id { Ok(()) } else { Err(PlanRefusal::BundlePlanMismatch.into()) }
}

impl Command for StartSubscription {
    type Outcome = Started;

    fn decide(&self, states: &StateCache) -> Result<Decision<Started>, DecideError> {
        let plan = states.plan(self.plan_id)?.filter(|plan| plan.merchant_id == self.merchant_id);
        if plan.is_some_and(|plan| !plan.terms.is_free()) {
            return Err(PlanRefusal::NotFree.into());
        }
        let (customer_id, customer) = self.customer.find(states, self.merchant_id)?;
        let plan = plan.ok_or(PlanRefusal::NotFound)?;
        check_bundle(states, self.merchant_id, self.plan_id, self.auto_top_up_bundle_id)?;
        if customer.subscription_id.is_some() {
            return Err(SubscriptionRefusal::AlreadyActive.into());
        }
        let subscriber =
            Subscriber { subscription_id: self.subscription_id, customer_id, wallet_id: customer.wallet_id };
        let start = Start {
            subscriber,
            plan_id: self.plan_id,
            terms: &plan.terms,
            payment: None,
            auto_top_up_bundle_id: self.auto_top_up_bundle_id,
        };
        let started_at = states.now(self.merchant_id, self.now)?;
        let event = Box::new(start.started(started_at));
        let wallet = states.wallet(customer.wallet_id)?.expect("a customer has a wallet");
        let bundle_credit = wallet.bundle_credit()?;
        wallet.takes(event.granted)?;
        let started = Started { event: event.clone(), started_at, bundle_credit };
        let event = Event::from(event);
        Ok(Decision::append(self.merchant_id, self.now, vec![event], started))
    }
}
