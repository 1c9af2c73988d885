//! `CompleteCheckoutSession`: the end of a session that takes no payment: onboarding, or a plan that costs nothing
//! (completion.md section 8). One that is paid ends with its payment.

use chrono::{DateTime, Utc};

use super::start_subscription::Start;
use super::{Command, Decision, Refusal, Stop};
use crate::event::{CheckoutMode, CheckoutSessionCompleted, Event, Subscriber};
use crate::ids::{CheckoutSessionId, CustomerId, MerchantId, SubscriptionId};
use crate::state::{CheckoutSession, World};

/// Completes a session.
#[derive(Debug, Clone, Copy)]
pub struct CompleteCheckoutSession {
    /// Whose.
    pub merchant_id: MerchantId,
    /// Which session.
    pub checkout_session_id: CheckoutSessionId,
    /// The customer, which is there by now.
    pub customer_id: CustomerId,
    /// A fresh id, for the subscription that may begin.
    pub subscription_id: SubscriptionId,
    /// Now, to the millisecond.
    pub now: DateTime<Utc>,
}

/// The merchant's session, which can still be completed.
pub(super) fn open_session(
    world: &World,
    merchant_id: MerchantId,
    id: CheckoutSessionId,
    now: DateTime<Utc>,
) -> Result<&CheckoutSession, Stop> {
    let session = world.checkout_session(id)?.filter(|found| found.merchant_id == merchant_id);
    let session = session.ok_or(Refusal::CheckoutSessionNotFound)?;
    if session.created.expires_at <= now {
        return Err(Refusal::CheckoutSessionExpired.into());
    }
    if session.payment_id.is_some() {
        return Err(Refusal::PaymentUnderWay.into());
    }
    Ok(session)
}

impl Command for CompleteCheckoutSession {
    type Outcome = ();

    fn decide(&self, world: &World) -> Result<Decision<()>, Stop> {
        let now = world.now(self.merchant_id, self.now)?;
        let session = open_session(world, self.merchant_id, self.checkout_session_id, now)?;
        let customer = world.customer(self.customer_id)?;
        let customer = customer.filter(|found| found.merchant_id == self.merchant_id);
        let customer = customer.ok_or(Refusal::CustomerNotFound)?;
        let mut events = Vec::with_capacity(2);
        match session.created.checkout_mode {
            CheckoutMode::Onboarding => {}
            CheckoutMode::Topup | CheckoutMode::CreditBundle => {
                return Err(Refusal::NoPaymentMethod.into());
            }
            CheckoutMode::Subscription => {
                let plan_id = session.created.plan_id.ok_or(Refusal::PlanNotFound)?;
                let plan = world.plan(plan_id)?.ok_or(Refusal::PlanNotFound)?;
                if customer.subscription_id.is_some() {
                    return Err(Refusal::SubscriptionAlreadyActive.into());
                }
                if !plan.terms.is_free() {
                    return Err(Refusal::PlanNotFree.into());
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
                events.push(start.event(now));
            }
        }
        events.push(Event::CheckoutSessionCompleted(CheckoutSessionCompleted {
            checkout_session_id: self.checkout_session_id,
            customer_id: self.customer_id,
        }));
        Ok(Decision::append(self.merchant_id, self.now, events, ()))
    }
}
