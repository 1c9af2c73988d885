//! `CreateCheckoutCustomer`: the customer who completes a checkout session that was created for nobody. However often the
//! form is sent, it is one customer: the caller makes its id of the session's.

use super::complete_checkout_session::open_session;
use super::create_customer::{CreateCustomer, CustomerMade};
use super::decision::{Command, DecideError, Decision};
use crate::ids::CheckoutSessionId;
use crate::state::StateCache;

/// Creates the customer of a session, unless it is there.
#[derive(Debug, Clone)]
pub struct CreateCheckoutCustomer {
    /// Which session; it can still be completed.
    pub checkout_session_id: CheckoutSessionId,
    /// The customer, under an id that is the same whenever the session's form is sent.
    pub create: CreateCustomer,
}

impl Command for CreateCheckoutCustomer {
    type Outcome = CustomerMade;

    fn decide(&self, states: &StateCache) -> Result<Decision<CustomerMade>, DecideError> {
        let CreateCustomer { merchant_id, customer_id, now, .. } = self.create;
        open_session(states, merchant_id, self.checkout_session_id, states.now(merchant_id, now)?)?;
        if states.customer(customer_id)?.is_some_and(|found| found.merchant_id == merchant_id) {
            return Ok(Decision::already(CustomerMade::Existing(customer_id)));
        }
        self.create.decide(states)
    }
}
