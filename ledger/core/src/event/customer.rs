//! The events of customers.

use std::collections::{BTreeMap, BTreeSet};

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
    pub(super) fn customer_id(&self) -> CustomerId {
        match self {
            Self::Created(event) => event.customer_id,
            Self::Updated(event) => event.customer_id,
            Self::Deleted(event) => event.customer_id,
        }
    }

    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Created(event) => format!("{}/created", event.customer_id),
            Self::Updated(event) => format!("{}/updated/{}", event.customer_id, event.revision),
            Self::Deleted(event) => format!("{}/deleted", event.customer_id),
        }
    }

    /// The webhook event that the event leads to.
    pub(super) fn webhook_notice(&self) -> Option<WebhookNotice> {
        let (topic, customer_id) = match self {
            Self::Created(event) => (Topic::CustomerCreated, event.customer_id),
            Self::Deleted(event) => (Topic::CustomerDeleted, event.customer_id),
            Self::Updated(_) => return None,
        };
        Some(WebhookNotice { topic, customer_id: Some(customer_id) })
    }
}

/// A customer was created, with a wallet. Personal data (name, e-mail, phone) is not in the log but in a side table
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
    /// The keys of values that are numbers or booleans, as JSON has them, and not strings.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub metadata_literals: BTreeSet<String>,
}

/// A merchant's own identifier of a customer was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReferenceChange {
    /// The old identifier, which is free again.
    pub from: Option<String>,
    /// The new identifier.
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

/// A customer was changed. Fields that are absent did not change. For personal data the log holds the parts that
/// changed, never their values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerUpdated {
    /// The customer.
    pub customer_id: CustomerId,
    /// Counts the changes of this customer, from 1.
    pub revision: u32,
    /// The change of the merchant's own identifier, if any.
    pub reference_id: Option<ReferenceChange>,
    /// The new key-value pairs, if they changed; empty if they were cleared.
    pub metadata: Option<BTreeMap<String, String>>,
    /// The keys of values that are numbers or booleans, as JSON has them, and not strings.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub metadata_literals: BTreeSet<String>,
    /// The parts that changed in the side table of personal data.
    pub contact: Vec<ContactPart>,
}

/// A customer was deleted: its credentials are invalid, its reference id is free and its personal data is erased. Its
/// wallet and its history stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerDeleted {
    /// The customer.
    pub customer_id: CustomerId,
    /// Its wallet, with any money in it.
    pub wallet_id: WalletId,
    /// The merchant's own identifier, which is free again.
    pub reference_id: Option<String>,
}
