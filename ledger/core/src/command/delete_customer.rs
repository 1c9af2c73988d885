//! `DeleteCustomer`: deletes a customer. Its history stays, its credentials are invalid at once and its personal data
//! is erased (completion.md section 7).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::personal_data::PersonalChange;
use super::refusal::CustomerRefusal;
use super::update_subscription::cancelled;
use crate::event::{CancelReason, CustomerDeleted, Event};
use crate::ids::{CustomerId, MerchantId};
use crate::state::StateCache;

/// Deletes a customer. Its open calls are still settled. Its wallet stays, with its money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteCustomer {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The customer.
    pub customer_id: CustomerId,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for DeleteCustomer {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let customer = states.customer(self.customer_id)?;
        let customer = customer.filter(|customer| customer.merchant_id == self.merchant_id);
        let customer = customer.ok_or(CustomerRefusal::NotFound)?;
        let mut events = Vec::with_capacity(2);
        if let Some(id) = customer.subscription_id
            && let Some(subscription) = states.subscription(id)?
        {
            events.push(cancelled(states, subscription, CancelReason::CustomerDeleted)?);
        }
        events.push(Event::from(CustomerDeleted {
            customer_id: self.customer_id,
            wallet_id: customer.wallet_id,
            reference_id: customer.reference_id.clone(),
        }));
        let decision = Decision::append(self.merchant_id, self.now, events, ());
        Ok(Decision { personal: Some((self.customer_id, PersonalChange::Erase)), ..decision })
    }
}
