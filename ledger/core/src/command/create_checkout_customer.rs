//! `CreateCheckoutCustomer`: creates the customer of a checkout session that was created without one. The ids of the customer
//! and of its wallet are those of the session, so a form that is sent twice creates one customer.

use serde::{Deserialize, Serialize};

use super::complete_checkout_session::open_session;
use super::create_customer::{CreateCustomer, CreatedCustomer};
use super::decision::{Command, DecideError, Decision};
use super::refusal::CustomerRefusal;
use crate::ids::{CheckoutSessionId, CustomerId, WalletId};
use crate::state::StateCache;

/// Creates the customer of a session, unless it exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateCheckoutCustomer {
    /// The session, which must still be open.
    pub checkout_session_id: CheckoutSessionId,
    /// The customer. Its ids are passed over: gateways of earlier builds send another one of the wallet.
    pub create: CreateCustomer,
}

impl Command for CreateCheckoutCustomer {
    type Outcome = CreatedCustomer;

    fn text_bytes(&self) -> usize {
        self.create.text_bytes()
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<CreatedCustomer>, DecideError> {
        let CreateCustomer { merchant_id, now, .. } = self.create;
        let id = self.checkout_session_id.ulid();
        let (customer_id, wallet_id) = (CustomerId::new(id), WalletId::new(id));
        open_session(states, merchant_id, self.checkout_session_id, states.now(merchant_id, now)?)?;
        if states.customer(customer_id)?.is_some_and(|found| found.merchant_id == merchant_id) {
            return Ok(Decision::already(CreatedCustomer::Existing(customer_id)));
        }
        // The customer was deleted since, and its wallet outlives it. Its id is not given again.
        if states.wallet(wallet_id)?.is_some() {
            return Err(CustomerRefusal::NotFound.into());
        }
        CreateCustomer { customer_id, wallet_id, ..self.create.clone() }.decide(states)
    }
}
