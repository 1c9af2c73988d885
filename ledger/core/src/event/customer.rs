//! The events of customers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kind::area;
use super::webhook::{Topic, WebhookNotice};
use crate::ids::{CustomerId, WalletId};

area! {
    /// The events of a customer.
    Event::Customer(CustomerEvent) {
        Created(CustomerCreated) = "customer.created",
        Updated(CustomerUpdated) = "customer.updated",
        Deleted(CustomerDeleted) = "customer.deleted",
    }
}

impl CustomerEvent {
    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Created(event) => format!("{}/created", event.customer_id),
            Self::Updated(event) => format!("{}/updated/{}", event.customer_id, event.revision),
            Self::Deleted(event) => format!("{}/deleted", event.customer_id),
        }
    }

    /// What webhooks are notified of.
    pub(super) fn webhook_notice(&self) -> Option<WebhookNotice> {
        let (topic, customer_id) = match self {
            Self::Created(event) => (Topic::CustomerCreated, event.customer_id),
            Self::Deleted(event) => (Topic::CustomerDeleted, event.customer_id),
            Self::Updated(_) => return None,
        };
        Some(WebhookNotice { topic, customer_id: Some(customer_id) })
    }
}

/// A customer came to be, with a wallet. Personal data (name, e-mail, phone) is not here but in the side table
/// under the customer's id, so that it can be erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerCreated {
    /// The customer, which is also the connection.
    pub customer_id: CustomerId,
    /// The customer's wallet.
    pub wallet_id: WalletId,
    /// The merchant's own identifier.
    pub reference_id: Option<String>,
    /// Free key-value pairs.
    pub metadata: BTreeMap<String, String>,
}

/// A merchant's own identifier of a customer was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReferenceChange {
    /// What is free again.
    pub from: Option<String>,
    /// What names the customer now.
    pub to: Option<String>,
}

/// A part of a customer's personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContactPart {
    /// First and last name.
    Name,
    /// E-mail address.
    Email,
    /// Phone number.
    Phone,
}

/// A customer was changed. Only what is named here changed; of the contact the log says which parts, never what
/// they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerUpdated {
    /// The customer.
    pub customer_id: CustomerId,
    /// Counts the changes of this customer, from 1.
    pub revision: u32,
    /// The merchant's own identifier, when it changed.
    pub reference_id: Option<ReferenceChange>,
    /// All key-value pairs from now on, when they changed; empty when they were cleared.
    pub metadata: Option<BTreeMap<String, String>>,
    /// What changed in the side table of personal data.
    pub contact: Vec<ContactPart>,
}

/// A customer is no more: its credentials are dead, its reference id is free, its personal data is erased. Its
/// wallet and its history stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerDeleted {
    /// The customer.
    pub customer_id: CustomerId,
    /// Its wallet, with whatever is in it.
    pub wallet_id: WalletId,
    /// The merchant's own identifier that is free again.
    pub reference_id: Option<String>,
}
