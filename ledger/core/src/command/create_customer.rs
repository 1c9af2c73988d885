//! `CreateCustomer`: creates a customer; idempotent by reference id (interface.md, Customer).

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision, metadata_bytes};
use super::personal_data::{PersonalChange, PersonalData};
use crate::event::{ContactPart, CustomerCreated, Event};
use crate::ids::{CustomerId, MerchantId, WalletId};
use crate::state::StateCache;

/// Creates a customer with a wallet, unless the reference id exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateCustomer {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// A new id.
    pub customer_id: CustomerId,
    /// A new id for the wallet.
    pub wallet_id: WalletId,
    /// The merchant's own identifier.
    pub reference_id: Option<String>,
    /// Free key-value pairs.
    pub metadata: BTreeMap<String, String>,
    /// The keys of values that are numbers or booleans, as JSON has them, and not strings.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub metadata_literals: BTreeSet<String>,
    /// Name, e-mail, phone.
    pub personal: PersonalData,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// The result of creating a customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreatedCustomer {
    /// A new customer was created.
    Created(CustomerId),
    /// A customer with the reference id exists and was not changed.
    Existing(CustomerId),
}

impl Command for CreateCustomer {
    type Outcome = CreatedCustomer;

    fn text_bytes(&self) -> usize {
        metadata_bytes(&self.metadata)
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<CreatedCustomer>, DecideError> {
        if let Some(reference) = &self.reference_id
            && let Some(existing) = states.reference(self.merchant_id, reference)?
        {
            return Ok(Decision::already(CreatedCustomer::Existing(*existing)));
        }
        let event = Event::from(CustomerCreated {
            customer_id: self.customer_id,
            wallet_id: self.wallet_id,
            reference_id: self.reference_id.clone(),
            metadata: self.metadata.clone(),
            metadata_literals: self.metadata_literals.clone(),
        });
        let outcome = CreatedCustomer::Created(self.customer_id);
        let decision = Decision::append(self.merchant_id, self.now, vec![event], outcome);
        let parts = vec![ContactPart::Name, ContactPart::Email, ContactPart::Phone];
        let personal = PersonalChange::Write { parts, data: self.personal.clone() };
        Ok(Decision { personal: Some((self.customer_id, personal)), ..decision })
    }
}
