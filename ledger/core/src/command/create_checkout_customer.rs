//! `CreateCheckoutCustomer`: creates the customer of a checkout session that was created without one. The caller
//! derives the ids of the customer and of its wallet from the session's, so a form that is sent twice creates one customer.

use serde::{Deserialize, Serialize};

use super::complete_checkout_session::open_session;
use super::create_customer::{CreateCustomer, CreatedCustomer};
use super::decision::{Command, DecideError, Decision};
use super::refusal::CustomerRefusal;
use crate::ids::CheckoutSessionId;
use crate::state::StateCache;

/// Creates the customer of a session, unless it exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateCheckoutCustomer {
    /// The session, which must still be open.
    pub checkout_session_id: CheckoutSessionId,
    /// The customer, with a wallet, both with ids derived from the session's.
    pub create: CreateCustomer,
}

impl Command for CreateCheckoutCustomer {
    type Outcome = CreatedCustomer;

    fn text_bytes(&self) -> usize {
        self.create.text_bytes()
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<CreatedCustomer>, DecideError> {
        let CreateCustomer { merchant_id, customer_id, wallet_id, now, .. } = self.create;
        open_session(states, merchant_id, self.checkout_session_id, states.now(merchant_id, now)?)?;
        if states.customer(customer_id)?.is_some_and(|found| found.merchant_id == merchant_id) {
            return Ok(Decision::already(CreatedCustomer::Existing(customer_id)));
        }
        // The customer was deleted since, and its wallet outlives it. Its id is not given again.
        if states.wallet(wallet_id)?.is_some() {
            return Err(CustomerRefusal::NotFound.into());
        }
        self.create.decide(states)
    }
}
