//! `CompleteCheckoutSession`: completes a session that takes no payment: onboarding, or a plan that costs nothing now
//! (completion.md section 8). A session with a payment is completed by the payment.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::add_payment_method::NewMethod;
use super::decision::{Command, DecideError, Decision};
use super::edit::Edit;
use super::payee::Payee;
use super::personal_data::PersonalData;
use super::refusal::{CheckoutRefusal, CustomerRefusal, PaymentRefusal, PlanRefusal, SubscriptionRefusal};
use super::request_payment::{Offered, OfferedTopUp};
use super::start_subscription::Start;
use super::update_customer::UpdateCustomer;
use super::update_subscription::{SubscriptionEdit, UpdateSubscription};
use crate::event::{CheckoutMode, CheckoutSessionCompleted, ContactPart, Event, Fact, Subscriber};
use crate::ids::{CheckoutSessionId, CustomerId, MerchantId, PlanId, SubscriptionId};
use crate::state::{CheckoutSession, StateCache};

/// Completes a checkout session without a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompleteCheckoutSession {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The session.
    pub checkout_session_id: CheckoutSessionId,
    /// The customer, which exists by now.
    pub customer_id: CustomerId,
    /// The customer's contact, if it is to be written; absent parts stay.
    pub contact: Option<PersonalData>,
    /// A card for the customer's wallet.
    pub method: Option<NewMethod>,
    /// The plan's offer as shown to the customer; `None` if no plan was shown. A subscription or downgrade to a plan with
    /// another offer is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<Offered>,
    /// A new id for the subscription that may start.
    pub subscription_id: SubscriptionId,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// The merchant's session, if it can still be completed.
pub(super) fn open_session(
    states: &StateCache,
    merchant_id: MerchantId,
    id: CheckoutSessionId,
    now: DateTime<Utc>,
) -> Result<&CheckoutSession, DecideError> {
    let session = states.checkout_session(id)?.filter(|found| found.merchant_id == merchant_id);
    let session = session.ok_or(CheckoutRefusal::SessionNotFound)?;
    if session.created.expires_at <= now {
        return Err(CheckoutRefusal::SessionExpired.into());
    }
    if session.payment_id.is_some() {
        return Err(PaymentRefusal::InProgress.into());
    }
    Ok(session)
}

/// The change of a customer's contact to the parts that are present.
pub(super) fn write_contact(
    merchant_id: MerchantId,
    customer_id: CustomerId,
    personal: &PersonalData,
    now: DateTime<Utc>,
) -> UpdateCustomer {
    let given = [
        (ContactPart::Name, personal.first_name.is_some()),
        (ContactPart::Email, personal.email.is_some()),
        (ContactPart::Phone, personal.phone.is_some()),
    ];
    UpdateCustomer {
        merchant_id,
        customer_id,
        reference_id: Edit::Keep,
        metadata: None,
        metadata_literals: BTreeSet::new(),
        contact: given.into_iter().filter_map(|(part, is_given)| is_given.then_some(part)).collect(),
        personal: personal.clone(),
        now,
    }
}

impl CompleteCheckoutSession {
    /// Subscribes an onboarded customer to the plan, unless the customer has it already.
    fn onboarded(
        &self,
        states: &StateCache,
        plan_id: Option<PlanId>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Fact>, DecideError> {
        let customer = states.customer(self.customer_id)?;
        let current = match customer.and_then(|customer| customer.subscription_id) {
            Some(id) => states.subscription(id)?.map(|subscription| subscription.plan_id),
            None => None,
        };
        match plan_id {
            Some(id) if current != Some(id) => self.subscribed(states, plan_id, now),
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// Moves the customer to the plan: at once if it is free, or at the end of the cycle of a more expensive plan.
    fn subscribed(
        &self,
        states: &StateCache,
        plan_id: Option<PlanId>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Fact>, DecideError> {
        let plan_id = plan_id.ok_or(PlanRefusal::NotFound)?;
        let plan = states.plan(plan_id)?.ok_or(PlanRefusal::NotFound)?;
        let customer = states.customer(self.customer_id)?.ok_or(CustomerRefusal::NotFound)?;
        let current = match customer.subscription_id {
            Some(id) => states.subscription(id)?,
            None => None,
        };
        let offer = Offered {
            price: plan.terms.period_amount,
            credit: plan.terms.included_credit,
            auto_top_up: OfferedTopUp::on(states, &plan.terms, current)?,
        };
        if self.offered != Some(offer) {
            return Err(PaymentRefusal::OfferChanged.into());
        }
        if let Some(subscription_id) = customer.subscription_id {
            // A subscription that awaits its first payment does not exist yet.
            let current = current.ok_or(SubscriptionRefusal::AlreadyActive)?;
            if current.plan_id == plan_id || plan.terms.costs_more_than(&current.terms) {
                return Err(SubscriptionRefusal::AlreadyActive.into());
            }
            let edit = SubscriptionEdit::Downgrade(plan_id);
            let change =
                UpdateSubscription { merchant_id: self.merchant_id, subscription_id, edit, now: self.now };
            return Ok(change.decide(states)?.facts);
        }
        if !plan.terms.is_free() {
            return Err(PlanRefusal::NotFree.into());
        }
        let start = Start {
            subscriber: Subscriber {
                subscription_id: self.subscription_id,
                customer_id: self.customer_id,
                wallet_id: customer.wallet_id,
            },
            plan_id,
            terms: &plan.terms,
            payment: None,
            auto_top_up_bundle_id: None,
        };
        Ok(Decision::append(self.merchant_id, self.now, vec![start.event(now)], ()).facts)
    }
}

impl Command for CompleteCheckoutSession {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let now = states.now(self.merchant_id, self.now)?;
        let session = open_session(states, self.merchant_id, self.checkout_session_id, now)?;
        let customer = states.customer(self.customer_id)?;
        customer.filter(|found| found.merchant_id == self.merchant_id).ok_or(CustomerRefusal::NotFound)?;
        let mut facts = match session.created.checkout_mode {
            CheckoutMode::Onboarding => self.onboarded(states, session.created.plan_id, now)?,
            CheckoutMode::Topup | CheckoutMode::CreditBundle => {
                return Err(PaymentRefusal::NoMethod.into());
            }
            CheckoutMode::Subscription => self.subscribed(states, session.created.plan_id, now)?,
        };
        let mut personal = None;
        if let Some(contact) = &self.contact {
            let contact = write_contact(self.merchant_id, self.customer_id, contact, self.now);
            let changed = contact.decide(states)?;
            facts.extend(changed.facts);
            personal = changed.personal;
        }
        if let Some(method) = &self.method {
            let payee = Payee::Customer(self.customer_id);
            facts.extend(method.clone().added_to(self.merchant_id, payee, self.now).decide(states)?.facts);
        }
        let completed = Event::from(CheckoutSessionCompleted {
            checkout_session_id: self.checkout_session_id,
            customer_id: self.customer_id,
        });
        let end = Decision::append(self.merchant_id, self.now, vec![completed], ());
        facts.extend(end.facts);
        Ok(Decision { facts, personal, outcome: () })
    }
}
