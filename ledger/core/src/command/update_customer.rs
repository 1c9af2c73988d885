//! `UpdateCustomer`: changes some fields of a customer. A reference id belongs to one customer of a merchant at a time
//! (interface.md, PATCH `/customers/{customer_id}`).

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision, metadata_bytes};
use super::edit::Edit;
use super::personal_data::{PersonalChange, PersonalData};
use super::refusal::CustomerRefusal;
use crate::event::{ContactPart, CustomerUpdated, Event, ReferenceChange};
use crate::ids::{CustomerId, MerchantId};
use crate::state::StateCache;

/// Changes the fields of a customer that are present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateCustomer {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The customer.
    pub customer_id: CustomerId,
    /// The merchant's own identifier.
    pub reference_id: Edit<String>,
    /// The new key-value pairs, if they change.
    pub metadata: Option<BTreeMap<String, String>>,
    /// The keys of values that are numbers or booleans, as JSON has them, and not strings.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub metadata_literals: BTreeSet<String>,
    /// The parts of the contact to change.
    pub contact: Vec<ContactPart>,
    /// The new values of those parts.
    pub personal: PersonalData,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl UpdateCustomer {
    /// The change of the reference id, if any. Refuses an id that another customer has.
    fn reference_change(
        &self,
        states: &StateCache,
        from: Option<&String>,
    ) -> Result<Option<ReferenceChange>, DecideError> {
        let to = match &self.reference_id {
            Edit::Keep => return Ok(None),
            Edit::Clear => None,
            Edit::Set(to) => Some(to),
        };
        if from == to {
            return Ok(None);
        }
        if let Some(to) = to
            && states.reference(self.merchant_id, to)?.is_some()
        {
            return Err(CustomerRefusal::ReferenceIdTaken.into());
        }
        Ok(Some(ReferenceChange { from: from.cloned(), to: to.cloned() }))
    }
}

impl Command for UpdateCustomer {
    type Outcome = ();

    fn text_bytes(&self) -> usize {
        self.metadata.as_ref().map_or(0, metadata_bytes)
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let customer = states.customer(self.customer_id)?;
        let customer = customer.filter(|customer| customer.merchant_id == self.merchant_id);
        let customer = customer.ok_or(CustomerRefusal::NotFound)?;
        let reference_id = self.reference_change(states, customer.reference_id.as_ref())?;
        if reference_id.is_none() && self.metadata.is_none() && self.contact.is_empty() {
            return Ok(Decision::already(()));
        }
        let event = Event::from(CustomerUpdated {
            customer_id: self.customer_id,
            revision: customer.revision + 1,
            reference_id,
            metadata: self.metadata.clone(),
            metadata_literals: self.metadata_literals.clone(),
            contact: self.contact.clone(),
        });
        let decision = Decision::append(self.merchant_id, self.now, vec![event], ());
        let change = PersonalChange::Write { parts: self.contact.clone(), data: self.personal.clone() };
        let personal = (!self.contact.is_empty()).then_some((self.customer_id, change));
        Ok(Decision { personal, ..decision })
    }
}
